//! One claim as its own process sees it, from the ask to the end.
//!
//! The waiting loop, the guard, the watchdog and the engine's pushes all meet here, under one short
//! mutex. A stake does no IO and reads no clock: it is told what happened and when, and says what to
//! do next. Wakers are handed out and woken by the caller, never under the mutex.

mod companion;
mod detach;
mod phase;
mod timer;
mod todo;
mod watch;
mod watcher;

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use self::phase::{Asking, Held, Leaving, Phase, State};
use self::timer::Timer;
pub(crate) use self::todo::{Heard, Todo};
pub(crate) use self::watcher::Watcher;
use crate::ask::Ask;
use crate::claim::{
    Claim, Ended, Fence, Grant, Leave, Left, PLACE_LIFE, Place, Settle, Ticket, Turn,
};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::observe::Holding;

/// How long a queued leave may stay unanswered before the watchdog sends it again.
const LEAVE_PATIENCE: Duration = Duration::from_millis(10);
/// How long whoever leaves waits for the answer, and how long if the engine is known to be out of reach.
const LONGEST_LEAVE: Duration = Duration::from_secs(1);
const LONGEST_LEAVE_WHILE_DOWN: Duration = Duration::from_millis(200);

#[derive(Debug)]
pub(crate) struct Stake {
    ask: Ask,
    state: Mutex<State>,
    pub(crate) timer: Timer,
}

impl Deref for Stake {
    type Target = Ask;

    fn deref(&self) -> &Ask {
        &self.ask
    }
}

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

/// What the asking future wakes up for.
#[derive(Debug)]
pub(crate) enum Event {
    Turn(Turn),
    Rung,
}

impl Stake {
    pub(crate) fn new(ask: Ask) -> Stake {
        let asking = Asking {
            turn: None,
            place: None,
            hint: Moment::FAR,
            ring_at: Moment::FAR,
            rung: false,
            contact_at: Moment::FAR,
            since: Moment::FAR,
        };
        let state = State {
            phase: Phase::Asking(asking),
            waker: None,
            observers: Vec::new(),
            in_flight: false,
            open: 0,
            fence: Fence::default(),
            lost: None,
            attached: false,
            unsent: false,
            companion: None,
            since: Moment::FAR,
            left_at: Moment::FAR,
            holding: None,
            settle: None,
        };
        Stake { ask, state: Mutex::new(state), timer: Timer::default() }
    }

    pub(crate) fn ask_mut(&mut self) -> &mut Ask {
        &mut self.ask
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The asking future.

    /// Waits for a turn, or until `ring_at`, for which the caller schedules a look.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>, ring_at: Moment) -> Poll<Event> {
        let mut state = self.state();
        let Phase::Asking(asking) = &mut state.phase else {
            return Poll::Ready(Event::Turn(Turn::Ended(Ended::Closed)));
        };
        if let Some(turn) = asking.turn.take() {
            return Poll::Ready(Event::Turn(turn));
        }
        if std::mem::take(&mut asking.rung) {
            return Poll::Ready(Event::Rung);
        }
        asking.ring_at = ring_at;
        let before = state.waker.replace(cx.waker().clone());
        drop(state);
        drop(before);
        Poll::Pending
    }

    /// The engine answered that the claim waits. Returns when the watchdog should look.
    pub(crate) fn stands(&self, place: Place, now: Moment) -> Moment {
        match &mut self.state().phase {
            Phase::Asking(asking) => asking.stands(place, now),
            _ => Moment::FAR,
        }
    }

    /// The grant is taken: the claim holds from now on. Returns when the watchdog should look.
    ///
    /// The end of the grant may have been pushed before its answer was heard: then it is lost at once.
    pub(crate) fn start(
        &self,
        grant: Grant,
        now: Moment,
        holding: Option<Arc<Holding>>,
        todo: &mut Todo,
    ) -> Moment {
        let mut state = self.state();
        let ended = match &state.phase {
            Phase::Asking(Asking { turn: Some(Turn::Ended(ended)), .. }) => Some(ended.clone()),
            _ => None,
        };
        let held = Held {
            good_until: grant.good_until,
            renew_by: self.renew_at(&grant),
            first_life: grant.first_life,
            risk_at: grant.start_by,
            at_risk: None,
            leave_at: Moment::FAR,
            warn_before: None,
            warned: false,
        };
        let next = held.next(&self.terms, false);
        let waker = state.waker.take();
        (state.fence, state.since, state.holding) = (grant.fence, now, holding);
        state.phase = Phase::Held(held);
        if let Some(ended) = ended {
            state.lose(ended, None, todo);
        }
        // Dropped when the mutex is free: it may be the last of a task that holds something itself.
        drop(state);
        drop(waker);
        next
    }

