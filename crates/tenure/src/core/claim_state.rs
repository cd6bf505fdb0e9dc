//! One claim as its own process sees it, from the ask to the end.
//!
//! The waiting loop, the guard, the watchdog and the engine's pushes all meet here, under one short
//! mutex. A stake does no IO and reads no clock: it is told what happened and when, and says what to
//! do next. Wakers are handed out and woken by the caller, never under the mutex.

mod detach;
mod due;
mod effects;
mod leaving;
mod local_place;
mod observer_id;
mod phase;
mod timer;

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

pub(crate) use self::effects::{Heard, Todo};
pub use self::leaving::Released;
use self::leaving::{LEAVE_PATIENCE, LONGEST_LEAVE};
pub(crate) use self::observer_id::Watcher;
use self::phase::{Asking, Held, Phase, State};
use self::timer::Timer;
use crate::core::request::Ask;
use crate::model::claim::{Claim, Ended, Fence, Grant, Place, Ticket, Turn};
use crate::model::moment::Moment;
use crate::observe::Holding;

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
            guessed: false,
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
        let (share, span) = ((self.claim.id.bits() >> 48) as u32, grant.sent.until(at));
        let at = (at - span / 8 * share / (1 << 16)).as_nanos();
        // And with others on a beat: to be woken for each alone costs more than to renew it.
        let beat = (span.as_nanos() as u64 / 128).max(1).next_power_of_two() / 2;
        Moment::from_nanos(at - at % beat.max(1))
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

    pub(crate) fn at_risk(&self) -> Option<Arc<str>> {
        match &self.state().phase {
            Phase::Held(held) => held.at_risk.clone(),
            _ => None,
        }
    }

    fn cap(&self, since: Moment) -> Moment {
        self.terms.max_hold.map_or(Moment::FAR, |max_hold| since + max_hold)
    }
}
