//! The end of a claim by its owner, from sending the leave to its answer.

use std::time::Duration;

use super::phase::{Leaving, Phase};
use super::{ClaimState, Effects, Release, cap};
use crate::model::claim::{Ended, Fence, Leave, Left, PLACE_LIFE, Released, Settle};
use crate::model::moment::Moment;
use crate::model::request::Request;

/// How long a queued leave may stay unanswered before the watchdog sends it again.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_millis(10);
/// How long a caller waits for the answer to a leave, and how long if the engine is known to be down.
pub(super) const LONGEST_LEAVE: Duration = Duration::from_secs(1);
const LONGEST_LEAVE_WHILE_DOWN: Duration = Duration::from_millis(200);

impl ClaimState {
    /// Its owner starts to leave, no matter what the claim was doing. The effects say whether to send a
    /// leave now.
    ///
    /// `now` matters only for a hold with `hold_for`.
    pub(crate) fn leave(&mut self, request: &Request, now: Moment) -> Effects {
        let mut effects = Effects::none();
        let since = self.since;
        let leaving = match &mut self.phase {
            // The engine does not know it.
            Phase::Asking(_) if self.unsent => {
                self.phase = Phase::Over(None);
                return effects;
            }
            Phase::Asking(_) => Leaving::new(None),
            Phase::Held(held)
                if now < since + request.terms.hold_for
                    && now < held.good_until.min(cap(request, since)) =>
            {
                held.leave_at = since + request.terms.hold_for;
                return effects;
            }
            Phase::Held(held) => Leaving::new(Some(held.good_until)),
            // It was lost, and a leave is due later, just to be sure: its owner is done, so send it now.
            Phase::Leaving(leaving) if leaving.tries == 0 => Leaving::new(leaving.good_until),
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => {
                effects.released = self.lost_before();
                return effects;
            }
        };
        self.phase = Phase::Leaving(Leaving { tries: 1, ..leaving });
        effects.released = self.lost_before();
        effects.leave = true;
        effects
    }

    /// The release of a lost hold is late, and its owner is told so. After a close, the owner knows.
    fn lost_before(&self) -> Option<Release> {
        let lost = self.lost.as_ref().filter(|ended| ***ended != Ended::Closed);
        lost.map(|ended| Release::Late(Some(ended.clone())))
    }

    /// The leave is queued and not answered yet: the watchdog will send it again.
    pub(crate) fn await_answer(
        &mut self,
        request: &Request,
        now: Moment,
        is_down: bool,
    ) -> Effects {
        self.left_at = self.left_at.min(now);
        let Phase::Leaving(leaving) = &mut self.phase else { return Effects::none() };
        leaving.next_try = leaving.next_try.min(on_the_beat(now + LEAVE_PATIENCE));
        let ends = leaving.good_until.map_or(now + PLACE_LIFE, |good| good.max(now));
        leaving.give_up = leaving.give_up.min(ends + request.claim.ttl);
        let longest = if is_down { LONGEST_LEAVE_WHILE_DOWN } else { LONGEST_LEAVE };
        leaving.unheard_at = leaving.unheard_at.min(now + longest);
        Effects::look_at(leaving.next_try)
    }

    /// Whether a hold was released and is only kept for `hold_for`.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(&self.phase, Phase::Held(held) if held.is_kept())
    }

    /// The engine's answer to the leave.
    pub(crate) fn left(&mut self, left: Left, now: Moment) -> Effects {
        let mut effects = Effects::none();
        let Phase::Leaving(leaving) = &self.phase else { return effects };
        let mut guessed = false;
        let released = leaving.good_until.map(|good_until| match left {
            _ if self.lost.is_some() => Released::Late,
            Left::Released => Released::InTime,
            // The first leave freed it, and its answer was lost.
            Left::Gone(Ended::Expired) if leaving.tries > 1 && now < good_until => {
                guessed = true;
                Released::InTime
            }
            Left::Quit | Left::Gone(_) => Released::Late,
        });
        self.guessed = guessed;
        self.phase = Phase::Over(released);
        (effects.wake_observers, effects.ends_hold, effects.over) = (true, true, true);
        // A lost hold has been reported as late already.
        effects.released =
            released.filter(|_| self.lost.is_none()).map(|released| match released {
                Released::InTime => Release::InTime,
                Released::Late | Released::Unknown => Release::Late(match left {
                    Left::Gone(ended) => Some(Box::new(ended)),
                    Left::Released | Left::Quit => None,
                }),
            });
        effects
    }

    /// The leave was not answered: the watchdog sends it again.
    pub(crate) fn not_left(&mut self, now: Moment) -> Effects {
        if let Phase::Leaving(leaving) = &mut self.phase {
            leaving.next_try = leaving.next_try.min(now + LEAVE_PATIENCE);
        }
        Effects::look_at(Moment::ORIGIN)
    }

    /// How the hold was left, once the leave was answered or the claim has ended without an answer. Unless
    /// `to_the_end`, also once callers no longer wait for the answer.
    pub(crate) fn released(&self, to_the_end: bool) -> Option<Released> {
        match &self.phase {
            Phase::Over(released) => Some(released.unwrap_or(Released::Late)),
            _ if self.lost.is_some() => Some(Released::Late),
            Phase::Leaving(Leaving { overdue: true, .. }) => Some(Released::Late),
            Phase::Leaving(Leaving { unheard: true, .. }) if !to_the_end => Some(Released::Unknown),
            Phase::Held(held) if held.is_kept() => Some(Released::InTime),
            _ => None,
        }
    }

    /// Whether it was only inferred that it was left in time, because no leave was answered. The engine may just as
    /// well have forgotten it.
    pub(crate) fn is_guessed(&self) -> bool {
        self.guessed
    }

    /// Whether its leave was sent and not answered.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&self.phase, Phase::Leaving(leaving) if leaving.tries > 0)
    }

    /// The leave to send. A duplicate has no effect; only an unanswered claim can arrive after it.
    pub(crate) fn leave_of(&self, request: &Request) -> Leave {
        let (in_doubt, settle, claim) =
            (self.open > 0, self.settle.as_deref().cloned(), &request.claim);
        let held = Some(self.fence).filter(|fence| *fence != Fence::default());
        let unbegun = claim.once.is_some() && held.is_none();
        Leave { in_doubt, held, settle, unbegun, ..Leave::new(claim.name.clone(), claim.id) }
    }

    /// Adds to its leave how a once ended.
    pub(crate) fn settle(&mut self, settle: Settle) {
        self.settle = Some(Box::new(settle));
    }
}

/// Many leaves are under way at a time, and nearly all are answered, so the watchdog looks at them together instead
/// of at each at its own time.
fn on_the_beat(at: Moment) -> Moment {
    const BEAT: u64 = LEAVE_PATIENCE.as_nanos() as u64;
    Moment::from_nanos(at.as_nanos().div_ceil(BEAT).saturating_mul(BEAT))
}
