//! The phases of a claim's life, and when each needs the watchdog.

use std::sync::Arc;
use std::time::Duration;

use super::leaving::LEAVE_PATIENCE;
use super::{ClaimState, Effects, cap};
use crate::model::claim::{
    Ended, Grant, Holder, NOTICES_EVERY, PLACE_LIFE, Place, Released, RenewalOutcome, Risk, Turn,
};
use crate::model::moment::Moment;
use crate::model::options::Terms;
use crate::model::request::Request;

const SOONEST_LOOK: Duration = Duration::from_millis(5);
/// How soon a claim that has just joined a line looks again. Those that were there before it may have been told
/// when an untaken turn runs out, and are told again within a second; this one was not. If the turn has not run
/// out yet, the answer says when it does.
const FIRST_LOOK: Duration = Duration::from_millis(2500);

#[derive(Debug)]
pub(super) enum Phase {
    Asking(Asking),
    Held(Held),
    Leaving(Leaving),
    Over(Option<Released>),
    /// Handed over without leaving. Forgotten at this moment.
    Detached(Moment),
}

#[derive(Debug)]
pub(super) struct Asking {
    pub(super) turn: Option<Turn>,
    pub(super) place: Option<Box<Place>>,
    /// When to look, as pushed by the engine. An answer older than the push may be handled after it, and must not
    /// undo it.
    pub(super) hint: Moment,
    /// When the future wants to be woken, for its deadline or its next try.
    pub(super) ring_at: Moment,
    pub(super) rung: bool,
    /// When the watchdog should renew the place.
    pub(super) contact_at: Moment,
    /// When it first stood in line.
    pub(super) since: Moment,
}

#[derive(Debug)]
pub(super) struct Held {
    pub(super) good_until: Moment,
    pub(super) renew_by: Moment,
    pub(super) first_life: bool,
    /// When half of the time that the last renewal gave is over.
    pub(super) risk_at: Moment,
    pub(super) at_risk: Option<Arc<Risk>>,
    /// When to leave: released by its owner, but kept for `hold_for`.
    pub(super) leave_at: Moment,
    /// Observers want to be told of each renewal, and when no more than this is left.
    pub(super) warn_before: Option<Duration>,
    /// They have been told since the last renewal.
    pub(super) warned: bool,
}

#[derive(Debug)]
pub(super) struct Leaving {
    pub(super) tries: u32,
    pub(super) next_try: Moment,
    /// From this time on, the engine has ended the claim in any case.
    pub(super) give_up: Moment,
    /// From this time on, no caller waits for the answer.
    pub(super) unheard_at: Moment,
    pub(super) good_until: Option<Moment>,
    /// The hold has run out since, no matter what the engine answers.
    pub(super) overdue: bool,
    /// No answer came for as long as callers wait for one.
    pub(super) unheard: bool,
}

impl ClaimState {
    /// The hold has ended without a release. One that was only kept was released in time, and is not lost to
    /// anyone.
    pub(super) fn lose(&mut self, ended: Ended, leaving: Option<Leaving>, effects: &mut Effects) {
        let kept = matches!(&self.phase, Phase::Held(held) if held.is_kept());
        if !kept {
            let ended = Box::new(ended);
            self.lost = Some(ended.clone());
            effects.lost = Some(ended);
            effects.ends_hold = true;
        }
        // A request that was never answered could put the claim back in line, so it must be left, too.
        let in_doubt = self.open > 0 && self.lost.as_deref() != Some(&Ended::Closed);
        let at_once = || Leaving { next_try: Moment::ORIGIN, ..Leaving::new(None) };
        let leaving = leaving.or_else(|| in_doubt.then(at_once));
        // At max_hold, the next claim of this process should have its full time, and a hold that was only kept is
        // over. Otherwise the work of the caller that lost it may still be running.
        effects.frees_local_place = kept || self.lost.as_deref() == Some(&Ended::MaxHold);
        effects.over = leaving.is_none();
        self.phase = match leaving {
            Some(leaving) => Phase::Leaving(leaving),
            None if kept => Phase::Over(Some(Released::InTime)),
            None => Phase::Over(Some(Released::Late)),
        };
        (effects.wake, effects.wake_observers) = (true, true);
    }

