//! The waiting loop: from a request to a held claim, a refusal or the end of the wait.
//!
//! It sends the claim, and sends it again with the same id if no answer came. Once the claim is in line, it waits
//! for its turn, for its deadline, or for its caller to give up. Keeping the place is the watchdog's job. The
//! guard exists before the request does, so a future that is dropped at any await point leaves nothing behind.

mod fall_back;
mod first_attempt;
mod outcome;
mod patience;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tracing::Span;

use self::first_attempt::FirstAttempt;
pub(crate) use self::outcome::AcquireOutcome;
use self::outcome::{HeldBy, not_asked_for};
use crate::core::claim_state::ClaimEvent;
use crate::core::guard::{ClaimGuard, FromHeld, HeldClaim};
use crate::core::handle::{Core, Handle};
use crate::core::live_claim::LiveClaim;
use crate::core::local_line;
use crate::core::request_builder::RequestBuilder;
use crate::engine::Step;
use crate::model::claim::{
    Claim, Ended, Fence, Grant, Holder, Leave, Left, Place, Renewal, Renewed, Settle, Turn, Verdict,
};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::options::{OnOutage, check_units};
use crate::observe::Waiting;

impl RequestBuilder {
    /// Takes the place in line now, and returns a future that waits for the turn.
    pub(crate) fn join<T: FromHeld>(
        self,
        handle: Arc<Handle>,
    ) -> impl Future<Output = Result<T>> + Send + use<T> {
        let may_wait = self.wait != Some(Duration::ZERO);
        let attempt = self.begin(handle, may_wait);
        async move {
            let held = attempt?.outcome().await?.acquired()?;
            Ok(T::from_held(held.given()))
        }
    }

    /// Acquires if nobody holds or waits; otherwise returns `None`.
    pub(crate) async fn try_acquire<T: FromHeld>(self, handle: Arc<Handle>) -> Result<Option<T>> {
        let held = self.begin(handle, false)?.outcome().await?.tried();
        Ok(held.map(|held| T::from_held(held.given())))
    }

    /// Takes the turn of a once, or returns how it ended.
    pub(crate) async fn begin_once(self, handle: Arc<Handle>) -> Result<AcquireOutcome> {
        let may_wait = self.wait != Some(Duration::ZERO);
        self.begin(handle, may_wait)?.outcome().await
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

    /// Sends the claim. If it is granted at once, the hold starts here, so that it is renewed even if nobody polls
    /// the future.
    fn begin(mut self, handle: Arc<Handle>, may_wait: bool) -> Result<FirstAttempt> {
        let core = &handle.core;
        let check = || self.check(core.engine.profile());
        let ready = core.open().and_then(|()| check()).and_then(|()| core.be_watched());
        let (id, seen) = match ready.and_then(|()| core.world.mint()) {
            Ok(id) => (id, core.table.seen()),
            Err(error) => return Err(core.not_sent(error, &self.claim)),
        };
        let claim = &mut self.claim;
        (claim.id, claim.seen, claim.may_wait) = (id, seen, may_wait);
        self.claim.shared = core.handover.is_some() && self.may_be_shared();
        if self.claim.details.trace.is_none()
            && let Some(trace) = core.trace_source.trace()
        {
            self.details().trace = Some(trace);
        }
        let span = core.table.reporter.acquiring(&self.claim);
        let guard = ClaimGuard::new(handle, self.into_live());
        let (core, live) = (guard.core(), guard.live());
        core.table.insert(live.clone());
        // A concurrent close may have missed this claim.
        if let Err(closed) = core.open() {
            return Err(core.not_sent(closed, &live.claim));
        }
        if live.outage() != OnOutage::Closed {
            return FirstAttempt::or_without(guard, span);
        }
        let step = core.engine.claim(&live.claim);
        Ok(FirstAttempt::sent(guard, step, span))
    }
}

/// A claim that was not granted at once.
struct WaitLoop {
    /// Its reports, if there is a listener. Declared before the guard, so that giving up is reported before the
    /// claim is left.
    waiting: Option<Waiting>,
    guard: ClaimGuard,
    started: Moment,
    open_step: OpenStep,
    /// Whether the engine has ever answered: then the claim has a place to return to.
    answered: bool,
    /// When to give up on an engine that has not answered.
    give_up: Moment,
    /// How many more times giving up may be put off.
    put_off: u32,
    /// The engine's last error, if one came instead of an answer, and when it came.
    last_failure: Option<(Moment, Error)>,
    tries: u32,
    /// When to try again.
    retry_at: Moment,
    /// When to have the watchdog check whether the engine can be reached.
    doubt_at: Moment,
    /// When to wake up without a turn: the earliest of all these.
    ring_at: Moment,
    /// How many times in a row the engine's answer led to another request at once.
    spins: u32,
    /// For a once: the last grant that was received too late to be started.
    unstarted: Option<Fence>,
    /// Set once a turn has come that the engine must confirm before it can be taken: the wait lasts at least until
    /// then.
    turn_by: Option<Moment>,
}

/// An engine that keeps giving wrong answers at once must not occupy the thread.
const MOST_SPINS: u32 = 4;

/// What the loop waits for besides its turn: an answer of the engine, or the local line.
enum OpenStep {
    None,
    /// Nothing yet: the claim waits for its turn in the local line.
    Line(Box<local_line::LocalPlace>),
    Claim(Step<Verdict>),
    /// A turn too old to start work on: it is renewed first.
    Confirm(Step<Vec<Renewed>>),
    /// A turn of a once that was not started: the engine must forget that it was given.
    Undo(Step<Left>),
}

enum LoopEvent {
    OurTurn,
    Verdict(Result<Verdict>),
    Confirmed(Result<Vec<Renewed>>),
    Undone(Result<Left>),
    Claim(ClaimEvent),
}

impl WaitLoop {
    fn new(guard: ClaimGuard, open_step: OpenStep, started: Moment, span: Span) -> WaitLoop {
        let waiting = Waiting::new(&guard.core().table.reporter, guard.live(), span, started);
        let asks = !matches!(open_step, OpenStep::Line(_));
        let mut wait_loop = WaitLoop {
            waiting,
            guard,
            started,
            open_step,
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
            turn_by: None,
        };
        if asks {
            wait_loop.asks(started);
        }
        wait_loop
    }

