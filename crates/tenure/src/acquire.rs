//! The one waiting loop: from an ask to a hold, a refusal or the end of the wait.
//!
//! It sends the claim, and sends it again with the same id when no answer came; once it stands in
//! line it waits for a turn, for its deadline or for its caller to lose interest. Keeping the place is
//! the watchdog's work. The guard exists before the request does, so that a future dropped at any
//! await point leaves nothing behind.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use crate::ask::{Draft, check_units};
use crate::claim::{Claim, Ended, Grant, Holder, Outcome, Place, Renewal, Renewed, Turn, Verdict};
use crate::client::{Core, Handle};
use crate::engine::{Step, View};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::moment::Moment;
use crate::name::Name;
use crate::observe::Waiting;
use crate::stake::{Event, Stake};

impl Draft {
    /// Takes the place in line now, and returns the future that waits for the turn.
    pub(crate) fn join(
        self,
        handle: Arc<Handle>,
    ) -> impl Future<Output = Result<Hold>> + Send + use<> {
        let may_wait = self.wait != Some(Duration::ZERO);
        let begun = self.begin(handle, may_wait);
        async move {
            match begun? {
                Begun::Held(hold) => Ok(hold.given()),
                Begun::Asked(wait) => wait.await?.acquired().map(Hold::given),
            }
        }
    }

    /// Takes it if it is free now; `None` if someone holds it or waits for it.
    pub(crate) async fn try_acquire(self, handle: Arc<Handle>) -> Result<Option<Hold>> {
        match self.begin(handle, false)? {
            Begun::Held(hold) => Ok(Some(hold.given())),
            Begun::Asked(wait) => Ok(wait.await?.tried().map(Hold::given)),
        }
    }

    /// Takes the turn of a once, or hears what became of it.
    pub(crate) async fn begin_once(self, handle: Arc<Handle>) -> Result<Ending> {
        let may_wait = self.wait != Some(Duration::ZERO);
        match self.begin(handle, may_wait)? {
            Begun::Held(hold) => Ok(Ending::Granted(hold)),
            Begun::Asked(wait) => wait.await,
        }
    }

    pub(crate) async fn resize(&self, core: &Core, capacity: u32) -> Result<()> {
        let asked = async {
            core.open()?;
            self.claim.name.check()?;
            check_units(1, capacity)?;
            core.engine.resize(&self.claim.name, capacity).await
        };
        asked.await.map_err(|error| core.explain(error, "resize", &self.claim.name))
    }

    /// Sends the claim. A grant that is at hand is taken at once, so that it is watched over even if
    /// nobody polls the future.
    fn begin(mut self, handle: Arc<Handle>, may_wait: bool) -> Result<Begun> {
        let core = &handle.core;
        let check = || self.check(core.engine.profile());
        let ready = core.open().and_then(|()| check()).and_then(|()| core.be_watched());
        let (id, seen) = match ready.and_then(|()| core.world.mint()) {
            Ok(id) => (id, core.slots.seen()),
            Err(error) => return Err(core.not_sent(error, &self.claim)),
        };
        (self.claim.id, self.claim.seen, self.claim.may_wait) = (id, seen, may_wait);
        if self.claim.details.trace.is_none()
            && let Some(trace) = core.trace()
        {
            self.details().trace = Some(trace);
        }
        let span = core.slots.reporter.acquiring(&self.claim);
        let mut hold = Hold::asking(handle, self.into_stake());
        let (core, stake) = (hold.core(), hold.stake());
        core.slots.insert(stake.clone());
        // A close that came meanwhile has not seen this one.
        if let Err(closed) = core.open() {
            return Err(core.not_sent(closed, &stake.claim));
        }
        match core.engine.claim(&stake.claim).at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                hold.start(grant, grant.sent, Duration::ZERO, &span);
                Ok(Begun::Held(hold))
            }
            Ok(Ok(Verdict::Waiting(place))) => {
                let started = place.asked_at;
                let mut asked = Asked::new(hold, Request::None, started, span);
                (asked.answered, asked.give_up) = (true, Moment::FAR);
                asked.stand(place, started);
                Ok(Begun::Asked(Box::pin(asked.finish())))
            }
            otherwise => {
                stake.asked();
                let now = core.world.now();
                let step = otherwise.map_or_else(|step| step, Step::ready);
                let asked = Asked::new(hold, Request::Claim(step), now, span);
                Ok(Begun::Asked(Box::pin(asked.finish())))
            }
        }
    }
}

