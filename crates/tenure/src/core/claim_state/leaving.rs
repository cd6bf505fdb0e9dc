//! The end of a claim by its owner, from the leave that is sent to its answer.

use std::task::{Context, Poll};
use std::time::Duration;

use super::phase::{Leaving, Phase, State};
use super::{Stake, Todo};
use crate::model::claim::{Ended, Fence, Leave, Left, PLACE_LIFE, Settle};
use crate::model::moment::Moment;

/// How long a queued leave may stay unanswered before the watchdog sends it again.
pub(super) const LEAVE_PATIENCE: Duration = Duration::from_millis(10);
/// How long whoever leaves waits for the answer, and how long if the engine is known to be out of reach.
pub(super) const LONGEST_LEAVE: Duration = Duration::from_secs(1);
const LONGEST_LEAVE_WHILE_DOWN: Duration = Duration::from_millis(200);

/// How a hold was left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Released {
    /// It was held until the release: nobody else was inside.
    InTime,
    /// It had ended before, so that the work was not exclusive to its end. Raise the ttl, or find
    /// out why renewals failed.
    Late,
    /// The engine did not answer within a second, so that nobody knows yet. The release goes on being sent
    /// in the background; the name is free when it arrives, or when the ttl is over.
    Unknown,
}

impl Stake {
    /// Its owner begins to leave, whatever it was doing. Returns what to send now, and how the hold
    /// had ended before.
    ///
    /// `now` matters only to a hold with `hold_for`.
    pub(crate) fn leave(&self, now: Moment) -> (Option<Leave>, Option<Ended>) {
        let mut state = self.state();
        let (unsent, since, lost) = (state.unsent, state.since, state.lost.clone());
        let leaving = match &mut state.phase {
            // Nobody knows of it.
            Phase::Asking(_) if unsent => {
                state.phase = Phase::Over(None);
                return (None, None);
            }
            Phase::Asking(_) => Stake::leaving(None),
            Phase::Held(held)
                if now < since + self.terms.hold_for
                    && now < held.good_until.min(self.cap(since)) =>
            {
                held.leave_at = since + self.terms.hold_for;
                return (None, None);
            }
            Phase::Held(held) => Stake::leaving(Some(held.good_until)),
            // Lost, with a leave waiting to be sure: its owner has come to the end, so now.
            Phase::Leaving(leaving) if leaving.tries == 0 => Stake::leaving(leaving.good_until),
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => return (None, lost),
        };
        state.phase = Phase::Leaving(Leaving { tries: 1, ..leaving });
        (Some(self.leave_of(&state)), lost)
    }

    /// The leave is queued and not answered yet. Returns when the watchdog should send it again.
    pub(crate) fn await_answer(&self, now: Moment, is_down: bool) -> Moment {
        let mut state = self.state();
        state.left_at = state.left_at.min(now);
        let Phase::Leaving(leaving) = &mut state.phase else { return Moment::FAR };
        leaving.next_try = leaving.next_try.min(on_the_beat(now + LEAVE_PATIENCE));
        let ends = leaving.good_until.map_or(now + PLACE_LIFE, |good| good.max(now));
        leaving.give_up = leaving.give_up.min(ends + self.claim.ttl);
        let longest = if is_down { LONGEST_LEAVE_WHILE_DOWN } else { LONGEST_LEAVE };
        leaving.unheard_at = leaving.unheard_at.min(now + longest);
        leaving.next_try
    }

    /// Whether a hold was released and is only kept for `hold_for`.
    pub(crate) fn is_kept(&self) -> bool {
        matches!(&self.state().phase, Phase::Held(held) if held.is_kept())
    }

    /// The engine's answer to the leave. Returns how the hold ended, if that was not known before.
    pub(crate) fn left(&self, left: Left, now: Moment, todo: &mut Todo) -> Option<Released> {
        let mut state = self.state();
        let Phase::Leaving(leaving) = &state.phase else { return None };
        let mut guessed = false;
        let released = leaving.good_until.map(|good_until| match left {
            _ if state.lost.is_some() => Released::Late,
            Left::Released => Released::InTime,
            // The first leave freed it and its answer was lost.
            Left::Gone(Ended::Expired) if leaving.tries > 1 && now < good_until => {
                guessed = true;
                Released::InTime
            }
            Left::Quit | Left::Gone(_) => Released::Late,
        });
        state.guessed = guessed;
        state.phase = Phase::Over(released);
        todo.call(&mut state.observers);
        todo.holding = state.holding.take();
        todo.over = true;
        released.filter(|_| state.lost.is_none())
    }

    /// The leave was not answered: the watchdog sends it again.
    pub(crate) fn not_left(&self, now: Moment) {
        if let Phase::Leaving(leaving) = &mut self.state().phase {
            leaving.next_try = leaving.next_try.min(now + LEAVE_PATIENCE);
        }
    }

    /// Waits until the leave was answered, or the claim has ended without; unless `to_the_end`, no longer
    /// than one waits for an answer.
    pub(crate) fn poll_released(
        &self,
        cx: &mut Context<'_>,
        watcher: u64,
        to_the_end: bool,
    ) -> Poll<Released> {
        let mut state = self.state();
        match &state.phase {
            Phase::Over(released) => Poll::Ready(released.unwrap_or(Released::Late)),
            _ if state.lost.is_some() => Poll::Ready(Released::Late),
            Phase::Leaving(Leaving { overdue: true, .. }) => Poll::Ready(Released::Late),
            Phase::Leaving(Leaving { unheard: true, .. }) if !to_the_end => {
                Poll::Ready(Released::Unknown)
            }
            Phase::Held(held) if held.is_kept() => Poll::Ready(Released::InTime),
            _ => {
                let before = state.observe(cx, watcher);
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }

    /// Whether nothing but a leave that was never answered says that it was left in time. The engine may as
    /// well have forgotten it.
    pub(crate) fn is_guessed(&self) -> bool {
        self.state().guessed
    }

    /// Whether its leave was sent and not answered.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&self.state().phase, Phase::Leaving(leaving) if leaving.tries > 0)
    }

    /// A leave that comes twice does nothing; only an unanswered claim can come too late.
    pub(super) fn leave_of(&self, state: &State) -> Leave {
        let (in_doubt, settle) = (state.open > 0, state.settle.clone());
        let unbegun = self.claim.once.is_some() && state.fence == Fence::default();
        Leave { in_doubt, settle, unbegun, ..Leave::new(self.claim.name.clone(), self.claim.id) }
    }

    /// Says with its leave what became of a once.
    pub(crate) fn settle(&self, settle: Settle) {
        self.state().settle = Some(settle);
    }

    pub(super) fn leaving(good_until: Option<Moment>) -> Leaving {
        let (next_try, give_up, unheard_at) = (Moment::FAR, Moment::FAR, Moment::FAR);
        let (overdue, unheard) = (false, false);
        Leaving { tries: 0, next_try, give_up, unheard_at, good_until, overdue, unheard }
    }
}

/// Many leaves are under way at a time, and nearly all are answered: the watchdog looks at them
/// together, not at each when its own time has come.
fn on_the_beat(at: Moment) -> Moment {
    const BEAT: u64 = LEAVE_PATIENCE.as_nanos() as u64;
    Moment::from_nanos(at.as_nanos().div_ceil(BEAT).saturating_mul(BEAT))
}