    fn explain(&self, error: Error) -> Error {
        self.core().explain(error, "acquire", &self.live().claim.name)
    }

    /// Continues without the engine. Whatever the engine may have of this claim is left when `self` is dropped.
    fn fall_back(&mut self) -> Result<AcquireOutcome> {
        let waited = self.core().world.now().since(self.started);
        let span = self.ends();
        self.guard.fall_back(waited, &span).map(AcquireOutcome::Granted)
    }

    /// The hold is about to start. Returns the span of the wait, for reports about it.
    fn ends(&mut self) -> Span {
        self.waiting.as_mut().map_or_else(Span::none, Waiting::ends)
    }

    fn goes_on_without(&self) -> bool {
        self.live().outage() != OnOutage::Closed
    }

    /// Reports an end without a grant; a grant is reported when the hold starts.
    fn report(&mut self, end: &Result<AcquireOutcome>) {
        if self.waiting.is_none() || matches!(end, Ok(AcquireOutcome::Granted(_))) {
            return;
        }
        let now = self.core().world.now();
        let Some(waiting) = &mut self.waiting else { return };
        match end {
            Ok(AcquireOutcome::Granted(_)) => {}
            Ok(AcquireOutcome::Busy(_, held_by)) => waiting.busy(held_by.holder(), now),
            Ok(AcquireOutcome::Settled(_)) => waiting.ended_before("settled", now),
            Ok(AcquireOutcome::Unsettled) => waiting.ended_before("unsettled", now),
            Err(error) => waiting.failed(error, now),
        }
    }

    /// The loop.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<Result<AcquireOutcome>> {
        loop {
            let alarms = [self.deadline(), self.give_up, self.retry_at, self.doubt_at];
            self.ring_at = alarms.into_iter().fold(Moment::FAR, Moment::min);
            let heard = ready!(self.poll_heard(cx));
            if let Some(end) = self.react(heard).transpose() {
                return Poll::Ready(end);
            }
        }
    }