/// A claim that was sent. The wait is boxed: most claims do not wait, and need not carry the room for
/// it from hand to hand.
enum Begun {
    Held(Hold),
    Asked(Pin<Box<dyn Future<Output = Result<Ending>> + Send>>),
}

/// How the wait ended.
pub(crate) enum Ending {
    Granted(Hold),
    Busy(Hold, Option<Holder>),
    /// A once: what it left.
    Settled(Outcome),
    /// A once: nobody knows how it ended.
    Unsettled,
}

/// The same, seen from within the loop.
enum End {
    Held,
    Busy(Option<Holder>),
    Settled(Outcome),
    Unsettled,
}

impl Ending {
    fn acquired(self) -> Result<Hold> {
        match self {
            Ending::Granted(hold) => Ok(hold),
            Ending::Busy(hold, holder) => {
                let (core, name) = (hold.core(), &hold.stake().claim.name);
                Err(core.explain(core.not_had(name, "did not wait", holder), "acquire", name))
            }
            Ending::Settled(_) | Ending::Unsettled => Err(not_asked_for()),
        }
    }

    fn tried(self) -> Option<Hold> {
        match self {
            Ending::Granted(hold) => Some(hold),
            Ending::Busy(..) | Ending::Settled(_) | Ending::Unsettled => None,
        }
    }
}

/// A claim that was sent and not granted on the spot.
struct Asked {
    /// Before the hold, so that who loses interest is said to have before the claim has left.
    waiting: Waiting,
    hold: Hold,
    request: Request,
    /// Whether the engine has ever answered: then the claim has a place to come back to.
    answered: bool,
    /// When to give up on an engine that has not.
    give_up: Moment,
    /// What it said instead of an answer.
    last_failure: Option<Error>,
    tries: u32,
    /// When to wake up without a turn: for the deadline, or to try again.
    ring_at: Moment,
    /// How often in a row the engine's answer led to another question at once.
    spins: u32,
}

/// An engine that answers at once, and wrongly, must not keep the thread.
const MOST_SPINS: u32 = 4;

/// What the loop has asked the engine and not heard yet.
enum Request {
    None,
    Claim(Step<Verdict>),
    /// A turn that is too old to start on: renew first.
    Confirm(Step<Vec<Renewed>>),
}

enum Heard {
    Verdict(Result<Verdict>),
    Confirmed(Result<Vec<Renewed>>),
    Event(Event),
}

impl Asked {
    fn new(hold: Hold, request: Request, started: Moment, span: Span) -> Asked {
        let give_up = started + hold.core().engine.profile().patience;
        let reporter = hold.core().slots.reporter.clone();
        let waiting = Waiting::new(reporter, hold.stake().clone(), span, started);
        let (answered, tries, spins, ring_at) = (false, 0, 0, Moment::FAR);
        let last_failure = None;
        Asked { waiting, hold, request, answered, give_up, last_failure, tries, ring_at, spins }
    }

    async fn finish(mut self) -> Result<Ending> {
        let end = self.wait_for_turn().await;
        let end = end.map_err(|e| self.core().explain(e, "acquire", &self.stake().claim.name));
        if !self.core().forked() {
            self.say(&end);
        }
        Ok(match end? {
            End::Held => Ending::Granted(self.hold),
            End::Busy(holder) => Ending::Busy(self.hold, holder),
            End::Settled(outcome) => Ending::Settled(outcome),
            End::Unsettled => Ending::Unsettled,
        })
    }

    fn say(&mut self, end: &Result<End>) {
        let now = self.core().world.now();
        match end {
            Ok(End::Held) => {}
            Ok(End::Busy(holder)) => self.waiting.busy(holder.as_ref(), now),
            Ok(End::Settled(_)) => self.waiting.ended_before("settled", now),
            Ok(End::Unsettled) => self.waiting.ended_before("unsettled", now),
            Err(error) => self.waiting.failed(error, now),
        }
    }

