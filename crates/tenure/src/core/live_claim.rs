//! A claim of this process that is not over: its state, and everything attached to it.
//!
//! The waiting loop, the guard, the watchdog and the engine's pushes all meet here, under one short mutex. The
//! effects of its [state](crate::core::claim_state) are returned as [`Work`], which is done after unlocking: no
//! waker is woken, no listener called and nothing foreign dropped under the mutex.

mod observer_id;
mod timer;

use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

pub(crate) use self::observer_id::ObserverId;
use self::timer::Timer;
use crate::core::claim_state::{ClaimEvent, ClaimState, Effects, Unheard};
use crate::core::local_line::LocalPlace;
use crate::model::claim::{Ended, Fence, Grant, Leave, Place, Released, Ticket};
use crate::model::moment::Moment;
use crate::model::request::Request;
use crate::observe::{Holding, Subject};

#[derive(Debug)]
pub(crate) struct LiveClaim {
    request: Request,
    shared: Mutex<Shared>,
    pub(crate) timer: Timer,
}

#[derive(Debug)]
struct Shared {
    state: ClaimState,
    /// The waker of the waiting loop.
    waker: Option<Waker>,
    /// The observers of risk, loss or release, by their ids.
    observers: Vec<(u64, Waker)>,
    /// Its place in the local line.
    local_place: Option<Box<LocalPlace>>,
    /// The span and the gauges of the hold, if there is a listener.
    holding: Option<Arc<Holding>>,
}

/// What to do about a claim after unlocking, with everything needed to do it.
#[must_use = "what is to be done must be carried out"]
pub(crate) struct Work {
    pub(crate) effects: Effects,
    pub(crate) waker: Option<Waker>,
    pub(crate) observers: Box<[Waker]>,
    pub(crate) holding: Option<Arc<Holding>>,
    pub(crate) local_place: Option<Box<LocalPlace>>,
}

impl Deref for LiveClaim {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.request
    }
}

impl LiveClaim {
    pub(crate) fn new(request: Request) -> LiveClaim {
        let (waker, observers, local_place, holding) = (None, Vec::new(), None, None);
        let shared = Shared { state: ClaimState::new(), waker, observers, local_place, holding };
        LiveClaim { request, shared: Mutex::new(shared), timer: Timer::default() }
    }

