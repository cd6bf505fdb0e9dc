//! The one waiting loop: from an ask to a hold, a refusal or the end of the wait.
//!
//! It sends the claim, and sends it again with the same id when no answer came; once it stands in
//! line it waits for a turn, for its deadline or for its caller to lose interest. Keeping the place is
//! the watchdog's work. The guard exists before the request does, so that a future dropped at any
//! await point leaves nothing behind.

mod begun;
mod ending;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use self::begun::Begun;
pub(crate) use self::ending::Ending;
use self::ending::{End, Who, not_asked_for};
use crate::ask::{Draft, check_units};
use crate::claim::{Claim, Ended, Grant, Holder, Place, Renewal, Renewed, Turn, Verdict};
use crate::client::{Core, Handle};
use crate::engine::{Step, View};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::local;
use crate::moment::Moment;
use crate::observe::Waiting;
use crate::options::OnOutage;
use crate::outage::is_outage;
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
        (self.claim.id, self.claim.seen, self.claim.may_wait) = (id, seen.all, may_wait);
        self.claim.elsewhere = seen.elsewhere;
        if self.claim.details.trace.is_none()
            && let Some(trace) = core.trace()
        {
            self.details().trace = Some(trace);
        }
        let span = core.slots.reporter.acquiring(&self.claim);
        let hold = Hold::asking(handle, self.into_stake());
        let (core, stake) = (hold.core(), hold.stake());
        core.slots.insert(stake.clone());
        // A close that came meanwhile has not seen this one.
        if let Err(closed) = core.open() {
            return Err(core.not_sent(closed, &stake.claim));
        }
        if stake.outage() != OnOutage::Closed {
            return Begun::or_without(hold, span);
        }
        let step = core.engine.claim(&stake.claim);
        Ok(Begun::sent(hold, step, span))
    }
}

/// A claim that was not granted on the spot.
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
    /// Nothing yet: it waits for its turn in this process's own line.
    Line(Box<local::Place>),
    Claim(Step<Verdict>),
    /// A turn that is too old to start on: renew first.
    Confirm(Step<Vec<Renewed>>),
}

enum Heard {
    OurTurn,
    Verdict(Result<Verdict>),
    Confirmed(Result<Vec<Renewed>>),
    Event(Event),
}

impl Asked {
    fn new(hold: Hold, request: Request, started: Moment, span: Span) -> Asked {
        let core = hold.core();
        let give_up = match (&request, hold.stake().outage()) {
            (Request::Line(_), _) => Moment::FAR,
            (_, OnOutage::Closed) => started + core.engine.profile().patience,
            _ => started + core.longest_silence(),
        };
        let reporter = core.slots.reporter.clone();
        let waiting = Waiting::new(reporter, hold.stake().clone(), span, started);
        let (answered, tries, spins, ring_at) = (false, 0, 0, Moment::FAR);
        let last_failure = None;
        Asked { waiting, hold, request, answered, give_up, last_failure, tries, ring_at, spins }
    }

    async fn finish(mut self) -> Result<Ending> {
        let end = match self.wait_for_turn().await {
            Err(error) if self.goes_on_without() && is_outage(&error) => {
                self.core().goes_down(&self.stake().claim.name, &error);
                Ok(End::Nobody)
            }
            end => end,
        };
        let end = end.map_err(|error| self.explain(error));
        if !self.core().forked() {
            self.say(&end);
        }
        Ok(match end? {
            End::Held => Ending::Granted(self.hold),
            End::Busy(holder) => Ending::Busy(self.hold, Who::Elsewhere(holder)),
            End::Settled(outcome) => Ending::Settled(outcome),
            End::Unsettled => Ending::Unsettled,
            End::Nobody => {
                let hold = self.fall_back();
                Ending::Granted(hold.map_err(|error| self.explain(error))?)
            }
        })
    }

    fn explain(&self, error: Error) -> Error {
        self.core().explain(error, "acquire", &self.stake().claim.name)
    }

    /// What the engine may have of the claim is left when this is dropped.
    fn fall_back(&mut self) -> Result<Hold> {
        let waited = self.core().world.now().since(self.waiting.started);
        self.hold.fall_back(waited, &self.waiting.ends())
    }

