//! One claim as its own process sees it, from the ask to the end.
//!
//! The waiting loop, the guard, the watchdog and the engine's pushes all meet here, under one short
//! mutex. A stake does no IO and reads no clock: it is told what happened and when, and says what to
//! do next. Wakers are handed out and woken by the caller, never under the mutex.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::claim::{
    Claim, Ended, Fence, Grant, Leave, Left, PLACE_LIFE, Place, Renewal, Renewed, Ticket, Turn,
};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;

/// How long a queued leave may stay unanswered before the watchdog sends it again.
const LEAVE_PATIENCE: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct Stake {
    pub(crate) claim: Claim,
    pub(crate) terms: Terms,
    state: Mutex<State>,
}

/// What the options say about the time after the grant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Terms {
    pub(crate) renew: bool,
    pub(crate) max_hold: Option<Duration>,
    pub(crate) hold_for: Duration,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The future that asks.
    waker: Option<Waker>,
    /// Whoever watches for risk, loss or release.
    observers: Vec<Waker>,
    /// A renewal of the watchdog's is on its way.
    in_flight: bool,
    lost: Option<Ended>,
}

#[derive(Debug)]
enum Phase {
    Asking(Asking),
    Held(Held),
    Leaving(Leaving),
    Over(Option<Released>),
}

#[derive(Debug)]
struct Asking {
    turn: Option<Turn>,
    place: Option<Box<Place>>,
    /// When the future wants to be woken, for its deadline or its next try.
    ring_at: Moment,
    rung: bool,
    /// When the watchdog should renew the place.
    contact_at: Moment,
    /// A request of this claim was never answered.
    in_doubt: bool,
}

#[derive(Debug)]
struct Held {
    fence: Fence,
    since: Moment,
    good_until: Moment,
    renew_by: Moment,
    first_life: bool,
    /// Half of the time that the last yes gave.
    risk_at: Moment,
    at_risk: Option<Arc<str>>,
    /// Released by its owner, but kept for `hold_for`.
    leave_at: Moment,
}

#[derive(Debug)]
struct Leaving {
    in_doubt: bool,
    tries: u32,
    next_try: Moment,
    /// After this the engine has ended the claim by itself.
    give_up: Moment,
    good_until: Option<Moment>,
}

/// How a hold was left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[must_use = "a late release means that the work was not protected to its end"]
pub enum Released {
    /// It was held until the release: nobody else was inside.
    InTime,
    /// It had ended before, so that the work was not exclusive to its end. Raise the ttl, or find
    /// out why renewals failed.
    Late,
}

/// What the asking future wakes up for.
#[derive(Debug)]
pub(crate) enum Event {
    Turn(Turn),
    Rung,
}

/// What a look or a message leaves to be done, once the mutex is free.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    pub(crate) wake: Vec<Waker>,
    pub(crate) renew: Option<Renewal>,
    pub(crate) leave: Option<Leave>,
    pub(crate) lost: Option<Ended>,
    pub(crate) at_risk: Option<Arc<str>>,
    /// The stake has ended and can be forgotten.
    pub(crate) over: bool,
}

impl Todo {
    pub(crate) fn is_empty(&self) -> bool {
        let quiet = self.lost.is_none() && self.at_risk.is_none() && self.wake.is_empty();
        quiet && self.renew.is_none() && self.leave.is_none() && !self.over
    }
}

