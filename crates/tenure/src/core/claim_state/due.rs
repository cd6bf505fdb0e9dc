//! What the watchdog finds when it looks at a stake, and what it brings back.

use std::task::Context;
use std::time::Duration;

use super::phase::{Leaving, Phase, State, retry_after};
use super::{Heard, LONGEST_LEAVE, Released, Stake, Todo};
use crate::model::claim::{Claim, Ended, FIRST_LIFE, Fence, Renewal, Renewed, Turn};
use crate::model::moment::Moment;

/// How much longer a step of the engine's clock may have been than it was found to be.
const STEP_ERROR: Duration = Duration::from_millis(50);

impl Stake {
    /// What time has made due, and when to look next. `foremost`: no other waiting claim of this
    /// process stands before it in this line.
    pub(crate) fn look(&self, now: Moment, foremost: bool, todo: &mut Todo) -> Moment {
        let mut state = self.state();
        match &state.phase {
            Phase::Asking(_) => self.look_asking(&mut state, now, foremost, todo),
            Phase::Held(_) => self.look_held(&mut state, now, todo),
            Phase::Leaving(_) => self.look_leaving(&mut state, now, todo),
            Phase::Over(_) => {
                todo.over = true;
                Moment::FAR
            }
            Phase::Detached(forget_at) => {
                todo.over = now >= *forget_at;
                *forget_at
            }
        }
    }

    fn look_asking(
        &self,
        state: &mut State,
        now: Moment,
        foremost: bool,
        todo: &mut Todo,
    ) -> Moment {
        let Phase::Asking(asking) = &mut state.phase else { return Moment::FAR };
        if now >= asking.ring_at {
            asking.ring_at = Moment::FAR;
            asking.rung = true;
            todo.wake = state.waker.take();
        }
        if now >= state.asking_contact(foremost) {
            state.in_flight = true;
            // Whoever waits comes before whoever holds.
            todo.renew = Some(now);
        }
        state.asking_next(foremost)
    }

    fn look_held(&self, state: &mut State, now: Moment, todo: &mut Todo) -> Moment {
        let cap = self.cap(state.since);
        let Phase::Held(held) = &mut state.phase else { return Moment::FAR };
        if now >= held.good_until.min(cap) {
            let ended = if now >= cap { Ended::MaxHold } else { Ended::Expired };
            // At max_hold it is given up now; an expired hold ends on the engine by itself, and a
            // leave follows later only to be sure.
            let next_try = if now >= cap { now } else { now + self.claim.ttl };
            let give_up = next_try.max(held.good_until) + self.claim.ttl;
            let leaving = Stake::leaving(Some(held.good_until));
            state.lose(ended, Some(Leaving { next_try, give_up, ..leaving }), todo);
            return next_try;
        }
        if now >= held.leave_at {
            let give_up = held.good_until + self.claim.ttl;
            let leaving = Stake::leaving(Some(held.good_until));
            let unheard_at = now + LONGEST_LEAVE;
            let leaving = Leaving { next_try: now, give_up, unheard_at, ..leaving };
            state.phase = Phase::Leaving(leaving);
            todo.frees = state.companion.take();
            state.left_at = now;
            return now;
        }
        if now >= held.warn_at(cap) {
            held.warned = true;
            todo.call(&mut state.observers);
        }
        let renews = held.renews(&self.terms);
        if renews && held.at_risk.is_none() && now >= held.risk_at {
            held.at_risk = Some("no renewal was answered for half of its time".into());
            todo.at_risk = held.at_risk.clone();
            todo.call(&mut state.observers);
        }
        if renews && now >= held.renew_by && !state.in_flight {
            state.in_flight = true;
            todo.renew = Some(held.good_until);
        }
        held.next(&self.terms, state.in_flight).min(cap).min(held.warn_at(cap))
    }

