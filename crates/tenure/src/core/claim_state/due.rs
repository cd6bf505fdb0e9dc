//! What is due when the watchdog looks at a claim, and the answers to what it sent.

use std::time::Duration;

use super::leaving::LONGEST_LEAVE;
use super::phase::{Leaving, Phase, retry_after};
use super::{ClaimState, Effects, Release, Unheard, cap, renew_at};
use crate::model::claim::{
    Claim, Ended, FIRST_LIFE, Fence, Released, Renewal, RenewalOutcome, Renewed, Risk, Turn,
};
use crate::model::moment::Moment;
use crate::model::request::Request;

/// How much longer a step of the engine's clock may have been than was measured.
const STEP_ERROR: Duration = Duration::from_millis(50);

impl ClaimState {
    /// Does what is due now, and says when to look next. `foremost`: no other waiting claim of this process is
    /// ahead of it in this line.
    pub(crate) fn look(
        &mut self,
        request: &Request,
        now: Moment,
        foremost: bool,
    ) -> (Moment, Effects) {
        let mut effects = Effects::none();
        let next = match &self.phase {
            Phase::Asking(_) => self.look_asking(now, foremost, &mut effects),
            Phase::Held(_) => self.look_held(request, now, &mut effects),
            Phase::Leaving(_) => self.look_leaving(now, &mut effects),
            Phase::Over(_) => {
                effects.over = true;
                Moment::FAR
            }
            Phase::Detached(forget_at) => {
                effects.over = now >= *forget_at;
                *forget_at
            }
        };
        (next, effects)
    }

    fn look_asking(&mut self, now: Moment, foremost: bool, effects: &mut Effects) -> Moment {
        let Phase::Asking(asking) = &mut self.phase else { return Moment::FAR };
        if now >= asking.ring_at {
            asking.ring_at = Moment::FAR;
            asking.rung = true;
            effects.wake = true;
        }
        if now >= self.asking_contact(foremost) {
            self.in_flight = true;
            // Waiting claims are renewed before holds.
            effects.renew = now;
        }
        self.asking_next(foremost)
    }

    fn look_held(&mut self, request: &Request, now: Moment, effects: &mut Effects) -> Moment {
        let cap = cap(request, self.since);
        let Phase::Held(held) = &mut self.phase else { return Moment::FAR };
        if now >= held.good_until.min(cap) {
            let ended = if now >= cap { Ended::MaxHold } else { Ended::Expired };
            // At max_hold the claim is left now. An expired hold ends on the engine anyway, so its leave is sent
            // later, just to be sure.
            let next_try = if now >= cap { now } else { now + request.claim.ttl };
            let give_up = next_try.max(held.good_until) + request.claim.ttl;
            let leaving = Leaving::new(Some(held.good_until));
            self.lose(ended, Some(Leaving { next_try, give_up, ..leaving }), effects);
            return next_try;
        }
        if now >= held.leave_at {
            let give_up = held.good_until + request.claim.ttl;
            let leaving = Leaving::new(Some(held.good_until));
            let unheard_at = now + LONGEST_LEAVE;
            let leaving = Leaving { next_try: now, give_up, unheard_at, ..leaving };
            self.phase = Phase::Leaving(leaving);
            effects.frees_local_place = true;
            self.left_at = now;
            return now;
        }
        if now >= held.warn_at(cap) {
            held.warned = true;
            effects.wake_observers = true;
        }
        let renews = held.renews(&request.terms);
        if renews && held.at_risk.is_none() && now >= held.risk_at {
            held.at_risk = Some(Risk::Unanswered.into());
            effects.at_risk = held.at_risk.clone();
            effects.wake_observers = true;
        }
        if renews && now >= held.renew_by && !self.in_flight {
            self.in_flight = true;
            effects.renew = held.good_until;
        }
        held.next(&request.terms, self.in_flight).min(cap).min(held.warn_at(cap))
    }

    fn look_leaving(&mut self, now: Moment, effects: &mut Effects) -> Moment {
        let is_lost = self.lost.is_some();
        let Phase::Leaving(leaving) = &mut self.phase else { return Moment::FAR };
        let was_held = leaving.good_until.is_some() && !is_lost;
        if now >= leaving.give_up {
            let late = leaving.good_until.map(|_| Released::Late);
            self.phase = Phase::Over(late);
            effects.released = was_held.then_some(Release::Late(None));
            (effects.wake_observers, effects.ends_hold, effects.over) = (true, true, true);
            return Moment::FAR;
        }
        let runs_out = leaving.good_until.unwrap_or(Moment::FAR);
        if now >= runs_out && !leaving.overdue {
            leaving.overdue = true;
            effects.wake_observers = true;
        }
        if now >= leaving.unheard_at {
            (leaving.unheard_at, leaving.unheard) = (Moment::FAR, true);
            // If the hold has run out, the caller that waits for its release has been told that, and does not
            // report this.
            effects.unheard = match was_held {
                true if leaving.overdue => Unheard::Say,
                true => Unheard::ObserversSay,
                false => Unheard::No,
            };
            effects.wake_observers = true;
        }
        let sends = now >= leaving.next_try;
        if sends {
            leaving.tries += 1;
            leaving.next_try = now + retry_after(leaving.tries);
        }
        let overdue_at = if leaving.overdue { Moment::FAR } else { runs_out };
        let next = leaving.next_try.min(leaving.give_up).min(leaving.unheard_at).min(overdue_at);
        effects.leave = sends;
        next
    }

