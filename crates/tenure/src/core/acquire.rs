//! The one waiting loop: from an ask to a hold, a refusal or the end of the wait.
//!
//! It sends the claim, and sends it again with the same id when no answer came; once it stands in
//! line it waits for a turn, for its deadline or for its caller to lose interest. Keeping the place is
//! the watchdog's work. The guard exists before the request does, so that a future dropped at any
//! await point leaves nothing behind.

mod fall_back;
mod first_attempt;
mod outcome;
mod patience;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tracing::Span;

use self::first_attempt::Begun;
pub(crate) use self::outcome::Ending;
use self::outcome::{End, Who, not_asked_for};
use crate::core::claim_state::{Event, Stake};
use crate::core::handle::{Core, Handle};
use crate::core::hold::Hold;
use crate::core::local_line;
use crate::core::request_builder::Draft;
use crate::engine::Step;
use crate::model::claim::{
    Claim, Ended, Fence, Grant, Leave, Left, Place, Renewal, Renewed, Settle, Turn, Verdict,
};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::options::{OnOutage, check_units};
use crate::observe::Waiting;

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
            && let Some(trace) = core.trace_source.trace()
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
    /// How often that may still be put off.
    put_off: u32,
    /// What the engine said instead of its last answer, and when.
    last_failure: Option<(Moment, Error)>,
    tries: u32,
    /// When to try again.
    retry_at: Moment,
    /// When to have the watchdog see whether the engine is there.
    doubt_at: Moment,
    /// When to wake up without a turn: the first of all these.
    ring_at: Moment,
    /// How often in a row the engine's answer led to another question at once.
    spins: u32,
    /// A once: the last grant that was heard, and came too late to be started on.
    unstarted: Option<Fence>,
}

/// An engine that answers at once, and wrongly, must not keep the thread.
const MOST_SPINS: u32 = 4;

/// What the loop has asked the engine and not heard yet.
enum Request {
    None,
    /// Nothing yet: it waits for its turn in this process's own line.
    Line(Box<local_line::Place>),
    Claim(Step<Verdict>),
    /// A turn that is too old to start on: renew first.
    Confirm(Step<Vec<Renewed>>),
    /// A turn of a once that was not started on: the engine forgets that it was given.
    Undo(Step<Left>),
}

enum Heard {
    OurTurn,
    Verdict(Result<Verdict>),
    Confirmed(Result<Vec<Renewed>>),
    Undone(Result<Left>),
    Event(Event),
}

impl Asked {
    fn new(hold: Hold, request: Request, started: Moment, span: Span) -> Asked {
        let reporter = hold.core().slots.reporter.clone();
        let waiting = Waiting::new(reporter, hold.stake().clone(), span, started);
        let asks = !matches!(request, Request::Line(_));
        let mut asked = Asked {
            waiting,
            hold,
            request,
            answered: false,
            give_up: Moment::FAR,
            put_off: patience::MOST_PUT_OFF,
            last_failure: None,
            tries: 0,
            retry_at: Moment::FAR,
            doubt_at: Moment::FAR,
            ring_at: Moment::FAR,
            spins: 0,
            unstarted: None,
        };
        if asks {
            asked.asks(started);
        }
        asked
    }