    /// Handles an event. Returns the outcome if the wait is over.
    fn react(&mut self, heard: LoopEvent) -> Result<Option<AcquireOutcome>> {
        let now = self.core().world.now();
        if !matches!(heard, LoopEvent::Claim(ClaimEvent::Rung)) {
            self.retry_at = Moment::FAR;
        }
        match heard {
            LoopEvent::Verdict(Ok(verdict)) => return self.heard(verdict, now),
            LoopEvent::Undone(Ok(_)) => self.undone(now),
            LoopEvent::Confirmed(Ok(answers)) => {
                return Ok(self.confirmed(answers, now)?.map(AcquireOutcome::Granted));
            }
            LoopEvent::Verdict(Err(error)) => {
                if !error.may_have_happened() {
                    self.live().with(|state, _| state.answered());
                }
                self.failed(error, now)?;
            }
            LoopEvent::Confirmed(Err(error)) | LoopEvent::Undone(Err(error)) => {
                self.failed(error, now)?;
            }
            LoopEvent::Claim(ClaimEvent::Turn(Turn::Granted(grant))) => {
                return Ok(self.start_on_push(grant, now).map(AcquireOutcome::Granted));
            }
            LoopEvent::Claim(ClaimEvent::Turn(Turn::Settled(outcome))) => {
                return self.ended_before(Verdict::Settled(outcome)).map(Some);
            }
            LoopEvent::Claim(ClaimEvent::Turn(Turn::Ended(
                ended @ (Ended::Closed | Ended::Conflict { .. }),
            ))) => return Err(ended.into()),
            LoopEvent::Claim(ClaimEvent::Rung) if now >= self.deadline() => {
                return self.wait_over(now).map(Some);
            }
            LoopEvent::OurTurn | LoopEvent::Claim(ClaimEvent::Rung) if self.is_down() => {
                return self.fall_back().map(Some);
            }
            // It has its turn in the local line: now ask the engine.
            LoopEvent::OurTurn => self.ask_again(now),
            LoopEvent::Claim(ClaimEvent::Rung) if self.stands_in_local_line() => {}
            LoopEvent::Claim(ClaimEvent::Rung) if now >= self.give_up && self.gives_up(now) => {
                return Err(self.no_answer(now));
            }
            LoopEvent::Claim(ClaimEvent::Rung) => self.rung(now),
            LoopEvent::Claim(ClaimEvent::Turn(_)) => self.ask_again(now),
        }
        Ok(None)
    }

    /// Handles the answer to the renewal of a turn that was too old to start. Returns the hold if it started.
    fn confirmed(&mut self, answers: Vec<Renewed>, now: Moment) -> Result<Option<HeldClaim>> {
        match answers.into_iter().next() {
            Some(Renewed::Held(grant)) => return Ok(self.start(grant, now)),
            Some(Renewed::Unknown(error)) => self.failed(error, now)?,
            // The turn has run out, but the ticket has not.
            _ => self.ask_again(now),
        }
        Ok(None)
    }

    /// Does what is due, except giving up.
    fn rung(&mut self, now: Moment) {
        if now >= self.doubt_at {
            self.doubt(now);
        }
        if now >= self.retry_at {
            self.ask_again(now);
        }
    }

    /// Whether the engine cannot be reached and this claim would continue without it.
    fn is_down(&self) -> bool {
        self.goes_on_without()
            && !self.stands_in_local_line()
            && self.core().is_down(&self.live().claim.name)
    }

    fn stands_in_local_line(&self) -> bool {
        matches!(self.open_step, OpenStep::Line(_))
    }

    /// The engine has answered the claim. Returns the outcome if the wait is over.
    fn heard(&mut self, verdict: Verdict, now: Moment) -> Result<Option<AcquireOutcome>> {
        self.has_answered();
        self.live().with(|state, _| state.answered());
        match verdict {
            Verdict::Granted(grant) => {
                return Ok(self.start(grant, now).map(AcquireOutcome::Granted));
            }
            Verdict::Waiting(place) => self.stand(place, now),
            Verdict::Busy(holder) => {
                self.refused();
                return Ok(Some(self.busy(holder)));
            }
            Verdict::Unsettled if self.unstarted.is_some() => self.undo(now),
            verdict => return self.ended_before(verdict).map(Some),
        }
        Ok(None)
    }

    fn stand(&mut self, place: Place, now: Moment) {
        if let Some(waiting) = &mut self.waiting {
            waiting.stands(&place);
        }
        self.turn_by = None;
        self.core().table.tell(self.live(), |state, _| state.stands(place, now));
        if self.goes_on_without() {
            self.core().watch_line(self.live());
        }
    }

    fn busy(&mut self, holder: Option<Holder>) -> AcquireOutcome {
        AcquireOutcome::Busy(self.guard.take(), HeldBy::Holder(holder))
    }

    /// The outcome if there is nothing left to wait for.
    fn ended_before(&self, verdict: Verdict) -> Result<AcquireOutcome> {
        self.refused();
        match (verdict, self.live().claim.once) {
            (Verdict::Settled(outcome), Some(_)) => Ok(AcquireOutcome::Settled(outcome)),
            (Verdict::Unsettled, Some(_)) => Ok(AcquireOutcome::Unsettled),
            _ => Err(not_asked_for()),
        }
    }

