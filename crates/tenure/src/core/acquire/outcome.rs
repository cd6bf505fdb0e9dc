//! How a wait ends, and the errors for claims that were not granted.

use std::time::Duration;

use super::{OpenStep, WaitLoop};
use crate::core::guard::{ClaimGuard, HeldClaim};
use crate::core::handle::Core;
use crate::core::local_line::{self, LocalPlace};
use crate::engine::View;
use crate::model::claim::{Details, Holder, Outcome, Place};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::observe::Subject;

/// How the wait ended, for the primitive that asked. It carries the guard where an engine's `Verdict` has a grant
/// or a holder: a granted claim is held, and any other is left when its guard is dropped.
pub(crate) enum AcquireOutcome {
    Granted(HeldClaim),
    Busy(ClaimGuard, HeldBy),
    /// The outcome of a once.
    Settled(Outcome),
    /// A once that was started and never settled.
    Unsettled,
}

/// Who holds a name that was not granted.
pub(crate) enum HeldBy {
    /// The holder that the engine named; `None` if others only wait for it.
    Holder(Option<Holder>),
    /// Another claim of this process: the engine was not asked.
    ThisProcess,
}

impl HeldBy {
    pub(crate) fn holder(&self) -> Option<&Holder> {
        match self {
            HeldBy::Holder(holder) => holder.as_ref(),
            HeldBy::ThisProcess => None,
        }
    }
}

impl AcquireOutcome {
    pub(super) fn acquired(self) -> Result<HeldClaim> {
        match self {
            AcquireOutcome::Granted(held) => Ok(held),
            AcquireOutcome::Busy(guard, held_by) => {
                let (core, name) = (guard.core(), &guard.live().claim.name);
                let error = match held_by {
                    HeldBy::Holder(holder) => core.not_acquired(name, "did not wait", holder),
                    HeldBy::ThisProcess => core.not_acquired_here(name, "did not wait"),
                };
                Err(core.explain(error, "acquire", name))
            }
            AcquireOutcome::Settled(_) | AcquireOutcome::Unsettled => Err(not_asked_for()),
        }
    }

    pub(super) fn tried(self) -> Option<HeldClaim> {
        match self {
            AcquireOutcome::Granted(held) => Some(held),
            AcquireOutcome::Busy(..) | AcquireOutcome::Settled(_) | AcquireOutcome::Unsettled => {
                None
            }
        }
    }
}

impl WaitLoop {
    /// The wait is over. Others have the name if the engine said so and still answers. If a turn has come since,
    /// what the engine said of others is out of date, and it did not answer the last question.
    pub(super) fn wait_over(&mut self, now: Moment) -> Result<AcquireOutcome> {
        let place = self.live().place();
        if let Some(error) = self.trouble(place.as_ref()) {
            return Err(error);
        }
        if let OpenStep::Line(place) = &self.open_step {
            return Err(self.not_in_time_here(place));
        }
        match place.filter(|_| self.turn_by.is_none()) {
            // Someone is running it. For a once, that is an answer rather than an error.
            Some(place) if self.live().claim.once.is_some() => Ok(self.busy(place.holder)),
            Some(place) => Err(self.not_in_time(place, now)),
            None => {
                let reason =
                    format!("{}; the turn came, but the engine did not confirm it", self.waited(0));
                let error = Error::new(ErrorKind::Unavailable, reason);
                Err(error.next("see the engine's health").in_doubt())
            }
        }
    }

    /// Why the engine's last answer can no longer be trusted.
    fn trouble(&self, place: Option<&Place>) -> Option<Error> {
        if self.stands_in_local_line() {
            return None;
        }
        let heard = place.map(|place| place.asked_at);
        let failed = self.last_failure.as_ref().filter(|(at, _)| Some(*at) > heard);
        let trouble = self.core().trouble(&self.live().claim.name);
        trouble.or_else(|| failed.map(|(_, error)| error.clone()))
    }

    fn not_in_time_here(&self, place: &LocalPlace) -> Error {
        self.core().not_acquired_here(&self.live().claim.name, &self.waited(place.ahead()))
    }

    fn not_in_time(&self, place: Place, now: Moment) -> Error {
        let (core, name) = (self.core(), &self.live().claim.name);
        let Place { ticket, ahead, asked_at, holder, .. } = place;
        // Use the line as it is now, if that is available without IO, or as it was at the last contact.
        let (ahead, holder) = match core.engine.glance(name) {
            Some(View { holders, waiters, .. }) => {
                let before = waiters.iter().filter(|waiter| waiter.ticket < ticket).count();
                (before, holders.into_iter().min_by_key(|holder| holder.remaining))
            }
            None => {
                let older = |holder: Holder| Holder {
                    held_for: holder.held_for + now.since(asked_at),
                    ..holder
                };
                (ahead as usize, holder.map(older))
            }
        };
        core.not_acquired(name, &self.waited(ahead), holder)
    }

    /// How long it waited, and behind how many.
    fn waited(&self, ahead: usize) -> String {
        let waited = self.live().wait.unwrap_or_default();
        match ahead {
            0 => format!("waited {waited:?}"),
            _ => format!("waited {waited:?}, and {ahead} were ahead in line"),
        }
    }
}

impl Core {
    /// The error for a claim that was not granted in time: who holds the name, and what to do about it.
    pub(super) fn not_acquired(&self, name: &Name, said: &str, holder: Option<Holder>) -> Error {
        let Some(Holder { fence, held_for, details, .. }) = holder else {
            let reason = format!("{said}; others wait for it");
            return Error::new(ErrorKind::WaitOver, reason).next("wait longer");
        };
        let reason = format!("{said}; {}, fence {fence}", held_by(&details, held_for));
        let error = Error::new(ErrorKind::WaitOver, reason);
        match self.table.is_mine(name, fence) {
            true => error.next("that is this process itself: locks are not re-entrant"),
            false => error.next("wait longer, or inspect the name"),
        }
    }

    /// The same, for a claim that another claim of this process blocks.
    pub(super) fn not_acquired_here(&self, name: &Name, said: &str) -> Error {
        let held = match self.lines.holder(name) {
            Some(local_line::LocalHolder { details, held_for }) => held_by(&details, held_for),
            None => "others wait for it".to_owned(),
        };
        let error = Error::new(ErrorKind::WaitOver, format!("{said}; {held}, in this process"));
        error.next("wait longer; locks are not re-entrant")
    }
}

fn held_by(details: &Details, held_for: Duration) -> String {
    let held_for = Duration::from_millis(held_for.as_millis() as u64);
    let held_for = humantime::format_duration(held_for);
    let why = details.reason.as_ref().map(|why| format!(" ({why:?})")).unwrap_or_default();
    format!("held by {}{why} for {held_for}", details.owner)
}

pub(super) fn not_asked_for() -> Error {
    Error::new(ErrorKind::Internal, "the engine gave an unexpected answer")
}
