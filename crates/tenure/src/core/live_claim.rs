//! A claim of this process that is not over: its state, and what hangs on it.
//!
//! The waiting loop, the guard, the watchdog and the engine's pushes all meet here, under one short mutex.
//! What the [state](crate::core::claim_state) says is to be done comes out as [`Work`], for when the mutex is
//! free: no waker is woken, no listener called and nothing foreign dropped under it.

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
    /// The waiting loop.
    waker: Option<Waker>,
    /// Whoever observes risk, loss or release, by a number of their own.
    observers: Vec<(u64, Waker)>,
    /// What it has in this process's own line.
    local_place: Option<Box<LocalPlace>>,
    /// What lasts as long as the hold, where somebody wants to know.
    holding: Option<Arc<Holding>>,
}

/// What is to be done about a claim, with all that it takes, now that its mutex is free.
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

    /// Tells the state what happened. Returns what is to be done, which is
    /// [carried out](crate::core::claim_table::ClaimTable::carry_out) by whoever has the table.
    pub(crate) fn tell(&self, told: impl FnOnce(&mut ClaimState, &Request) -> Effects) -> Work {
        self.tell_for(|state, request| ((), told(state, request))).1
    }

    /// The same where the state also has an answer.
    pub(crate) fn tell_for<T>(
        &self,
        told: impl FnOnce(&mut ClaimState, &Request) -> (T, Effects),
    ) -> (T, Work) {
        let mut shared = self.shared();
        let (answer, effects) = told(&mut shared.state, &self.request);
        (answer, shared.work(effects))
    }

    /// Notes what has no effects, or looks at the state.
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

    /// The grant is taken: the claim holds from now on, and `holding` lasts as long as it does.
    pub(crate) fn start(&self, grant: &Grant, now: Moment, holding: Option<Arc<Holding>>) -> Work {
        let mut shared = self.shared();
        let effects = shared.state.start(&self.request, grant, now);
        shared.holding = holding;
        let waker = shared.waker.take();
        let work = shared.work(effects);
        // Dropped when the mutex is free: it may be the last of a task that holds something itself.
        drop(shared);
        drop(waker);
        work
    }

    /// Its owner leaves. Returns the leave to send, if there is one.
    pub(crate) fn leave(&self, now: Moment) -> (Option<Leave>, Work) {
        let mut shared = self.shared();
        let mut effects = shared.state.leave(&self.request, now);
        let sends = std::mem::take(&mut effects.leave);
        (sends.then(|| shared.state.leave_of(&self.request)), shared.work(effects))
    }

    /// Hands over a hold without leaving it; see [`ClaimState::detach`]. Nobody observes it any more.
    pub(crate) fn detach(&self, now: Moment) -> Result<(Moment, bool), Ended> {
        let mut shared = self.shared();
        let detached = shared.state.detach(&self.request, now)?;
        let (waker, observers) = (shared.waker.take(), std::mem::take(&mut shared.observers));
        let local_place = shared.local_place.take();
        drop(shared);
        drop((waker, observers, local_place));
        Ok(detached)
    }

    /// What lasted as long as the hold that was handed over.
    pub(crate) fn take_holding(&self) -> Option<Arc<Holding>> {
        self.shared().holding.take()
    }

    /// It has its turn in this process's own line, and keeps it as long as it lasts.
    pub(crate) fn keep_local_place(&self, place: Box<LocalPlace>) {
        let before = self.shared().local_place.replace(place);
        drop(before);
    }

    /// What it has in this process's own line, to be passed on or left.
    pub(crate) fn take_local_place(&self) -> Option<Box<LocalPlace>> {
        self.shared().local_place.take()
    }

    /// Waits until the leave was answered, or the claim has ended without; unless `to_the_end`, no longer
    /// than one waits for an answer.
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

    /// Wakes `cx` at the next sign of risk or loss, in place of what the observer said before.
    pub(crate) fn observe(&self, cx: &Context<'_>, observer: &ObserverId) {
        let before = self.shared().observe(cx, observer);
        drop(before);
    }

    /// The observer is gone.
    pub(crate) fn unobserve(&self, observer: &ObserverId) {
        let gone = self.shared().unobserve(observer);
        drop(gone);
    }

    /// The end that is known, or that the clock says.
    pub(crate) fn ended(&self, now: Moment) -> Option<Ended> {
        self.with(|state, request| state.ended(request, now))
    }

    /// Its ticket, while it waits and has heard nothing.
    pub(crate) fn ticket(&self) -> Option<Ticket> {
        self.with(|state, _| state.ticket())
    }

    /// When to look next at one that nobody of its name stands before.
    pub(crate) fn next_look(&self) -> Moment {
        self.with(|state, request| state.next_look(request))
    }

    /// Whether this process has handed it over, and only knows its id.
    pub(crate) fn is_detached(&self) -> bool {
        self.with(|state, _| state.is_detached())
    }
}

impl Shared {
    /// Takes along what the effects need.
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

    /// Returns what the observer said before, to be dropped when the mutex is free.
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

/// What reports need to know of it.
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

    /// The span in it is foreign, and not to be touched under the mutex.
    fn holding(&self) -> Option<Arc<Holding>> {
        self.shared().holding.clone()
    }
}