    async fn finish(mut self) -> Result<Ending> {
        let end = self.wait_for_turn().await;
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
        loop {
            let alarms = [self.deadline(), self.give_up, self.retry_at, self.doubt_at];
            self.ring_at = alarms.into_iter().fold(Moment::FAR, Moment::min);
            let heard = poll_fn(|cx| self.poll_heard(cx)).await;
            let now = self.core().world.now();
            if !matches!(heard, Heard::Event(Event::Rung)) {
                self.retry_at = Moment::FAR;
            }
            match heard {
                Heard::Verdict(Ok(verdict)) => {
                    if let Some(end) = self.heard(verdict, now)? {
                        return Ok(end);
                    }
                }
                Heard::Undone(Ok(_)) => self.undone(now),
                Heard::Confirmed(Ok(answers)) => {
                    if self.confirmed(answers, now)? {
                        return Ok(End::Held);
                    }
                }
                Heard::Verdict(Err(error)) => {
                    if !error.may_have_happened() {
                        self.stake().answered();
                    }
                    self.failed(error, now)?;
                }
                Heard::Confirmed(Err(error)) | Heard::Undone(Err(error)) => {
                    self.failed(error, now)?;
                }
                Heard::Event(Event::Turn(Turn::Granted(grant))) => {
                    if self.start_on_push(grant, now) {
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
                // It has its turn here: now the engine is asked.
                Heard::OurTurn => self.ask_again(now),
                Heard::Event(Event::Rung) if self.stands_here() => {}
                Heard::Event(Event::Rung) if now >= self.give_up && self.gives_up(now) => {
                    return Err(self.no_answer(now));
                }
                Heard::Event(Event::Rung) => self.rung(now),
                Heard::Event(Event::Turn(_)) => self.ask_again(now),
            }
        }
    }

    /// A turn that was too old to start on was renewed, or was not. Returns whether it started.
    fn confirmed(&mut self, answers: Vec<Renewed>, now: Moment) -> Result<bool> {
        match answers.into_iter().next() {
            Some(Renewed::Held(grant)) => return Ok(self.start(grant, now)),
            Some(Renewed::Unknown(error)) => self.failed(error, now)?,
            // The turn has run out. The ticket has not.
            _ => self.ask_again(now),
        }
        Ok(false)
    }

    /// Does what is due, where that is not the end.
    fn rung(&mut self, now: Moment) {
        if now >= self.doubt_at {
            self.doubt(now);
        }
        if now >= self.retry_at {
            self.ask_again(now);
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

    /// The engine has answered the claim. Returns how the wait ended, if it did.
    fn heard(&mut self, verdict: Verdict, now: Moment) -> Result<Option<End>> {
        self.has_answered();
        self.stake().answered();
        match verdict {
            Verdict::Granted(grant) => return Ok(self.start(grant, now).then_some(End::Held)),
            Verdict::Waiting(place) => self.stand(place, now),
            Verdict::Busy(holder) => {
                self.refused();
                return Ok(Some(End::Busy(holder)));
            }
            Verdict::Unsettled if self.unstarted.is_some() => self.undo(now),
            verdict => return self.ended_before(verdict).map(Some),
        }
        Ok(None)
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
            Request::Undo(step) => Pin::new(step).poll(cx).map(Heard::Undone),
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

    /// The engine notes that a once has begun when its turn is taken, not when it is pushed: such a
    /// one is renewed first.
    fn start_on_push(&mut self, mut grant: Grant, now: Moment) -> bool {
        if self.stake().claim.once.is_some() {
            grant.start_by = Moment::ORIGIN;
        }
        self.start(grant, now)
    }

    /// Starts on a grant, or has it renewed first if it is old. Returns whether it started.
    fn start(&mut self, grant: Grant, now: Moment) -> bool {
        if now <= grant.start_by {
            let span = self.waiting.ends();
            self.hold.start(grant, now, now.since(self.waiting.started), &span);
            return true;
        }
        if self.stake().claim.once.is_some() {
            self.unstarted = Some(grant.fence);
        }
        if self.may_ask_at_once(now) {
            self.asks(now);
            let core = self.core().clone();
            let Claim { name, id, ttl, .. } = &self.stake().claim;
            let fence = grant.fence;
            let renewal = Renewal::Hold { name: name.clone(), id: *id, fence, ttl: *ttl };
            let shard = core.engine.shard(name);
            self.request = Request::Confirm(core.engine.renew(shard, &[renewal]));
        }
        false
    }

    /// The engine says that it was begun and never settled. If that was this claim, whose caller has never
    /// heard of its turn, it was not: the engine forgets it, and is asked again.
    fn undo(&mut self, now: Moment) {
        let Some(fence) = self.unstarted else { return };
        self.asks(now);
        let Claim { name, id, .. } = &self.stake().claim;
        let settle = Some(Settle { fence, outcome: None });
        let leave = Leave { settle, ..Leave::new(name.clone(), *id) };
        self.request = Request::Undo(self.core().engine.leave(&leave));
    }

    fn undone(&mut self, now: Moment) {
        self.unstarted = None;
        self.ask_again(now);
    }

    fn ask_again(&mut self, now: Moment) {
        if self.may_ask_at_once(now) {
            self.asks(now);
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

    fn refused(&self) {
        if self.stake().refused() {
            self.core().slots.remove(self.stake());
        }
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
