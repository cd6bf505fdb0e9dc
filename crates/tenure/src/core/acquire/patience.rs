//! How long a claim waits for an engine that does not answer, and when the watchdog is asked to check whether the
//! engine can be reached.

use std::time::Duration;

use super::{OpenStep, WaitLoop};
use crate::core::outage::is_outage;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;

/// A task that runs this late was kept from running, so the answer may be there already.
const LATE: Duration = Duration::from_millis(20);
/// How many times, and for how long each time, giving up is put off: for tasks that run late, and while the
/// watchdog has not found out whether the engine can be reached.
pub(super) const MOST_PUT_OFF: u32 = 40;
const PUT_OFF: Duration = Duration::from_millis(100);

impl WaitLoop {
    /// The engine has answered.
    pub(super) fn has_answered(&mut self) {
        (self.answered, self.give_up, self.last_failure) = (true, Moment::FAR, None);
        // An answer that is two silences old when the wait ends no longer counts.
        let longest = self.core().longest_silence() * 2;
        let look = self.deadline() - longest;
        let has_end = self.deadline() != Moment::FAR && self.core().world.now() < look;
        self.doubt_at = if has_end { look } else { Moment::FAR };
    }

    /// A request is being sent: sets how long the engine has to answer it.
    pub(super) fn asks(&mut self, now: Moment) {
        self.retry_at = Moment::FAR;
        self.doubt_at = self.doubt_at.min(now + self.core().longest_silence() / 4);
        if !self.answered && self.give_up == Moment::FAR {
            self.give_up = self.longest_wait(now);
        }
    }

    /// Has the watchdog check whether the engine can be reached, and again if there is no answer yet.
    pub(super) fn doubt(&mut self, now: Moment) {
        let core = self.core();
        core.doubt(&self.live().claim.name);
        let again = now + core.longest_silence();
        self.doubt_at = if self.is_asking() { again } else { Moment::FAR };
    }

    fn is_asking(&self) -> bool {
        matches!(self.open_step, OpenStep::Claim(_) | OpenStep::Confirm(_) | OpenStep::Undo(_))
    }

    pub(super) fn try_later(&mut self, now: Moment) {
        self.tries += 1;
        // Spread by the claim's random bits, so that a thousand clients do not all retry at the same time.
        let step = Duration::from_millis(20 << self.tries.min(6));
        let spread = (self.live().claim.id.bits() >> self.tries.min(32)) as u32 % 1000;
        self.retry_at = now + step / 2 + step * spread / 2000;
    }

    /// There was no answer: tries again later, or gives up.
    pub(super) fn failed(&mut self, error: Error, now: Moment) -> Result<()> {
        if error.kind() != ErrorKind::Unavailable {
            // A request that may have taken effect is left like any other.
            if !self.answered && !error.may_have_happened() {
                self.refused();
            }
            return Err(error);
        }
        if is_outage(&error) {
            self.core().doubt(&self.live().claim.name);
        }
        self.doubt_at = Moment::FAR;
        if error.asks_for_time() && self.live().claim.may_wait && self.live().wait.is_none() {
            // The engine can be reached and needs time; a caller that is willing to wait does so.
            self.give_up = Moment::FAR;
        } else if !self.answered && self.give_up == Moment::FAR {
            // The engine used to ask for time, and now does not answer.
            self.give_up = self.longest_wait(now);
        }
        self.last_failure = Some((now, error));
        if now >= self.give_up && self.gives_up(now) {
            return Err(self.no_answer(now));
        }
        self.try_later(now);
        Ok(())
    }

    /// Until when the engine may stay silent if it is asked now: for as long as the caller would wait, or for the
    /// engine's patience. With an outage policy, until the watchdog must have found out whether the engine can be
    /// reached.
    fn longest_wait(&self, now: Moment) -> Moment {
        let (core, live) = (self.core(), self.live());
        let longest = match live.wait {
            _ if !live.claim.may_wait => now + core.longest_silence(),
            Some(wait) => self.started + wait,
            None => now + core.engine.profile().patience,
        };
        match self.goes_on_without() {
            true => longest.max(now + core.longest_silence() * 2),
            false => longest,
        }
    }

    /// Whether to give up on the engine now. A task that was kept from running checks once more what has arrived
    /// in the meantime; with an outage policy, the watchdog decides whether this is an outage.
    pub(super) fn gives_up(&mut self, now: Moment) -> bool {
        let late = now.since(self.give_up) > LATE && self.put_off == MOST_PUT_OFF;
        let undecided = self.goes_on_without() && self.core().is_in_doubt(&self.live().claim.name);
        let puts_off = self.put_off > 0 && (late || undecided);
        if puts_off {
            (self.put_off, self.give_up) = (self.put_off - 1, now + PUT_OFF);
        }
        !puts_off
    }

    /// The error for an engine that has not answered in time. Uses the engine's own error, if there was one.
    pub(super) fn no_answer(&mut self, now: Moment) -> Error {
        let waited = now.since(self.started);
        let silent = || {
            let reason = format!("no answer for {}", millis(waited));
            Error::new(ErrorKind::Unavailable, reason).next("see the engine's health")
        };
        let said = self.last_failure.take().map(|(_, error)| error);
        said.unwrap_or_else(silent).in_doubt()
    }

    /// When the wait is over. Until the engine has answered, `give_up` applies instead. A turn that came in time is
    /// not given up for want of the one answer needed to start it: there may be nobody else who wants the name.
    pub(super) fn deadline(&self) -> Moment {
        match self.live().wait {
            Some(wait) if !wait.is_zero() && (self.answered || self.stands_in_local_line()) => {
                (self.started + wait).max(self.turn_by.unwrap_or(Moment::ORIGIN))
            }
            _ => Moment::FAR,
        }
    }
}

/// A duration, for people.
fn millis(span: Duration) -> humantime::FormattedDuration {
    humantime::format_duration(Duration::from_millis(span.as_millis() as u64))
}