    /// The renewal to send after a look that asked for one; `None` if the claim has ended since.
    pub(crate) fn renewal(&mut self, request: &Request, seen: Fence) -> Option<Renewal> {
        match &self.phase {
            Phase::Asking(_) => {
                self.open += 1;
                Some(Renewal::Place(self.to_send(request, seen)))
            }
            Phase::Held(_) => {
                let Claim { name, id, ttl, .. } = &request.claim;
                let fence = self.fence;
                Some(Renewal::Hold { name: name.clone(), id: *id, fence, ttl: *ttl })
            }
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => {
                self.in_flight = false;
                None
            }
        }
    }

    /// How long to wait for the answer to a renewal: short enough for another try in time.
    pub(crate) fn patience(&self, request: &Request, now: Moment) -> Duration {
        match &self.phase {
            Phase::Held(held) => now.until(held.good_until) / 3,
            _ => request.claim.ttl.min(FIRST_LIFE) / 4,
        }
    }

    /// A new watchdog does not receive answers to what the previous one sent.
    pub(crate) fn not_in_flight(&mut self) {
        self.in_flight = false;
    }

    /// Makes the watchdog renew it at its next look, if there is anything to renew.
    pub(crate) fn renew_now(&mut self) -> Effects {
        match &mut self.phase {
            Phase::Held(held) => {
                held.renew_by = Moment::ORIGIN;
                Effects::look_at(Moment::ORIGIN)
            }
            _ => Effects::none(),
        }
    }

    /// The answer to a renewal that the watchdog sent, or the lack of one. The table then asks when to [look
    /// next](ClaimState::next_look).
    pub(crate) fn renewed(
        &mut self,
        request: &Request,
        asked: &Renewal,
        answer: Renewed,
        now: Moment,
    ) -> Effects {
        self.in_flight = false;
        if matches!(asked, Renewal::Place(_)) {
            if !matches!(&answer, Renewed::Unknown(error) if error.may_have_happened()) {
                self.open -= 1;
            }
            // The turn was pushed in the meantime, or the claim has left: this answer is out of date.
            if !matches!(self.phase, Phase::Asking(_)) {
                return Effects::none();
            }
        }
        self.take_in(request, answer, now)
    }

    /// The answer to a renewal that the owner asked for.
    pub(crate) fn extended(&mut self, request: &Request, answer: Renewed, now: Moment) -> Effects {
        let effects = self.take_in(request, answer, now);
        Effects { look_at: self.next_look(request), ..effects }
    }

    fn take_in(&mut self, request: &Request, answer: Renewed, now: Moment) -> Effects {
        let mut effects = Effects::none();
        // The earliest time for the next renewal, even after an answer and no matter how little time is left: soon
        // enough for several tries within a third of the ttl.
        let soonest = now + (request.claim.ttl / 30).min(Duration::from_millis(500));
        let (fence, attached) = (self.fence, self.attached);
        match (&mut self.phase, answer) {
            (Phase::Held(held), Renewed::Held(grant)) if grant.fence == fence => {
                let next = renew_at(request, &grant).max(soonest);
                effects.renewal = Some(held.renewed(&grant, now, next));
                effects.wake_observers = held.warn_before.is_some();
            }
            (Phase::Held(held), Renewed::Unknown(error)) => {
                effects.renewal = Some(RenewalOutcome::Unanswered);
                held.renew_by = soonest;
                if held.at_risk.is_none() {
                    held.at_risk = Some(Risk::Failed(error).into());
                    effects.at_risk = held.at_risk.clone();
                    effects.wake_observers = true;
                }
            }
            (Phase::Held(held), Renewed::Gone(ended)) => {
                let ended = why_gone(ended, now, held.good_until, attached);
                effects.renewal = Some(RenewalOutcome::Gone);
                self.lose(ended, None, &mut effects);
            }
            (Phase::Asking(asking), Renewed::Held(grant)) => {
                let turn = Turn::Granted(grant);
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    effects.wake = true;
                }
            }
            (Phase::Asking(asking), Renewed::Waiting(place)) => {
                asking.stands(place, now);
            }
            (Phase::Asking(asking), Renewed::Gone(ended)) => {
                asking.turn = Some(Turn::Ended(ended));
                effects.wake = true;
            }
            (Phase::Asking(asking), Renewed::Unknown(_)) => {
                asking.contact_at = now + Duration::from_millis(500);
                asking.hint = asking.hint.max(asking.contact_at);
                if let Some(place) = &mut asking.place {
                    place.look_again = place.look_again.max(asking.contact_at);
                }
            }
            // It is not about this hold, so it does not count as an answer.
            (Phase::Held(held), Renewed::Held(_) | Renewed::Waiting(_)) => {
                held.renew_by = soonest;
            }
            (Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_), _) => {}
        }
        effects
    }

    /// Wakes observers at each renewal, and when no more than `before` is left of the hold.
    pub(crate) fn warn(&mut self, request: &Request, before: Duration) -> Effects {
        if let Phase::Held(held) = &mut self.phase {
            (held.warn_before, held.warned) = (Some(before), false);
        }
        Effects::look_at(self.next_look(request))
    }
}

