//! How a wait ends, and what is said to those who did not get what they came for.

use std::time::Duration;

use super::{Asked, Request};
use crate::core::handle::Core;
use crate::core::hold::Hold;
use crate::core::local_line;
use crate::engine::View;
use crate::model::claim::{Details, Holder, Outcome, Place};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// How the wait ended.
pub(crate) enum Ending {
    Granted(Hold),
    Busy(Hold, Who),
    /// A once: what it left.
    Settled(Outcome),
    /// A once: nobody knows how it ended.
    Unsettled,
}

/// The same, seen from within the loop.
pub(super) enum End {
    Held,
    Busy(Option<Holder>),
    Settled(Outcome),
    Unsettled,
    /// The engine is out of reach.
    Nobody,
}

/// Who has it.
pub(crate) enum Who {
    Elsewhere(Option<Holder>),
    /// Another claim of this process.
    Here,
}

impl Who {
    pub(crate) fn holder(self) -> Option<Holder> {
        match self {
            Who::Elsewhere(holder) => holder,
            Who::Here => None,
        }
    }
}

impl Ending {
    pub(super) fn acquired(self) -> Result<Hold> {
        match self {
            Ending::Granted(hold) => Ok(hold),
            Ending::Busy(hold, who) => {
                let (core, name) = (hold.core(), &hold.stake().claim.name);
                let error = match who {
                    Who::Elsewhere(holder) => core.not_had(name, "did not wait", holder),
                    Who::Here => core.not_had_here(name, "did not wait"),
                };
                Err(core.explain(error, "acquire", name))
            }
            Ending::Settled(_) | Ending::Unsettled => Err(not_asked_for()),
        }
    }

    pub(super) fn tried(self) -> Option<Hold> {
        match self {
            Ending::Granted(hold) => Some(hold),
            Ending::Busy(..) | Ending::Settled(_) | Ending::Unsettled => None,
        }
    }
}

impl Asked {
    /// The wait is over: others have it, unless the engine has stopped answering since it said so.
    pub(super) fn wait_over(&self, now: Moment) -> Result<End> {
        let place = self.stake().place();
        if let Some(error) = self.trouble(place.as_ref()) {
            return Err(error);
        }
        match place {
            // Someone is at it, which is an answer to who asked for it to be done once.
            Some(place) if self.stake().claim.once.is_some() => Ok(End::Busy(place.holder)),
            place => Err(self.not_in_time(place, now)),
        }
    }

    /// Why the engine cannot say that others have it.
    fn trouble(&self, place: Option<&Place>) -> Option<Error> {
        if self.stands_here() {
            return None;
        }
        let heard = place.map(|place| place.asked_at);
        let failed = self.last_failure.as_ref().filter(|(at, _)| Some(*at) > heard);
        let trouble = self.core().trouble(&self.stake().claim.name);
        trouble.or_else(|| failed.map(|(_, error)| error.copy()))
    }

    fn not_in_time(&self, place: Option<Place>, now: Moment) -> Error {
        let (core, name) = (self.core(), &self.stake().claim.name);
        let waited = self.stake().wait.unwrap_or_default();
        let others = |ahead: usize| match ahead {
            0 => String::new(),
            _ => format!(", and {ahead} were ahead in line"),
        };
        if let Request::Line(place) = &self.request {
            return core.not_had_here(name, &format!("waited {waited:?}{}", others(place.ahead())));
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
        core.not_had(name, &format!("waited {waited:?}{}", others(ahead)), holder)
    }
}

impl Core {
    /// The error for a claim that was not granted in time: who has it, and what to do about it.
    pub(super) fn not_had(&self, name: &Name, said: &str, holder: Option<Holder>) -> Error {
        let Some(Holder { fence, held_for, details, .. }) = holder else {
            let reason = format!("{said}; others wait for it");
            return Error::new(ErrorKind::WaitOver, reason).next("wait longer");
        };
        let reason = format!("{said}; {}, fence {fence}", held_by(&details, held_for));
        let error = Error::new(ErrorKind::WaitOver, reason);
        match self.slots.is_mine(name, fence) {
            true => error.next("that is this process itself: locks are not re-entrant"),
            false => error.next("wait longer, or inspect the name"),
        }
    }

    /// The same for a claim that another of this process keeps out.
    pub(super) fn not_had_here(&self, name: &Name, said: &str) -> Error {
        let held = match self.lines.keeper(name) {
            Some(local_line::Keeper { details, held_for }) => held_by(&details, held_for),
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
