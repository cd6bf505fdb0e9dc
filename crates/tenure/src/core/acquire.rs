//! The waiting loop: from a request to a held claim, a refusal or the end of the wait.
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
    /// Takes the place in line now, and returns the future that waits for the turn.
    pub(crate) fn join<T: FromHeld>(
        self,
        handle: Arc<Handle>,
    ) -> impl Future<Output = Result<T>> + Send + use<T> {
        let may_wait = self.wait != Some(Duration::ZERO);
        let attempt = self.begin(handle, may_wait);
        async move {
            match attempt? {
                FirstAttempt::Held(held) => Ok(T::from_held(held.given())),
                FirstAttempt::Waiting(wait) => {
                    wait.await?.acquired().map(|held| T::from_held(held.given()))
                }
            }
        }
    }

    /// Takes it if it is free now; `None` if someone holds it or waits for it.
    pub(crate) async fn try_acquire<T: FromHeld>(self, handle: Arc<Handle>) -> Result<Option<T>> {
        match self.begin(handle, false)? {
            FirstAttempt::Held(held) => Ok(Some(T::from_held(held.given()))),
            FirstAttempt::Waiting(wait) => {
                Ok(wait.await?.tried().map(|held| T::from_held(held.given())))
            }
        }
    }

    /// Takes the turn of a once, or hears what became of it.
    pub(crate) async fn begin_once(self, handle: Arc<Handle>) -> Result<AcquireOutcome> {
        let may_wait = self.wait != Some(Duration::ZERO);
        match self.begin(handle, may_wait)? {
            FirstAttempt::Held(held) => Ok(AcquireOutcome::Granted(held)),
            FirstAttempt::Waiting(wait) => wait.await,
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
    fn begin(mut self, handle: Arc<Handle>, may_wait: bool) -> Result<FirstAttempt> {
        let core = &handle.core;
        let check = || self.check(core.engine.profile());
        let ready = core.open().and_then(|()| check()).and_then(|()| core.be_watched());
        let (id, seen) = match ready.and_then(|()| core.world.mint()) {
            Ok(id) => (id, core.table.seen()),
            Err(error) => return Err(core.not_sent(error, &self.claim)),
        };
        (self.claim.id, self.claim.seen, self.claim.may_wait) = (id, seen, may_wait);
        if self.claim.details.trace.is_none()
            && let Some(trace) = core.trace_source.trace()
        {
            self.details().trace = Some(trace);
        }
        let span = core.table.reporter.acquiring(&self.claim);
        let guard = ClaimGuard::new(handle, self.into_live());
        let (core, live) = (guard.core(), guard.live());
        core.table.insert(live.clone());
        // A close that came meanwhile has not seen this one.
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

/// A claim that was not granted on the spot.
struct WaitLoop {
    /// Before the guard, so that who loses interest is said to have before the claim has left.
    waiting: Waiting,
    guard: ClaimGuard,
    open_step: OpenStep,
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

/// What the loop waits for besides its turn: the engine's answer, or the local line.
enum OpenStep {
    None,
    /// Nothing yet: it waits for its turn in this process's own line.
    Line(Box<local_line::LocalPlace>),
    Claim(Step<Verdict>),
    /// A turn that is too old to start on: renew first.
    Confirm(Step<Vec<Renewed>>),
    /// A turn of a once that was not started on: the engine forgets that it was given.
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
        let reporter = guard.core().table.reporter.clone();
        let waiting = Waiting::new(reporter, guard.live().clone(), span, started);
        let asks = !matches!(open_step, OpenStep::Line(_));
        let mut wait_loop = WaitLoop {
            waiting,
            guard,
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
        };
        if asks {
            wait_loop.asks(started);
        }
        wait_loop
    }

    async fn finish(mut self) -> Result<AcquireOutcome> {
        let end = self.wait_for_turn().await.map_err(|error| self.explain(error));
        if !self.core().forked() {
            self.report(&end);
        }
        end
    }

    fn explain(&self, error: Error) -> Error {
        self.core().explain(error, "acquire", &self.live().claim.name)
    }

    /// Goes on without the engine. What the engine may have of the claim is left when this is dropped.
    fn fall_back(&mut self) -> Result<AcquireOutcome> {
        let waited = self.core().world.now().since(self.waiting.started);
        self.guard.fall_back(waited, &self.waiting.ends()).map(AcquireOutcome::Granted)
    }

    fn goes_on_without(&self) -> bool {
        self.live().outage() != OnOutage::Closed
    }

    /// Reports an end without a grant; a grant was reported when the hold started.
    fn report(&mut self, end: &Result<AcquireOutcome>) {
        let now = self.core().world.now();
        match end {
            Ok(AcquireOutcome::Granted(_)) => {}
            Ok(AcquireOutcome::Busy(_, held_by)) => self.waiting.busy(held_by.holder(), now),
            Ok(AcquireOutcome::Settled(_)) => self.waiting.ended_before("settled", now),
            Ok(AcquireOutcome::Unsettled) => self.waiting.ended_before("unsettled", now),
            Err(error) => self.waiting.failed(error, now),
        }
    }

    /// The loop.
    async fn wait_for_turn(&mut self) -> Result<AcquireOutcome> {
        loop {
            let alarms = [self.deadline(), self.give_up, self.retry_at, self.doubt_at];
            self.ring_at = alarms.into_iter().fold(Moment::FAR, Moment::min);
            let heard = poll_fn(|cx| self.poll_heard(cx)).await;
            let now = self.core().world.now();
            if !matches!(heard, LoopEvent::Claim(ClaimEvent::Rung)) {
                self.retry_at = Moment::FAR;
            }
            match heard {
                LoopEvent::Verdict(Ok(verdict)) => {
                    if let Some(end) = self.heard(verdict, now)? {
                        return Ok(end);
                    }
                }
                LoopEvent::Undone(Ok(_)) => self.undone(now),
                LoopEvent::Confirmed(Ok(answers)) => {
                    if let Some(held) = self.confirmed(answers, now)? {
                        return Ok(AcquireOutcome::Granted(held));
                    }
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
                    if let Some(held) = self.start_on_push(grant, now) {
                        return Ok(AcquireOutcome::Granted(held));
                    }
                }
                LoopEvent::Claim(ClaimEvent::Turn(Turn::Settled(outcome))) => {
                    return self.ended_before(Verdict::Settled(outcome));
                }
                LoopEvent::Claim(ClaimEvent::Turn(Turn::Ended(
                    ended @ (Ended::Closed | Ended::Conflict { .. }),
                ))) => return Err(ended.into()),
                LoopEvent::Claim(ClaimEvent::Rung) if now >= self.deadline() => {
                    return self.wait_over(now);
                }
                LoopEvent::OurTurn | LoopEvent::Claim(ClaimEvent::Rung) if self.is_down() => {
                    return self.fall_back();
                }
                // It has its turn here: now the engine is asked.
                LoopEvent::OurTurn => self.ask_again(now),
                LoopEvent::Claim(ClaimEvent::Rung) if self.stands_in_local_line() => {}
                LoopEvent::Claim(ClaimEvent::Rung) if now >= self.give_up && self.gives_up(now) => {
                    return Err(self.no_answer(now));
                }
                LoopEvent::Claim(ClaimEvent::Rung) => self.rung(now),
                LoopEvent::Claim(ClaimEvent::Turn(_)) => self.ask_again(now),
            }
        }
    }

    /// A turn that was too old to start on was renewed, or was not. Returns the hold if it started.
    fn confirmed(&mut self, answers: Vec<Renewed>, now: Moment) -> Result<Option<HeldClaim>> {
        match answers.into_iter().next() {
            Some(Renewed::Held(grant)) => return Ok(self.start(grant, now)),
            Some(Renewed::Unknown(error)) => self.failed(error, now)?,
            // The turn has run out. The ticket has not.
            _ => self.ask_again(now),
        }
        Ok(None)
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

    /// Whether the engine is out of reach for a claim that would go on without it.
    fn is_down(&self) -> bool {
        self.goes_on_without()
            && !self.stands_in_local_line()
            && self.core().is_down(&self.live().claim.name)
    }

    fn stands_in_local_line(&self) -> bool {
        matches!(self.open_step, OpenStep::Line(_))
    }

    /// The engine has answered the claim. Returns how the wait ended, if it did.
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
        self.waiting.stands(&place);
        self.core().table.tell(self.live(), |state, _| state.stands(place, now));
        if self.goes_on_without() {
            self.core().watch_line();
        }
    }

    fn busy(&mut self, holder: Option<Holder>) -> AcquireOutcome {
        AcquireOutcome::Busy(self.guard.take(), HeldBy::Holder(holder))
    }

    /// There is nothing to wait for any more.
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

    /// The engine notes that a once has begun when its turn is taken, not when it is pushed: such a
    /// one is renewed first.
    fn start_on_push(&mut self, mut grant: Grant, now: Moment) -> Option<HeldClaim> {
        if self.live().claim.once.is_some() {
            grant.start_by = Moment::ORIGIN;
        }
        self.start(grant, now)
    }

    /// Starts on a grant, or has it renewed first if it is old. Returns the hold if it started.
    fn start(&mut self, grant: Grant, now: Moment) -> Option<HeldClaim> {
        if now <= grant.start_by {
            let span = self.waiting.ends();
            self.guard.start(&grant, now, now.since(self.waiting.started), &span);
            return Some(self.guard.take().held(grant.fence));
        }
        if self.live().claim.once.is_some() {
            self.unstarted = Some(grant.fence);
        }
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

    /// The engine says that it was begun and never settled. If that was this claim, whose caller has never
    /// heard of its turn, it was not: the engine forgets it, and is asked again.
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

impl Core {
    fn not_sent(&self, error: Error, claim: &Claim) -> Error {
        let error = self.explain(error, "acquire", &claim.name);
        if !self.forked() {
            self.table.reporter.not_sent(claim, &error);
        }
        error
    }
}