    fn goes_on_without(&self) -> bool {
        self.stake().outage() != OnOutage::Closed
    }

    fn say(&mut self, end: &Result<End>) {
        let now = self.core().world.now();
        match end {
            Ok(End::Held | End::Nobody) => {}
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
                    Some(Renewed::Held(grant)) if self.start(grant, now) => {
                        return Ok(End::Held);
                    }
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
                Heard::OurTurn | Heard::Event(Event::Rung) if self.is_down() => {
                    return Ok(End::Nobody);
                }
                Heard::OurTurn => self.ask_first(now),
                Heard::Event(Event::Rung) if self.stands_here() => {}
                Heard::Event(Event::Rung) if now >= self.give_up => return Err(self.no_answer()),
                Heard::Event(Event::Turn(_) | Event::Rung) => self.ask_again(now),
            }
        }
    }

    /// It asks the engine, or would, and the engine is out of reach.
    fn is_down(&self) -> bool {
        self.goes_on_without()
            && !self.stands_here()
            && self.core().is_down(&self.stake().claim.name)
    }

    fn stands_here(&self) -> bool {
        matches!(self.request, Request::Line(_))
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
        self.core().slots.schedule(stake, stake.stands(place, now));
        if self.goes_on_without() {
            self.core().watch_line();
        }
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
            Request::Line(place) => place.poll_turn(cx).map(|()| Heard::OurTurn),
            Request::Claim(step) => Pin::new(step).poll(cx).map(Heard::Verdict),
            Request::Confirm(step) => Pin::new(step).poll(cx).map(Heard::Confirmed),
        };
        if answer.is_ready() {
            if let Request::Line(place) = std::mem::replace(&mut self.request, Request::None) {
                self.stake().accompany(place);
            }
            return answer;
        }
        let stake = self.hold.stake();
        let event = stake.poll_event(cx, self.ring_at);
        if event.is_pending() {
            self.hold.core().slots.schedule(stake, self.ring_at);
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

    /// It has its turn here: now the engine is asked.
    fn ask_first(&mut self, now: Moment) {
        self.give_up = now + self.core().longest_silence();
        self.ring_at = self.give_up;
        self.ask_again(now);
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
        } else if !self.answered && self.give_up == Moment::FAR {
            // It was, and is no more.
            self.give_up = now + self.patience();
        }
        if now >= self.give_up {
            return Err(error);
        }
        self.last_failure = Some(error);
        self.try_later(now);
        Ok(())
    }

    /// How long an engine that has not answered yet may be silent.
    fn patience(&self) -> Duration {
        match self.goes_on_without() {
            true => self.core().longest_silence(),
            false => self.core().engine.profile().patience,
        }
    }

    fn no_answer(&mut self) -> Error {
        let patience = self.patience();
        let silent = || {
            let reason = format!("no answer for {patience:?}");
            Error::new(ErrorKind::Unavailable, reason).next("see the engine's health")
        };
        self.last_failure.take().unwrap_or_else(silent).in_doubt()
    }

    fn deadline(&self) -> Moment {
        match self.stake().wait {
            // Whether the engine is there is found out first: the wait is for standing in line.
            _ if self.goes_on_without() && self.give_up != Moment::FAR => Moment::FAR,
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
        let others = |ahead: usize| match ahead {
            0 => String::new(),
            _ => format!(", and {ahead} were ahead in line"),
        };
        if let Request::Line(place) = &self.request {
            return core.not_had_here(name, &format!("waited {waited:?}{}", others(place.ahead())));
        }
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
        core.not_had(name, &format!("waited {waited:?}{}", others(ahead)), holder)
    }

    fn stake(&self) -> &Arc<Stake> {
        self.hold.stake()
    }

    fn core(&self) -> &Arc<Core> {
        self.hold.core()
    }
}

impl Core {
    fn not_sent(&self, error: Error, claim: &Claim) -> Error {
        let error = self.explain(error, "acquire", &claim.name);
        if !self.forked() {
            self.slots.reporter.not_sent(claim, &error);
        }
        error
    }
}