impl Stake {
    pub(crate) fn new(claim: Claim, terms: Terms) -> Stake {
        let asking = Asking {
            turn: None,
            place: None,
            ring_at: Moment::FAR,
            rung: false,
            contact_at: Moment::FAR,
            in_doubt: false,
        };
        let state = State {
            phase: Phase::Asking(asking),
            waker: None,
            observers: Vec::new(),
            in_flight: false,
            lost: None,
        };
        Stake { claim, terms, state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // The asking future.

    /// Waits for a turn, or until `ring_at`. The moment to schedule is handed back.
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
        state.waker = Some(cx.waker().clone());
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
    pub(crate) fn start(&self, grant: Grant, now: Moment) -> Moment {
        let mut state = self.state();
        let held = Held {
            fence: grant.fence,
            since: now,
            good_until: grant.good_until,
            renew_by: grant.renew_by,
            first_life: grant.first_life,
            risk_at: grant.start_by,
            at_risk: None,
            leave_at: Moment::FAR,
        };
        let next = held.next(&self.terms, false);
        state.waker = None;
        state.phase = Phase::Held(held);
        next
    }

    /// A request failed and may have taken effect.
    pub(crate) fn doubt(&self) {
        if let Phase::Asking(asking) = &mut self.state().phase {
            asking.in_doubt = true;
        }
    }

    /// The engine refused the claim and keeps nothing of it, unless an earlier try is in doubt.
    /// Returns whether it is over.
    pub(crate) fn refused(&self) -> bool {
        let mut state = self.state();
        let clean = matches!(&state.phase, Phase::Asking(Asking { in_doubt: false, .. }));
        if clean && !state.in_flight {
            state.phase = Phase::Over(None);
            return true;
        }
        false
    }

    pub(crate) fn place(&self) -> Option<Place> {
        match &self.state().phase {
            Phase::Asking(asking) => asking.place.as_deref().cloned(),
            _ => None,
        }
    }

    /// The claim to send again: the same id, with the ticket it was given.
    pub(crate) fn again(&self, seen: Fence) -> Claim {
        self.state().again(&self.claim, seen)
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
            (Phase::Asking(asking), turn) => {
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    todo.wake.extend(state.waker.take());
                }
                true
            }
            (Phase::Held(held), Turn::Granted(grant)) => grant.fence == held.fence,
            (Phase::Held(_), Turn::Ended(ended)) => {
                state.lose(ended, None, todo);
                true
            }
            (Phase::Held(_), Turn::LookAgain | Turn::Settled(_)) => true,
            (Phase::Leaving(_) | Phase::Over(_), _) => false,
        }
    }

    // The watchdog.

    /// What time has made due, and when to look next. `foremost`: no other waiting claim of this
    /// process stands before it in this line.
    pub(crate) fn look(&self, now: Moment, foremost: bool, seen: Fence, todo: &mut Todo) -> Moment {
        let mut state = self.state();
        let in_flight = state.in_flight;
        match &mut state.phase {
            Phase::Asking(asking) => {
                if now >= asking.ring_at {
                    asking.ring_at = Moment::FAR;
                    asking.rung = true;
                    todo.wake.extend(state.waker.take());
                }
                if now >= state.asking_contact(foremost) {
                    state.in_flight = true;
                    todo.renew = Some(Renewal::Place(state.again(&self.claim, seen)));
                }
                state.asking_next(foremost)
            }
            Phase::Held(held) => {
                let cap = self.cap(held);
                if now >= held.good_until.min(cap) {
                    let ended = if now >= cap { Ended::MaxHold } else { Ended::Expired };
                    // At max_hold it is given up now; an expired hold ends on the engine by
                    // itself, and a leave follows later only to be sure.
                    let leave_at = if now >= cap { now } else { now + self.claim.ttl };
                    let leaving = Leaving {
                        next_try: leave_at,
                        give_up: leave_at.max(held.good_until) + self.claim.ttl,
                        ..Stake::leaving(Some(held.good_until))
                    };
                    state.lose(ended, Some(leaving), todo);
                    return leave_at;
                }
                if now >= held.leave_at {
                    let leaving = Stake::leaving(Some(held.good_until));
                    let give_up = held.good_until + self.claim.ttl;
                    state.phase = Phase::Leaving(Leaving { next_try: now, give_up, ..leaving });
                    return now;
                }
                if held.at_risk.is_none() && held.renews(&self.terms) && now >= held.risk_at {
                    held.at_risk = Some("no renewal was answered for half of its time".into());
                    todo.at_risk = held.at_risk.clone();
                }
                let due = held.renews(&self.terms) && now >= held.renew_by && !in_flight;
                if due {
                    todo.renew = Some(Renewal::Hold {
                        name: self.claim.name.clone(),
                        id: self.claim.id,
                        fence: held.fence,
                        ttl: self.claim.ttl,
                    });
                }
                let next = held.next(&self.terms, in_flight || due).min(cap);
                state.in_flight |= due;
                if todo.at_risk.is_some() {
                    todo.wake.append(&mut state.observers);
                }
                next
            }
            Phase::Leaving(leaving) => {
                if now >= leaving.give_up {
                    let late = leaving.good_until.map(|_| Released::Late);
                    state.phase = Phase::Over(late);
                    todo.wake.append(&mut state.observers);
                    todo.over = true;
                    return Moment::FAR;
                }
                if now >= leaving.next_try {
                    // It goes by another way than the first, so what went before is in doubt.
                    leaving.in_doubt |= leaving.tries > 0;
                    leaving.tries += 1;
                    leaving.next_try = now + retry_after(leaving.tries);
                    todo.leave = Some(self.leave_of(leaving));
                }
                leaving.next_try.min(leaving.give_up)
            }
            Phase::Over(_) => {
                todo.over = true;
                Moment::FAR
            }
        }
    }