    fn look_leaving(&self, state: &mut State, now: Moment, todo: &mut Todo) -> Moment {
        let Phase::Leaving(leaving) = &mut state.phase else { return Moment::FAR };
        if now >= leaving.give_up {
            let late = leaving.good_until.map(|_| Released::Late);
            state.phase = Phase::Over(late);
            todo.unanswered = late.is_some() && state.lost.is_none();
            todo.holding = state.holding.take();
            todo.call(&mut state.observers);
            todo.over = true;
            return Moment::FAR;
        }
        let runs_out = leaving.good_until.unwrap_or(Moment::FAR);
        if now >= runs_out && !leaving.overdue {
            leaving.overdue = true;
            todo.call(&mut state.observers);
        }
        let Phase::Leaving(leaving) = &mut state.phase else { return Moment::FAR };
        if now >= leaving.unheard_at {
            (leaving.unheard_at, leaving.unheard) = (Moment::FAR, true);
            let was_held = leaving.good_until.is_some() && state.lost.is_none();
            // Whoever waits for it says so.
            todo.unheard = was_held && state.observers.is_empty();
            todo.call(&mut state.observers);
        }
        let Phase::Leaving(leaving) = &mut state.phase else { return Moment::FAR };
        if now >= leaving.next_try {
            leaving.tries += 1;
            leaving.next_try = now + retry_after(leaving.tries);
            todo.leave = Some(self.leave_of(state));
        }
        let Phase::Leaving(leaving) = &state.phase else { return Moment::FAR };
        let overdue_at = if leaving.overdue { Moment::FAR } else { runs_out };
        leaving.next_try.min(leaving.give_up).min(leaving.unheard_at).min(overdue_at)
    }

    /// What to send for the renewal that a look asked for; nothing if the claim has ended since.
    pub(crate) fn renewal(&self, seen: Fence) -> Option<Renewal> {
        let mut state = self.state();
        match &state.phase {
            Phase::Asking(_) => {
                state.open += 1;
                Some(Renewal::Place(state.again(&self.claim, seen)))
            }
            Phase::Held(_) => {
                let Claim { name, id, ttl, .. } = &self.claim;
                let fence = state.fence;
                Some(Renewal::Hold { name: name.clone(), id: *id, fence, ttl: *ttl })
            }
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => {
                state.in_flight = false;
                None
            }
        }
    }

    /// How long to wait for the answer to a renewal: short enough for another try in time.
    pub(crate) fn patience(&self, now: Moment) -> Duration {
        match &self.state().phase {
            Phase::Held(held) => now.until(held.good_until) / 3,
            _ => self.claim.ttl.min(FIRST_LIFE) / 4,
        }
    }

    /// When to look next at one that nobody of its name stands before.
    pub(crate) fn next_look(&self) -> Moment {
        self.state().next(self)
    }

    pub(crate) fn not_in_flight(&self) {
        self.state().in_flight = false;
    }

    /// The answer to a renewal of the watchdog's, or that there was none.
    pub(crate) fn renewed(&self, asked: &Renewal, answer: Renewed, now: Moment, todo: &mut Todo) {
        let mut state = self.state();
        state.in_flight = false;
        if matches!(asked, Renewal::Place(_)) {
            if !matches!(&answer, Renewed::Unknown(error) if error.may_have_happened()) {
                state.open -= 1;
            }
            // The turn came by push meanwhile, or it has left: the answer is about the past.
            if !matches!(state.phase, Phase::Asking(_)) {
                return;
            }
        }
        drop(state);
        self.extended(answer, now, todo);
    }

    /// How soon a renewal is tried again, also after an answer, however little that says remains: often
    /// enough for several tries within a third of the ttl.
    fn retry(&self) -> Duration {
        (self.claim.ttl / 30).min(Duration::from_millis(500))
    }