    /// When to look next, if no claim of the same name is before it.
    pub(crate) fn next_look(&self, request: &Request) -> Moment {
        match &self.phase {
            Phase::Asking(_) => self.asking_next(true),
            Phase::Held(held) => {
                let next = held.next(&request.terms, self.in_flight);
                let cap = cap(request, self.since);
                next.min(cap).min(held.warn_at(cap))
            }
            Phase::Leaving(leaving) => {
                leaving.next_try.min(leaving.give_up).min(leaving.unheard_at)
            }
            Phase::Over(_) => Moment::ORIGIN,
            Phase::Detached(forget_at) => *forget_at,
        }
    }

    pub(super) fn asking_next(&self, foremost: bool) -> Moment {
        match &self.phase {
            Phase::Asking(asking) => asking.ring_at.min(self.asking_contact(foremost)),
            _ => Moment::FAR,
        }
    }

    /// When to contact the engine: to keep the place, because a push may have been lost, or because the engine
    /// said so. Any contact moves the whole line, so only the foremost needs to look for lost pushes.
    pub(super) fn asking_contact(&self, foremost: bool) -> Moment {
        match &self.phase {
            Phase::Asking(Asking { turn: None, place: Some(place), contact_at, hint, .. })
                if !self.in_flight =>
            {
                let look = if foremost { place.look_again } else { *hint };
                look.min(*contact_at)
            }
            _ => Moment::FAR,
        }
    }
}

impl Leaving {
    pub(super) fn new(good_until: Option<Moment>) -> Leaving {
        let (next_try, give_up, unheard_at) = (Moment::FAR, Moment::FAR, Moment::FAR);
        let (overdue, unheard) = (false, false);
        Leaving { tries: 0, next_try, give_up, unheard_at, good_until, overdue, unheard }
    }
}

impl Asking {
    pub(super) fn new() -> Asking {
        Asking {
            turn: None,
            place: None,
            hint: Moment::FAR,
            ring_at: Moment::FAR,
            rung: false,
            contact_at: Moment::FAR,
            since: Moment::FAR,
        }
    }

    pub(super) fn stands(&mut self, mut place: Place, now: Moment) -> Moment {
        self.contact_at = contact_after(now);
        let has_looked = place.asked_at >= self.hint;
        if has_looked {
            self.hint = Moment::FAR;
        } else {
            place.look_again = place.look_again.min(self.hint);
        }
        // A claim that was told to look and finds a new hold only knows when that ends at the latest. If the hold
        // is brief and nobody takes the next turn, this claim may not be told again.
        let is_new = |holder: &Holder| holder.held_for < NOTICES_EVERY;
        if self.place.is_none() || has_looked && place.holder.as_ref().is_some_and(is_new) {
            place.look_again = place.look_again.min(now + FIRST_LOOK);
        }
        // An engine that says "look now" and then has nothing new must not be asked in a loop.
        place.look_again = place.look_again.max(now + SOONEST_LOOK);
        let look = place.look_again.min(self.contact_at);
        self.since = self.since.min(now);
        self.place = Some(Box::new(place));
        if self.turn.as_ref().is_some_and(|turn| self.is_stale(turn)) {
            self.turn = None;
        }
        look
    }

    /// Whether the turn is older than the last answer, which said that the claim waits.
    pub(super) fn is_stale(&self, turn: &Turn) -> bool {
        let floor = self.place.as_ref().map(|place| place.floor);
        matches!((turn, floor), (Turn::Granted(grant), Some(floor)) if grant.fence <= floor)
    }
}

impl Held {
    /// A renewal was answered, and the next is due at `next`. Returns how much time was left.
    pub(super) fn renewed(&mut self, grant: &Grant, now: Moment, next: Moment) -> RenewalOutcome {
        let heard = RenewalOutcome::Renewed {
            left: now.until(self.good_until),
            first_life: self.first_life,
        };
        self.good_until = self.good_until.max(grant.good_until);
        self.renew_by = next;
        self.risk_at = grant.start_by;
        self.first_life = grant.first_life;
        (self.at_risk, self.warned) = (None, false);
        heard
    }