    /// The answer to a renewal of the watchdog's, or that there was none. Returns when to look next.
    pub(crate) fn renewed(&self, answer: Renewed, now: Moment, todo: &mut Todo) -> Moment {
        self.state().in_flight = false;
        self.extended(answer, now, todo)
    }

    /// The answer to a renewal that the owner asked for. Returns when to look next.
    pub(crate) fn extended(&self, answer: Renewed, now: Moment, todo: &mut Todo) -> Moment {
        let mut state = self.state();
        match (&mut state.phase, answer) {
            (Phase::Held(held), Renewed::Held(grant)) if grant.fence == held.fence => {
                held.good_until = held.good_until.max(grant.good_until);
                held.renew_by = grant.renew_by;
                held.risk_at = grant.start_by;
                held.first_life = grant.first_life;
                held.at_risk = None;
            }
            (Phase::Held(held), Renewed::Unknown(error)) => {
                // Retried at once and often: a third of the ttl must be enough for several tries.
                held.renew_by = now + (self.claim.ttl / 30).min(Duration::from_millis(500));
                if held.at_risk.is_none() {
                    held.at_risk = Some(error.to_string().into());
                    todo.at_risk = held.at_risk.clone();
                    todo.wake.append(&mut state.observers);
                }
            }
            (Phase::Held(_), Renewed::Gone(ended)) => state.lose(ended, None, todo),
            (Phase::Asking(asking), Renewed::Held(grant)) => {
                let turn = Turn::Granted(grant);
                if !asking.is_stale(&turn) {
                    asking.turn = Some(turn);
                    todo.wake.extend(state.waker.take());
                }
            }
            (Phase::Asking(asking), Renewed::Waiting(place)) => {
                asking.stands(place, now);
            }
            (Phase::Asking(asking), Renewed::Gone(ended)) => {
                asking.turn = Some(Turn::Ended(ended));
                todo.wake.extend(state.waker.take());
            }
            (Phase::Asking(asking), Renewed::Unknown(error)) => {
                asking.in_doubt |= error.may_have_happened();
                asking.contact_at = now + Duration::from_millis(500);
                if let Some(place) = &mut asking.place {
                    place.look_again = place.look_again.max(asking.contact_at);
                }
            }
            // A late answer to a place renewal: the turn came by push meanwhile. Or it has left.
            (Phase::Held(_), Renewed::Held(_) | Renewed::Waiting(_)) => {}
            (Phase::Leaving(_) | Phase::Over(_), _) => {}
        }
        state.next(self)
    }

    // The end.

    /// Begins to leave, whatever it was doing. `Some`: send this now.
    ///
    /// `now` matters only to a hold with `hold_for`.
    pub(crate) fn leave(&self, now: Moment) -> Option<Leave> {
        let mut state = self.state();
        let contact = state.in_flight;
        let leaving = match &mut state.phase {
            Phase::Asking(asking) => {
                let mut leaving = Stake::leaving(None);
                // A place renewal on its way could put the claim back in line behind the leave.
                leaving.in_doubt = asking.in_doubt || contact;
                leaving
            }
            Phase::Held(held) if now < held.since + self.terms.hold_for => {
                held.leave_at = held.since + self.terms.hold_for;
                return None;
            }
            Phase::Held(held) => Stake::leaving(Some(held.good_until)),
            // Lost, with a leave waiting to be sure: its owner has come to the end, so now.
            Phase::Leaving(leaving) if leaving.tries == 0 => Stake::leaving(leaving.good_until),
            Phase::Leaving(_) | Phase::Over(_) => return None,
        };
        let leave = self.leave_of(&leaving);
        state.phase = Phase::Leaving(Leaving { tries: 1, ..leaving });
        Some(leave)
    }