    /// When to renew what was granted. By its own share a little earlier: many that were granted together
    /// must not be due together for ever.
    fn renew_at(&self, grant: &Grant) -> Moment {
        let at = match self.terms.renew_every {
            Some(every) if !grant.first_life => (grant.sent + every).min(grant.start_by),
            _ => grant.renew_by,
        };
        let share = (self.claim.id.bits() >> 48) as u32;
        at - grant.sent.until(at) / 8 * share / (1 << 16)
    }

    /// A request was sent, and its answer is not at hand.
    pub(crate) fn asked(&self) {
        self.state().open += 1;
    }

    /// The claim's last request is answered, or has failed for certain.
    pub(crate) fn answered(&self) {
        self.state().open -= 1;
    }

    /// The engine refused the claim. Returns whether it keeps nothing of it: an earlier request that
    /// was never answered may still arrive.
    pub(crate) fn refused(&self) -> bool {
        let mut state = self.state();
        let clean = state.open == 0;
        if clean {
            state.phase = Phase::Over(None);
        }
        clean
    }

    pub(crate) fn place(&self) -> Option<Place> {
        match &self.state().phase {
            Phase::Asking(asking) => asking.place.as_deref().cloned(),
            _ => None,
        }
    }

    /// The claim to send again: the same id, with the ticket it was given.
    pub(crate) fn again(&self, seen: Fence) -> Claim {
        let mut state = self.state();
        state.open += 1;
        state.unsent = false;
        state.again(&self.claim, seen)
    }

    // The engine's pushes.