    /// The loop.
    async fn wait_for_turn(&mut self) -> Result<End> {
        self.ring_at = self.deadline().min(self.give_up);
        loop {
            let heard = poll_fn(|cx| self.poll_heard(cx)).await;
            self.ring_at = self.deadline().min(self.give_up);
            let now = self.core().world.now();
            match heard {
                Heard::Verdict(Ok(verdict)) => match self.heard(verdict) {
                    Verdict::Granted(grant) if self.start(grant, now) => return Ok(End::Held),
                    Verdict::Granted(_) => {}
                    Verdict::Waiting(place) => self.stand(place, now),
                    Verdict::Busy(holder) => {
                        self.refused();
                        return Ok(End::Busy(holder));
                    }
                    verdict => return self.ended_before(verdict),
                },
                Heard::Confirmed(Ok(answers)) => match answers.into_iter().next() {
                    Some(Renewed::Held(grant)) if self.start(grant, now) => return Ok(End::Held),
                    Some(Renewed::Held(_)) => {}
                    Some(Renewed::Unknown(error)) => self.failed(error, now)?,
                    // The turn has run out. The ticket has not.
                    _ => self.ask_again(now),
                },
                Heard::Verdict(Err(error)) => {
                    if !error.may_have_happened() {
                        self.stake().answered();
                    }
                    self.failed(error, now)?;
                }
                Heard::Confirmed(Err(error)) => self.failed(error, now)?,
                Heard::Event(Event::Turn(Turn::Granted(grant))) => {
                    if self.start(grant, now) {
                        return Ok(End::Held);
                    }
                }
                Heard::Event(Event::Turn(Turn::Settled(outcome))) => {
                    return self.ended_before(Verdict::Settled(outcome));
                }
                Heard::Event(Event::Turn(Turn::Ended(
                    ended @ (Ended::Closed | Ended::Conflict { .. }),
                ))) => return Err(ended.into()),
                Heard::Event(Event::Rung) if now >= self.deadline() => {
                    return self.wait_over(now);
                }
                Heard::Event(Event::Rung) if now >= self.give_up => return Err(self.no_answer()),
                Heard::Event(Event::Turn(_) | Event::Rung) => self.ask_again(now),
            }
        }
    }

    fn heard(&mut self, verdict: Verdict) -> Verdict {
        (self.answered, self.give_up) = (true, Moment::FAR);
        self.ring_at = self.deadline();
        self.stake().answered();
        verdict
    }

    fn stand(&mut self, place: Place, now: Moment) {
        self.waiting.stands(&place);
        let stake = self.stake();
        self.core().slots.schedule(&stake.claim.name, stake.stands(place, now));
    }

