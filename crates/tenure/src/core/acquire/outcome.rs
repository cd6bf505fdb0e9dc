//! How a wait ends, and the errors for those who did not get the lock.

use std::time::Duration;

use super::{OpenStep, WaitLoop};
use crate::core::guard::{ClaimGuard, HeldClaim};
use crate::core::handle::Core;
use crate::core::local_line;
use crate::engine::View;
use crate::model::claim::{Details, Holder, Outcome, Place};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::observe::Subject;

/// How the wait ended, for the primitive that asked. Where an engine's `Verdict` has a grant or a holder,
/// this has the guard: what was granted is held, and what was not is left when the guard is dropped.
pub(crate) enum AcquireOutcome {
    Granted(HeldClaim),
    Busy(ClaimGuard, HeldBy),
    /// A once: what it left.
    Settled(Outcome),
    /// A once: nobody knows how it ended.
    Unsettled,
}

/// Who holds what was not granted.
pub(crate) enum HeldBy {
    /// As the engine says; `None` where others only wait for it.
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
    /// The wait is over: others have it, unless the engine has stopped answering since it said so.
    pub(super) fn wait_over(&mut self, now: Moment) -> Result<AcquireOutcome> {
        let place = self.live().place();
        if let Some(error) = self.trouble(place.as_ref()) {
            return Err(error);
        }
        match place {
            // Someone is at it, which is an answer to who asked for it to be done once.
            Some(place) if self.live().claim.once.is_some() => Ok(self.busy(place.holder)),
            place => Err(self.not_in_time(place, now)),
        }
    }

    /// Why the engine cannot say that others have it.
    fn trouble(&self, place: Option<&Place>) -> Option<Error> {
        if self.stands_in_local_line() {
            return None;
        }
        let heard = place.map(|place| place.asked_at);
        let failed = self.last_failure.as_ref().filter(|(at, _)| Some(*at) > heard);
        let trouble = self.core().trouble(&self.live().claim.name);
        trouble.or_else(|| failed.map(|(_, error)| error.clone()))
    }

    fn not_in_time(&self, place: Option<Place>, now: Moment) -> Error {
        let (core, name) = (self.core(), &self.live().claim.name);
        let waited = self.live().wait.unwrap_or_default();
        let others = |ahead: usize| match ahead {
            0 => String::new(),
            _ => format!(", and {ahead} were ahead in line"),
        };
        if let OpenStep::Line(place) = &self.open_step {
            return core
                .not_acquired_here(name, &format!("waited {waited:?}{}", others(place.ahead())));
        }
        // Without a place it was granted, too late to be taken.
        let Some(Place { ticket, ahead, asked_at, holder, .. }) = place else {
            let reason = format!("waited {waited:?}; the turn came too late");
            return Error::new(ErrorKind::WaitOver, reason).next("wait longer");
        };
        // The line as it is now where that is at hand, else as it was at the last contact.
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
        core.not_acquired(name, &format!("waited {waited:?}{}", others(ahead)), holder)
    }
}

impl Core {
    /// The error for a claim that was not granted in time: who has it, and what to do about it.
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

    /// The same for a claim that another of this process keeps out.
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
    Error::new(ErrorKind::Internal, "the engine gave an answer that was not asked for")
}