    pub(crate) fn request_mut(&mut self) -> &mut Request {
        &mut self.request
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the state what happened. Returns the work that follows, which the caller [carries
    /// out](crate::core::claim_table::ClaimTable::carry_out) with the table.
    pub(crate) fn tell(&self, told: impl FnOnce(&mut ClaimState, &Request) -> Effects) -> Work {
        let mut shared = self.shared();
        let effects = told(&mut shared.state, &self.request);
        shared.work(effects)
    }

    /// The same, if the state also returns a value.
    pub(crate) fn tell_for<T>(
        &self,
        told: impl FnOnce(&mut ClaimState, &Request) -> (T, Effects),
    ) -> (T, Work) {
        let mut shared = self.shared();
        let (answer, effects) = told(&mut shared.state, &self.request);
        (answer, shared.work(effects))
    }

    /// Changes the state without effects, or reads it.
    pub(crate) fn with<T>(&self, told: impl FnOnce(&mut ClaimState, &Request) -> T) -> T {
        told(&mut self.shared().state, &self.request)
    }

    /// Waits for a turn, or until `ring_at`, for which the caller schedules a look.
    pub(crate) fn poll_event(&self, cx: &mut Context<'_>, ring_at: Moment) -> Poll<ClaimEvent> {
        let mut shared = self.shared();
        if let Some(event) = shared.state.next_event(ring_at) {
            return Poll::Ready(event);
        }
        let before = shared.waker.replace(cx.waker().clone());
        drop(shared);
        drop(before);
        Poll::Pending
    }

    /// The grant is taken: the claim now holds, and `holding` lives as long as the hold. Returns when to look at
    /// it, and the work that follows, if there is any.
    pub(crate) fn start(
        &self,
        grant: &Grant,
        now: Moment,
        holding: Option<Arc<Holding>>,
    ) -> (Moment, Option<Work>) {
        let mut shared = self.shared();
        let effects = shared.state.start(&self.request, grant, now);
        shared.holding = holding;
        let waker = shared.waker.take();
        let (look_at, work) = (effects.look_at, shared.any_work(effects));
        // Dropped after unlocking: it may be the last reference to a task that has a hold itself.
        drop(shared);
        drop(waker);
        (look_at, work)
    }

    /// Its owner leaves. Returns the leave to send, and the work that follows, if there is any.
    pub(crate) fn leave(&self, now: Moment) -> (Option<Leave>, Option<Work>) {
        let mut shared = self.shared();
        let mut effects = shared.state.leave(&self.request, now);
        let sends = std::mem::take(&mut effects.leave);
        (sends.then(|| shared.state.leave_of(&self.request)), shared.any_work(effects))
    }

    /// Hands over a hold without leaving it; see [`ClaimState::detach`]. It has no observers any more.
    pub(crate) fn detach(&self, now: Moment) -> Result<(Moment, bool), Ended> {
        let mut shared = self.shared();
        let detached = shared.state.detach(&self.request, now)?;
        let (waker, observers) = (shared.waker.take(), std::mem::take(&mut shared.observers));
        let local_place = shared.local_place.take();
        drop(shared);
        drop((waker, observers, local_place));
        Ok(detached)
    }

    /// The span and the gauges of a hold that was handed over.
    pub(crate) fn take_holding(&self) -> Option<Arc<Holding>> {
        self.shared().holding.take()
    }

    /// It has its turn in the local line, and keeps it for as long as it lives.
    pub(crate) fn keep_local_place(&self, place: Box<LocalPlace>) {
        let before = self.shared().local_place.replace(place);
        drop(before);
    }

    /// Its place in the local line, to be passed on or left.
    pub(crate) fn take_local_place(&self) -> Option<Box<LocalPlace>> {
        self.shared().local_place.take()
    }

    /// Waits until the leave was answered, or the claim has ended without an answer. Unless `to_the_end`, no
    /// longer than callers wait for an answer.
    pub(crate) fn poll_released(
        &self,
        cx: &mut Context<'_>,
        observer: &ObserverId,
        to_the_end: bool,
    ) -> Poll<Released> {
        let mut shared = self.shared();
        if let Some(released) = shared.state.released(to_the_end) {
            return Poll::Ready(released);
        }
        let before = shared.observe(cx, observer);
        drop(shared);
        drop(before);
        Poll::Pending
    }

    /// Wakes `cx` at the next sign of risk or loss. Replaces the observer's previous waker.
    pub(crate) fn observe(&self, cx: &Context<'_>, observer: &ObserverId) {
        let before = self.shared().observe(cx, observer);
        drop(before);
    }

    /// The observer is gone.
    pub(crate) fn unobserve(&self, observer: &ObserverId) {
        let gone = self.shared().unobserve(observer);
        drop(gone);
    }

    /// The end, if it is known or the clock shows it.
    pub(crate) fn ended(&self, now: Moment) -> Option<Ended> {
        self.with(|state, request| state.ended(request, now))
    }

    /// Its ticket, while it waits and nothing was pushed to it.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.with(|state, _| state.ticket())
    }

    /// When to look next, if no claim of the same name is before it.
    pub(crate) fn next_look(&self) -> Moment {
        self.with(|state, request| state.next_look(request))
    }

    /// Whether this process has detached it, and only knows its id.
    pub(crate) fn is_detached(&self) -> bool {
        self.with(|state, _| state.is_detached())
    }
}

impl Shared {
    /// The same as [`work`](Shared::work), if there is anything to do besides looking at the claim later.
    fn any_work(&mut self, effects: Effects) -> Option<Work> {
        (!effects.is_empty()).then(|| self.work(effects))
    }

    /// Adds to the effects what carrying them out needs.
    #[inline]
    fn work(&mut self, mut effects: Effects) -> Work {
        if effects.unheard == Unheard::ObserversSay && self.observers.is_empty() {
            effects.unheard = Unheard::Say;
        }
        let observers = match effects.wake_observers && !self.observers.is_empty() {
            true => self.observers.drain(..).map(|(_, waker)| waker).collect(),
            false => Box::default(),
        };
        Work {
            observers,
            waker: if effects.wake { self.waker.take() } else { None },
            holding: if effects.ends_hold { self.holding.take() } else { None },
            local_place: if effects.frees_local_place { self.local_place.take() } else { None },
            effects,
        }
    }

    /// Returns the observer's previous waker, to be dropped after unlocking.
    fn observe(&mut self, cx: &Context<'_>, observer: &ObserverId) -> Option<Waker> {
        let waker = cx.waker().clone();
        match self.observers.iter_mut().find(|(known, _)| *known == observer.0) {
            Some((_, known)) => Some(std::mem::replace(known, waker)),
            None => {
                self.observers.push((observer.0, waker));
                None
            }
        }
    }

    fn unobserve(&mut self, observer: &ObserverId) -> Option<Waker> {
        let gone = self.observers.iter().position(|(known, _)| *known == observer.0)?;
        Some(self.observers.swap_remove(gone).1)
    }
}

/// What reports need to know about it.
impl Subject for LiveClaim {
    fn request(&self) -> &Request {
        &self.request
    }

    fn fence(&self) -> Fence {
        self.with(|state, _| state.fence())
    }

    fn deadline(&self) -> Moment {
        self.with(|state, request| state.deadline(request))
    }

    fn times(&self) -> (Moment, Option<Moment>) {
        self.with(|state, _| state.times())
    }

    fn place(&self) -> Option<Place> {
        self.with(|state, _| state.place().cloned())
    }

    #[cfg(feature = "metrics")]
    fn standing(&self) -> Option<(bool, Moment)> {
        self.with(|state, _| state.standing())
    }

    /// Returns a clone: the span in it is foreign code, which must not run under the mutex.
    fn holding(&self) -> Option<Arc<Holding>> {
        self.shared().holding.clone()
    }
}