    /// There is nothing to wait for any more.
    fn ended_before(&self, verdict: Verdict) -> Result<End> {
        self.refused();
        match (verdict, self.stake().claim.once) {
            (Verdict::Settled(outcome), Some(_)) => Ok(End::Settled(outcome)),
            (Verdict::Unsettled, Some(_)) => Ok(End::Unsettled),
            _ => Err(not_asked_for()),
        }
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<Heard> {
        if self.core().forked() {
            return Poll::Ready(Heard::Event(Event::Turn(Turn::Ended(Ended::Closed))));
        }
        let answer = match &mut self.request {
            Request::None => Poll::Pending,
            Request::Claim(step) => Pin::new(step).poll(cx).map(Heard::Verdict),
            Request::Confirm(step) => Pin::new(step).poll(cx).map(Heard::Confirmed),
        };
        if answer.is_ready() {
            self.request = Request::None;
            return answer;
        }
        let stake = self.hold.stake();
        let event = stake.poll_event(cx, self.ring_at);
        if event.is_pending() {
            self.hold.core().slots.schedule(&stake.claim.name, self.ring_at);
            self.spins = 0;
        }
        event.map(Heard::Event)
    }

    /// Starts on a grant, or has it renewed first if it is old. Returns whether it started.
    fn start(&mut self, grant: Grant, now: Moment) -> bool {
        if now <= grant.start_by {
            let span = self.waiting.ends();
            self.hold.start(grant, now, now.since(self.waiting.started), &span);
            return true;
        }
        if self.may_ask_at_once(now) {
            let core = self.core().clone();
            let Claim { name, id, ttl, .. } = &self.stake().claim;
            let fence = grant.fence;
            let renewal = Renewal::Hold { name: name.clone(), id: *id, fence, ttl: *ttl };
            let shard = core.engine.shard(name);
            self.request = Request::Confirm(core.engine.renew(shard, &[renewal]));
        }
        false
    }

    fn ask_again(&mut self, now: Moment) {
        if self.may_ask_at_once(now) {
            let claim = self.stake().again(self.core().slots.seen());
            self.request = Request::Claim(self.core().engine.claim(&claim));
        }
    }

    fn may_ask_at_once(&mut self, now: Moment) -> bool {
        self.spins += 1;
        let at_once = self.spins <= MOST_SPINS;
        if !at_once {
            self.try_later(now);
        }
        at_once
    }

    fn try_later(&mut self, now: Moment) {
        self.tries += 1;
        // Spread by the claim's own random bits: a thousand clients must not come back together.
        let step = Duration::from_millis(20 << self.tries.min(6));
        let spread = (self.stake().claim.id.bits() >> self.tries.min(32)) as u32 % 1000;
        self.ring_at = self.ring_at.min(now + step / 2 + step * spread / 2000);
    }

    /// No answer came: tries again later, or gives up.
    fn failed(&mut self, error: Error, now: Moment) -> Result<()> {
        if error.kind() != ErrorKind::Unavailable {
            // One that may have left something behind is left like any other.
            if !self.answered && !error.may_have_happened() {
                self.refused();
            }
            return Err(error);
        }
        if error.asks_for_time() && self.stake().claim.may_wait {
            // The engine is there and needs time; whoever came to wait does.
            self.give_up = Moment::FAR;
        }
        if now >= self.give_up {
            return Err(error);
        }
        self.last_failure = Some(error);
        self.try_later(now);
        Ok(())
    }

    fn no_answer(&mut self) -> Error {
        let patience = self.core().engine.profile().patience;
        let silent = || {
            let reason = format!("no answer for {patience:?}");
            Error::new(ErrorKind::Unavailable, reason).next("see the engine's health")
        };
        self.last_failure.take().unwrap_or_else(silent).in_doubt()
    }

    fn deadline(&self) -> Moment {
        match self.stake().wait {
            Some(wait) if !wait.is_zero() => self.waiting.started + wait,
            _ => Moment::FAR,
        }
    }

    fn refused(&self) {
        if self.stake().refused() {
            self.core().slots.remove(self.stake());
        }
    }

    fn wait_over(&self, now: Moment) -> Result<End> {
        match self.stake().place() {
            // Someone is at it, which is an answer to who asked for it to be done once.
            Some(place) if self.stake().claim.once.is_some() => Ok(End::Busy(place.holder)),
            place => Err(self.not_in_time(place, now)),
        }
    }

    fn not_in_time(&self, place: Option<Place>, now: Moment) -> Error {
        let (core, name) = (self.core(), &self.stake().claim.name);
        let waited = self.stake().wait.unwrap_or_default();
        let Some(Place { ticket, ahead, asked_at, holder, .. }) = place else {
            let said = match &self.last_failure {
                Some(error) => format!("; the last try: {error}"),
                None => String::new(),
            };
            let reason = format!("waited {waited:?} and the engine has not answered{said}");
            return Error::new(ErrorKind::WaitOver, reason).next("see the engine's health");
        };
        // The line as it is now where that is at hand, else as it was at the last contact.
        let (ahead, holder) = match core.engine.glance(name) {
            Some(View { holders, waiters, .. }) => {
                let before = waiters.iter().filter(|waiter| waiter.ticket < ticket).count();
                (before, holders.into_iter().min_by_key(|holder| holder.remaining))
            }
            None => {
                let older = |holder: Holder| Holder {
                    held_for: holder.held_for + now.since(asked_at),
                    ..holder
                };
                (ahead as usize, holder.map(older))
            }
        };
        let others = match ahead {
            0 => String::new(),
            _ => format!(", and {ahead} were ahead in line"),
        };
        core.not_had(name, &format!("waited {waited:?}{others}"), holder)
    }

    fn stake(&self) -> &Arc<Stake> {
        self.hold.stake()
    }

    fn core(&self) -> &Arc<Core> {
        self.hold.core()
    }
}

fn not_asked_for() -> Error {
    Error::new(ErrorKind::Internal, "the engine gave an answer that was not asked for")
}

impl Core {
    fn not_sent(&self, error: Error, claim: &Claim) -> Error {
        let error = self.explain(error, "acquire", &claim.name);
        if !self.forked() {
            self.slots.reporter.not_sent(claim, &error);
        }
        error
    }

    /// The error for a claim that was not granted in time: who has it, and what to do about it.
    fn not_had(&self, name: &Name, said: &str, holder: Option<Holder>) -> Error {
        let Some(Holder { fence, held_for, details, .. }) = holder else {
            let reason = format!("{said}; others wait for it");
            return Error::new(ErrorKind::WaitOver, reason).next("wait longer");
        };
        let held_for = Duration::from_millis(held_for.as_millis() as u64);
        let held_for = humantime::format_duration(held_for);
        let why = details.reason.as_ref().map(|why| format!(" ({why:?})")).unwrap_or_default();
        let owner = &details.owner;
        let reason = format!("{said}; held by {owner}{why} for {held_for}, fence {fence}");
        let error = Error::new(ErrorKind::WaitOver, reason);
        match self.slots.is_mine(name, fence) {
            true => error.next("that is this process itself: locks are not re-entrant"),
            false => error.next("wait longer, or inspect the name"),
        }
    }
}