/// Why the engine no longer has a hold that was good until `good_until`.
fn why_gone(ended: Ended, now: Moment, good_until: Moment, attached: bool) -> Ended {
    let unexplained = match ended {
        // The step was too short to have ended it.
        Ended::ClockStep { by } => now + by + STEP_ERROR < good_until,
        _ => ended == Ended::Expired && now < good_until,
    };
    // By the engine's own clock it cannot have run out yet: the engine has forgotten it, or someone else who
    // knows its id has left.
    match (unexplained, attached) {
        (true, true) => Ended::Elsewhere,
        (true, false) => Ended::Forgotten,
        (false, _) => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::claim_state::phase::contact_after;
    use crate::model::claim::{Place, Ticket};
    use crate::model::error::{Error, ErrorKind};
    use crate::model::name::{Name, Space};
    use crate::model::options::Options;

    fn at(millis: u64) -> Moment {
        Moment::ORIGIN + Duration::from_millis(millis)
    }

    fn place(asked: u64) -> Place {
        let (ticket, floor) = (Ticket::new(2), Fence::new(1));
        let asked_at = at(asked);
        Place { ticket, ahead: 1, floor, asked_at, look_again: at(90_000), holder: None }
    }

    fn request() -> Request {
        Request::new(Name::new(Space::Lock, "x").unwrap(), &Options::new("me".into()))
    }

    /// Whether it asks, and when it is looked at again. Another claim of its process is ahead of it in line.
    fn look(state: &mut ClaimState, now: u64) -> (Option<Renewal>, Moment) {
        let request = request();
        let (next, effects) = state.look(&request, at(now), false);
        let renews = effects.renew != Moment::FAR;
        (renews.then(|| state.renewal(&request, Fence::default())).flatten(), next)
    }

    /// The claim before it may belong to the very process that does not take its turn.
    #[test]
    fn a_claim_that_is_told_to_look_does_so_even_behind_another_of_its_process() {
        let (mut state, request) = (ClaimState::new(), request());
        state.stands(place(100_000), at(100_000));
        assert!(look(&mut state, 101_000).0.is_none(), "nobody has said anything");
        assert!(state.deliver(Turn::LookAt(at(102_000))).0);
        let (early, next) = look(&mut state, 101_999);
        assert!(early.is_none());
        assert_eq!(next, at(102_000));
        let asked = look(&mut state, 102_000).0.unwrap();
        // It does not ask in a loop if no answer comes.
        let unknown = || Renewed::Unknown(Error::new(ErrorKind::Unavailable, "no answer"));
        state.renewed(&request, &asked, unknown(), at(102_001));
        assert!(look(&mut state, 102_400).0.is_none());
        let asked = look(&mut state, 102_501).0.unwrap();
        // And it stops once an answer has come.
        state.renewed(&request, &asked, Renewed::Waiting(place(102_501)), at(102_502));
        let (none, next) = look(&mut state, 103_600);
        assert!(none.is_none());
        assert_eq!(next, contact_after(at(102_502)));
    }

    /// A claim that has just arrived was not told when the turn of one before it runs out.
    #[test]
    fn a_new_claim_looks_again_soon_and_then_when_it_is_told_to() {
        let mut state = ClaimState::new();
        assert_eq!(state.stands(place(10_000), at(10_000)).look_at, at(12_500));
        assert_eq!(state.stands(place(12_500), at(12_500)).look_at, contact_after(at(12_500)));
    }
}