    /// Takes what the engine pushed; `false` if nobody waits for it.
    pub(crate) fn deliver(&self, turn: Turn, todo: &mut Todo) -> bool {
        let mut state = self.state();
        match (&mut state.phase, turn) {
            (Phase::Asking(asking), Turn::LookAgain) if asking.place.is_some() => {
                asking.contact_at = Moment::ORIGIN;
                true
            }
            (Phase::Asking(asking), Turn::LookAt(at)) => {
                asking.hint = at;
                if let Some(place) = &mut asking.place {
                    place.look_again = at;
                }
                true
            }
            // It will not ask again: whatever comes now comes too late.
            (
                Phase::Asking(Asking {
                    turn: Some(Turn::Ended(Ended::Closed | Ended::Conflict { .. })),
                    ..
                }),
                turn,
            ) => !matches!(turn, Turn::Granted(_)),
            (Phase::Asking(asking), turn) => {
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    todo.wake = state.waker.take();
                }
                true
            }
            (Phase::Held(_), Turn::Ended(ended)) => {
                state.lose(ended, None, todo);
                true
            }
            // A turn that comes late is an old one, but its claim is alive: to say that nobody waits
            // for it would have the engine leave the hold.
            (Phase::Held(_), _) | (Phase::Detached(_), Turn::Granted(_)) => true,
            (Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_), _) => false,
        }
    }

    // The end.

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
        let released = leaving.good_until.map(|good_until| match left {
            _ if state.lost.is_some() => Released::Late,
            Left::Released => Released::InTime,
            // The first leave freed it and its answer was lost.
            Left::Gone(Ended::Expired) if leaving.tries > 1 && now < good_until => Released::InTime,
            Left::Quit | Left::Gone(_) => Released::Late,
        });
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

    /// The `Tenure` was closed: a waiting claim ends, a hold is lost. Neither is renewed any more.
    pub(crate) fn close(&self, todo: &mut Todo) {
        let mut state = self.state();
        match &mut state.phase {
            Phase::Asking(asking) => {
                asking.turn = Some(Turn::Ended(Ended::Closed));
                todo.wake = state.waker.take();
            }
            Phase::Held(_) => state.lose(Ended::Closed, None, todo),
            Phase::Leaving(_) | Phase::Over(_) | Phase::Detached(_) => {}
        }
    }

    // What the guard shows.

    /// The end that is known, or that the clock says. Looking is enough to notice it.
    pub(crate) fn ended(&self, now: Moment) -> Option<Ended> {
        self.ended_in(&self.state(), now)
    }

    fn ended_in(&self, state: &State, now: Moment) -> Option<Ended> {
        if state.lost.is_some() {
            return state.lost.clone();
        }
        match &state.phase {
            Phase::Held(held) if held.is_kept() => None,
            Phase::Held(held) if now >= self.cap(state.since) => Some(Ended::MaxHold),
            Phase::Held(held) if now >= held.good_until => Some(Ended::Expired),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        let state = self.state();
        match &state.phase {
            Phase::Held(held) => held.good_until.min(self.cap(state.since)),
            _ => Moment::ORIGIN,
        }
    }

    /// The fence it was granted with, if it ever was.
    pub(crate) fn fence(&self) -> Fence {
        self.state().fence
    }

    pub(crate) fn holds(&self, fence: Fence) -> bool {
        let state = self.state();
        matches!(&state.phase, Phase::Held(_)) && state.fence == fence
    }

    /// Has the watchdog renew it at its next look; `false` if there is nothing to renew.
    pub(crate) fn renew_now(&self) -> bool {
        match &mut self.state().phase {
            Phase::Held(held) => {
                held.renew_by = Moment::ORIGIN;
                true
            }
            _ => false,
        }
    }

    pub(crate) fn held_since(&self) -> Option<Moment> {
        let state = self.state();
        matches!(&state.phase, Phase::Held(_)).then_some(state.since)
    }

    /// When it was granted, and when its owner left if that is known. Also when it is over.
    pub(crate) fn times(&self) -> (Moment, Option<Moment>) {
        let state = self.state();
        (state.since, Some(state.left_at).filter(|left_at| *left_at != Moment::FAR))
    }

    /// Since when it holds, or since when it stands in line.
    #[cfg(feature = "metrics")]
    pub(crate) fn standing(&self) -> Option<(bool, Moment)> {
        let state = self.state();
        match &state.phase {
            Phase::Held(_) => Some((true, state.since)),
            Phase::Asking(Asking { place: Some(_), since, .. }) => Some((false, *since)),
            _ => None,
        }
    }

    /// What lasts as long as the hold, if it holds and somebody wants to know. The span in it is foreign,
    /// and not to be touched under the mutex.
    pub(crate) fn holding(&self) -> Option<Arc<Holding>> {
        self.state().holding.clone()
    }

    /// Its ticket, while it waits and has heard nothing.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.state().phase {
            Phase::Asking(Asking { turn: None, place: Some(place), .. }) => Some(place.ticket),
            _ => None,
        }
    }

    /// Whether its leave was sent and not answered.
    pub(crate) fn is_leaving(&self) -> bool {
        matches!(&self.state().phase, Phase::Leaving(leaving) if leaving.tries > 0)
    }

    pub(crate) fn at_risk(&self) -> Option<Arc<str>> {
        match &self.state().phase {
            Phase::Held(held) => held.at_risk.clone(),
            _ => None,
        }
    }

    fn cap(&self, since: Moment) -> Moment {
        self.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)
    }

    /// A leave that comes twice does nothing; only an unanswered claim can come too late.
    fn leave_of(&self, state: &State) -> Leave {
        let (in_doubt, settle) = (state.open > 0, state.settle.clone());
        let unbegun = self.claim.once.is_some() && state.fence == Fence::default();
        Leave { in_doubt, settle, unbegun, ..Leave::new(self.claim.name.clone(), self.claim.id) }
    }

    /// Says with its leave what became of a once.
    pub(crate) fn settle(&self, settle: Settle) {
        self.state().settle = Some(settle);
    }

    fn leaving(good_until: Option<Moment>) -> Leaving {
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

/// What the end of a waiting claim means to its caller.
impl From<Ended> for Error {
    fn from(ended: Ended) -> Error {
        match ended {
            Ended::Conflict { .. } => Error::new(ErrorKind::Conflict, ended.to_string()),
            Ended::Closed => Error::closed(),
            _ => Error::new(ErrorKind::Lost, ended.to_string()),
        }
    }
}