    /// The answer to a renewal that the owner asked for. Returns when to look next.
    pub(crate) fn extended(&self, answer: Renewed, now: Moment, todo: &mut Todo) -> Moment {
        let soonest = now + self.retry();
        let mut state = self.state();
        let fence = state.fence;
        match (&mut state.phase, answer) {
            (Phase::Held(held), Renewed::Held(grant)) if grant.fence == fence => {
                todo.heard = Some(held.renewed(&grant, now, self.renew_at(&grant).max(soonest)));
                if held.warn_before.is_some() {
                    todo.call(&mut state.observers);
                }
            }
            (Phase::Held(held), Renewed::Unknown(error)) => {
                todo.heard = Some(Heard::Unanswered);
                held.renew_by = soonest;
                if held.at_risk.is_none() {
                    held.at_risk = Some(error.to_string().into());
                    todo.at_risk = held.at_risk.clone();
                    todo.call(&mut state.observers);
                }
            }
            (Phase::Held(held), Renewed::Gone(ended)) => {
                let ended = why_gone(ended, now, held.good_until, state.attached);
                todo.heard = Some(Heard::Gone);
                state.lose(ended, None, todo);
            }
            (Phase::Asking(asking), Renewed::Held(grant)) => {
                let turn = Turn::Granted(grant);
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    todo.wake = state.waker.take();
                }
            }
            (Phase::Asking(asking), Renewed::Waiting(place)) => {
                asking.stands(place, now);
            }
            (Phase::Asking(asking), Renewed::Gone(ended)) => {
                asking.turn = Some(Turn::Ended(ended));
                todo.wake = state.waker.take();
            }
            (Phase::Asking(asking), Renewed::Unknown(_)) => {
                asking.contact_at = now + Duration::from_millis(500);
                asking.hint = asking.hint.max(asking.contact_at);
                if let Some(place) = &mut asking.place {
                    place.look_again = place.look_again.max(asking.contact_at);
                }
            }
            // Not about this hold, so it is no answer.
            (Phase::Held(held), Renewed::Held(_) | Renewed::Waiting(_)) => {
                held.renew_by = soonest;
            }
            (Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_), _) => {}
        }
        state.next(self)
    }

    /// Wakes `cx` at the next sign of risk or loss, in place of what the watcher said before.
    pub(crate) fn observe(&self, cx: &Context<'_>, watcher: u64) {
        let before = self.state().observe(cx, watcher);
        drop(before);
    }

    /// The watcher is gone.
    pub(crate) fn unobserve(&self, watcher: u64) {
        let gone = self.state().unobserve(watcher);
        drop(gone);
    }

    /// Wakes those who watch at each renewal, and when no more than `before` is left of the hold.
    /// Returns when the watchdog should look.
    pub(crate) fn warn(&self, before: Duration) -> Moment {
        let mut state = self.state();
        if let Phase::Held(held) = &mut state.phase {
            (held.warn_before, held.warned) = (Some(before), false);
        }
        state.next(self)
    }
}

/// Why the engine does not know a hold any more that was good until then.
fn why_gone(ended: Ended, now: Moment, good_until: Moment, attached: bool) -> Ended {
    let unexplained = match ended {
        // Too short a step to have ended it.
        Ended::ClockStep { by } => now + by + STEP_ERROR < good_until,
        _ => ended == Ended::Expired && now < good_until,
    };
    // By the engine's own clock it cannot have run out yet: the engine has forgotten it, or someone
    // else who knows its id has left.
    match (unexplained, attached) {
        (true, true) => Ended::Elsewhere,
        (true, false) => Ended::Forgotten,
        (false, _) => ended,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::request_builder::Draft;
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

    /// Whether it asks, and when it is to be looked at again. Another claim of its process stands before it.
    fn look(stake: &Stake, now: u64) -> (Option<Renewal>, Moment) {
        let mut todo = Todo::default();
        let next = stake.look(at(now), false, &mut todo);
        (todo.renew.and_then(|_| stake.renewal(Fence::default())), next)
    }

    /// The one before it may be of the very process that does not take its turn.
    #[test]
    fn one_that_is_told_looks_although_another_of_its_process_stands_before_it() {
        let name = Name::new(Space::Lock, "x").unwrap();
        let stake = Draft::new(name, &Options::new("me".into())).into_stake();
        stake.stands(place(100_000), at(100_000));
        assert!(look(&stake, 101_000).0.is_none(), "nobody has said anything");
        assert!(stake.deliver(Turn::LookAt(at(102_000)), &mut Todo::default()));
        let (early, next) = look(&stake, 101_999);
        assert!(early.is_none());
        assert_eq!(next, at(102_000));
        let asked = look(&stake, 102_000).0.unwrap();
        // Not in circles, where no answer comes.
        let unknown = || Renewed::Unknown(Error::new(ErrorKind::Unavailable, "no answer"));
        stake.renewed(&asked, unknown(), at(102_001), &mut Todo::default());
        assert!(look(&stake, 102_400).0.is_none());
        let asked = look(&stake, 102_501).0.unwrap();
        // And no more, where one did.
        stake.renewed(&asked, Renewed::Waiting(place(102_501)), at(102_502), &mut Todo::default());
        let (none, next) = look(&stake, 103_600);
        assert!(none.is_none());
        assert_eq!(next, at(122_502));
    }

    /// Whoever has just come was not told when the turn of one before it runs out.
    #[test]
    fn one_that_has_just_come_looks_again_soon_and_then_when_it_is_said_to() {
        let name = Name::new(Space::Lock, "x").unwrap();
        let stake = Draft::new(name, &Options::new("me".into())).into_stake();
        assert_eq!(stake.stands(place(10_000), at(10_000)), at(12_500));
        assert_eq!(stake.stands(place(12_500), at(12_500)), at(32_500));
    }
}