    fn poll_heard(&mut self, cx: &mut Context<'_>) -> Poll<LoopEvent> {
        if self.core().forked() {
            return Poll::Ready(LoopEvent::Claim(ClaimEvent::Turn(Turn::Ended(Ended::Closed))));
        }
        let answer = match &mut self.open_step {
            OpenStep::None => Poll::Pending,
            OpenStep::Line(place) => place.poll_turn(cx).map(|()| LoopEvent::OurTurn),
            OpenStep::Claim(step) => Pin::new(step).poll(cx).map(LoopEvent::Verdict),
            OpenStep::Confirm(step) => Pin::new(step).poll(cx).map(LoopEvent::Confirmed),
            OpenStep::Undo(step) => Pin::new(step).poll(cx).map(LoopEvent::Undone),
        };
        if answer.is_ready() {
            if let OpenStep::Line(place) = std::mem::replace(&mut self.open_step, OpenStep::None) {
                self.live().keep_local_place(place);
            }
            return answer;
        }
        let live = self.guard.live();
        let event = live.poll_event(cx, self.ring_at);
        if event.is_pending() {
            self.guard.core().table.schedule(live, self.ring_at);
            self.spins = 0;
        }
        event.map(LoopEvent::Claim)
    }

    /// The engine records that a once has begun when its turn is taken, not when it is pushed, so such a turn is
    /// renewed first.
    fn start_on_push(&mut self, mut grant: Grant, now: Moment) -> Option<HeldClaim> {
        if self.live().claim.once.is_some() {
            grant.start_by = Moment::ORIGIN;
        }
        self.start(grant, now)
    }

    /// Starts a grant, or renews it first if it is old. Returns the hold if it started.
    fn start(&mut self, grant: Grant, now: Moment) -> Option<HeldClaim> {
        if now <= grant.start_by {
            let span = self.ends();
            self.guard.start(&grant, now, now.since(self.started), &span);
            return Some(self.guard.take().held(grant.fence));
        }
        if self.live().claim.once.is_some() {
            self.unstarted = Some(grant.fence);
        }
        // Set only once, so that an engine that is always slow cannot put off the end of the wait for ever.
        let turn_by = now + self.core().longest_silence();
        self.turn_by.get_or_insert(turn_by);
        if self.may_ask_at_once(now) {
            self.asks(now);
            let core = self.core().clone();
            let Claim { name, id, ttl, .. } = &self.live().claim;
            let fence = grant.fence;
            let renewal = Renewal::Hold { name: name.clone(), id: *id, fence, ttl: *ttl };
            let shard = core.engine.shard(name);
            self.open_step = OpenStep::Confirm(core.engine.renew(shard, &[renewal]));
        }
        None
    }

    /// The engine reports that the once was begun and never settled. If the grant that began it was this claim's own,
    /// and its caller never heard of that grant, no work was done: the engine has to forget the beginning, and is then
    /// asked again.
    fn undo(&mut self, now: Moment) {
        let Some(fence) = self.unstarted else { return };
        self.asks(now);
        let Claim { name, id, .. } = &self.live().claim;
        let settle = Some(Settle { fence, outcome: None });
        let leave = Leave { settle, ..Leave::new(name.clone(), *id) };
        self.open_step = OpenStep::Undo(self.core().engine.leave(&leave));
    }

    fn undone(&mut self, now: Moment) {
        self.unstarted = None;
        self.ask_again(now);
    }

    fn ask_again(&mut self, now: Moment) {
        if self.may_ask_at_once(now) {
            self.asks(now);
            let seen = self.core().table.seen();
            let claim = self.live().with(|state, request| state.again(request, seen));
            self.open_step = OpenStep::Claim(self.core().engine.claim(&claim));
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
        if self.live().with(|state, _| state.refused()) {
            self.core().table.remove(self.live());
        }
    }

    fn live(&self) -> &Arc<LiveClaim> {
        self.guard.live()
    }

    fn core(&self) -> &Arc<Core> {
        self.guard.core()
    }
}

/// Yields the outcome, and reports it.
impl Future for WaitLoop {
    type Output = Result<AcquireOutcome>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<AcquireOutcome>> {
        let this = self.get_mut();
        let end = ready!(this.poll_turn(cx)).map_err(|error| this.explain(error));
        if !this.core().forked() {
            this.report(&end);
        }
        Poll::Ready(end)
    }
}

impl Core {
    fn not_sent(&self, error: Error, claim: &Claim) -> Error {
        let error = self.explain(error, "acquire", &claim.name);
        if !self.forked() {
            self.table.reporter.not_sent(claim, &error);
        }
        error
    }
}