    /// When observers are to be told that time is running out, which it does at `cap` at the latest.
    pub(super) fn warn_at(&self, cap: Moment) -> Moment {
        let before = self.warn_before.filter(|_| !self.warned);
        before.map_or(Moment::FAR, |before| self.good_until.min(cap) - before)
    }

    pub(super) fn is_kept(&self) -> bool {
        self.leave_at != Moment::FAR
    }

    pub(super) fn renews(&self, terms: &Terms) -> bool {
        terms.renew || self.first_life || self.is_kept()
    }

    pub(super) fn next(&self, terms: &Terms, in_flight: bool) -> Moment {
        let mut next = self.good_until.min(self.leave_at);
        if self.renews(terms) {
            if !in_flight {
                next = next.min(self.renew_by);
            }
            if self.at_risk.is_none() {
                next = next.min(self.risk_at);
            }
        }
        next
    }
}

/// When a waiting claim should next contact the engine: a little earlier than necessary, so that places taken one
/// after another are renewed together from then on.
pub(super) fn contact_after(now: Moment) -> Moment {
    let together = PLACE_LIFE.as_nanos() as u64 / 15;
    let latest = (now + PLACE_LIFE / 3).as_nanos();
    Moment::from_nanos(latest / together * together)
}

pub(super) fn retry_after(tries: u32) -> Duration {
    (LEAVE_PATIENCE * 2u32.saturating_pow(tries)).min(Duration::from_millis(500))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::claim::{Fence, Ticket};

    fn at(secs: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(secs)
    }

    fn place(asked: u64) -> Place {
        let (ticket, floor) = (Ticket::new(1), Fence::new(1));
        Place { ticket, ahead: 0, floor, asked_at: at(asked), look_again: at(3600), holder: None }
    }

    #[test]
    fn places_taken_one_after_another_are_renewed_together_and_none_too_late() {
        for second in 100..200 {
            let contact = contact_after(at(second));
            assert!(at(second + 16) <= contact && contact <= at(second + 20), "{contact:?}");
        }
        assert_eq!(contact_after(at(100)), contact_after(at(103)));
    }

    /// A turn that nobody takes must not cost those behind it more than its first life.
    #[test]
    fn a_late_answer_does_not_undo_when_to_look() {
        let mut asking = Asking { hint: at(102), ..Asking::new() };
        assert_eq!(asking.stands(place(99), at(100)), at(102));
        assert_eq!(asking.stands(place(101), at(101)), at(102));
        // A request sent at that time or later has seen everything there was to see.
        assert_eq!(asking.stands(place(102), at(102)), contact_after(at(102)));
        assert_eq!(asking.stands(place(103), at(103)), contact_after(at(103)));
    }

    /// It looked in time and found a hold that had just begun. Within a second, that hold may be handed over to a
    /// claim that does not take its turn, and then only the next in line is told.
    #[test]
    fn a_claim_that_was_told_to_look_and_finds_a_new_hold_looks_again_soon() {
        let held_for = |secs| {
            let (fence, weight, held_for) = (Fence::new(1), 1, Duration::from_secs(secs));
            let (remaining, details) = (Duration::from_secs(30), Arc::default());
            Some(Holder { fence, weight, held_for, remaining, details })
        };
        let mut asking = Asking::new();
        asking.stands(place(90), at(90));
        let mut told = |at_secs: u64, secs| {
            asking.hint = at(at_secs);
            asking.stands(Place { holder: held_for(secs), ..place(at_secs) }, at(at_secs))
        };
        assert_eq!(told(102, 0), at(102) + FIRST_LOOK);
        // When a longer hold ends, all are told.
        assert_eq!(told(103, 1), contact_after(at(103)));
        // This does not go on for ever.
        let answer = Place { holder: held_for(0), ..place(104) };
        assert_eq!(asking.stands(answer, at(104)), contact_after(at(104)));
    }
}