    /// The leave is queued and not answered yet. Returns when the watchdog should send it again.
    pub(crate) fn await_answer(&self, now: Moment) -> Moment {
        let mut state = self.state();
        let Phase::Leaving(leaving) = &mut state.phase else { return Moment::FAR };
        leaving.next_try = leaving.next_try.min(now + LEAVE_PATIENCE);
        let ends = leaving.good_until.map_or(now + PLACE_LIFE, |good| good.max(now));
        leaving.give_up = leaving.give_up.min(ends + self.claim.ttl);
        leaving.next_try
    }

    /// Until when a hold that was released is kept for `hold_for`.
    pub(crate) fn kept_until(&self) -> Moment {
        match &self.state().phase {
            Phase::Held(held) => held.leave_at,
            _ => Moment::FAR,
        }
    }

    /// The engine's answer to the leave.
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
        todo.wake.append(&mut state.observers);
        todo.over = true;
        released
    }

    /// The leave was not answered: the watchdog sends it again.
    pub(crate) fn not_left(&self, now: Moment) {
        if let Phase::Leaving(leaving) = &mut self.state().phase {
            leaving.next_try = leaving.next_try.min(now + LEAVE_PATIENCE);
        }
    }

    /// Waits until the leave was answered, or the claim has ended without.
    pub(crate) fn poll_released(&self, cx: &mut Context<'_>) -> Poll<Released> {
        let mut state = self.state();
        match &state.phase {
            Phase::Over(released) => Poll::Ready(released.unwrap_or(Released::Late)),
            _ if state.lost.is_some() => Poll::Ready(Released::Late),
            Phase::Held(held) if held.leave_at != Moment::FAR => Poll::Ready(Released::InTime),
            _ => {
                state.observe(cx);
                Poll::Pending
            }
        }
    }

    /// The `Tenure` was closed: a waiting claim ends, a hold is lost. Neither is renewed any more.
    pub(crate) fn close(&self, now: Moment, todo: &mut Todo) {
        let mut state = self.state();
        match &mut state.phase {
            Phase::Asking(asking) => {
                asking.turn = Some(Turn::Ended(Ended::Closed));
                todo.wake.extend(state.waker.take());
            }
            Phase::Held(held) if now < held.leave_at && held.leave_at != Moment::FAR => {
                // Released already; it is kept for `hold_for` only, by its ttl from here on.
                state.phase = Phase::Over(Some(Released::InTime));
                todo.over = true;
            }
            Phase::Held(_) => state.lose(Ended::Closed, None, todo),
            Phase::Leaving(_) | Phase::Over(_) => {}
        }
    }

    // What the guard shows.

    /// The end that is known, or that the clock says. Looking is enough to notice it.
    pub(crate) fn ended(&self, now: Moment) -> Option<Ended> {
        let state = self.state();
        if state.lost.is_some() {
            return state.lost.clone();
        }
        match &state.phase {
            Phase::Held(held) if now >= self.cap(held) => Some(Ended::MaxHold),
            Phase::Held(held) if now >= held.good_until => Some(Ended::Expired),
            _ => None,
        }
    }

    pub(crate) fn deadline(&self) -> Moment {
        match &self.state().phase {
            Phase::Held(held) => held.good_until.min(self.cap(held)),
            _ => Moment::ORIGIN,
        }
    }

    pub(crate) fn fence(&self) -> Fence {
        match &self.state().phase {
            Phase::Held(held) => held.fence,
            _ => Fence::default(),
        }
    }

    pub(crate) fn held_since(&self) -> Option<Moment> {
        match &self.state().phase {
            Phase::Held(held) => Some(held.since),
            _ => None,
        }
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        match &self.state().phase {
            Phase::Asking(Asking { place: Some(place), .. }) => Some(place.ticket),
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

    /// Wakes `cx` at the next sign of risk or loss.
    pub(crate) fn observe(&self, cx: &Context<'_>) {
        self.state().observe(cx);
    }

    fn cap(&self, held: &Held) -> Moment {
        self.terms.max_hold.map_or(Moment::FAR, |max_hold| held.since + max_hold)
    }

    fn leave_of(&self, leaving: &Leaving) -> Leave {
        let leave = Leave::new(self.claim.name.clone(), self.claim.id);
        Leave { in_doubt: leaving.in_doubt, ..leave }
    }

    fn leaving(good_until: Option<Moment>) -> Leaving {
        Leaving {
            in_doubt: false,
            tries: 0,
            next_try: Moment::FAR,
            give_up: Moment::FAR,
            good_until,
        }
    }
}

impl State {
    fn observe(&mut self, cx: &Context<'_>) {
        if !self.observers.iter().any(|waker| waker.will_wake(cx.waker())) {
            self.observers.push(cx.waker().clone());
        }
    }

    fn lose(&mut self, ended: Ended, leaving: Option<Leaving>, todo: &mut Todo) {
        self.lost = Some(ended.clone());
        todo.lost = Some(ended);
        todo.over = leaving.is_none();
        self.phase = match leaving {
            Some(leaving) => Phase::Leaving(leaving),
            None => Phase::Over(Some(Released::Late)),
        };
        todo.wake.append(&mut self.observers);
        todo.wake.extend(self.waker.take());
    }

    fn again(&self, claim: &Claim, seen: Fence) -> Claim {
        let ticket = match &self.phase {
            Phase::Asking(asking) => asking.place.as_ref().map(|place| place.ticket),
            _ => None,
        };
        Claim { ticket, seen, ..claim.clone() }
    }

    fn next(&self, stake: &Stake) -> Moment {
        match &self.phase {
            Phase::Asking(_) => self.asking_next(true),
            Phase::Held(held) => held.next(&stake.terms, self.in_flight).min(stake.cap(held)),
            Phase::Leaving(leaving) => leaving.next_try.min(leaving.give_up),
            Phase::Over(_) => Moment::ORIGIN,
        }
    }

    fn asking_next(&self, foremost: bool) -> Moment {
        match &self.phase {
            Phase::Asking(asking) => asking.ring_at.min(self.asking_contact(foremost)),
            _ => Moment::FAR,
        }
    }

    /// When the place needs contact: to be kept, or because a push may have been lost. Any contact
    /// moves the whole line, so that only the foremost need look.
    fn asking_contact(&self, foremost: bool) -> Moment {
        match &self.phase {
            Phase::Asking(Asking { turn: None, place: Some(place), contact_at, .. })
                if !self.in_flight =>
            {
                if foremost {
                    place.look_again.min(*contact_at)
                } else {
                    *contact_at
                }
            }
            _ => Moment::FAR,
        }
    }
}

impl Asking {
    fn stands(&mut self, place: Place, now: Moment) -> Moment {
        self.contact_at = now + PLACE_LIFE / 3;
        let look = place.look_again.min(self.contact_at);
        self.place = Some(Box::new(place));
        if self.turn.as_ref().is_some_and(|turn| self.is_stale(turn)) {
            self.turn = None;
        }
        look
    }

    /// A turn from before the last answered contact, which said that the claim waits.
    fn is_stale(&self, turn: &Turn) -> bool {
        let floor = self.place.as_ref().map(|place| place.floor);
        matches!((turn, floor), (Turn::Granted(grant), Some(floor)) if grant.fence <= floor)
    }
}

impl Held {
    fn renews(&self, terms: &Terms) -> bool {
        terms.renew || self.first_life || self.leave_at != Moment::FAR
    }

    fn next(&self, terms: &Terms, in_flight: bool) -> Moment {
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

fn retry_after(tries: u32) -> Duration {
    (LEAVE_PATIENCE * 2u32.saturating_pow(tries)).min(Duration::from_millis(500))
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
