//! The one renewing thread.
//!
//! It renews what is held and what waits, in a batch per shard of the engine, notices what has run
//! out, rings for those whose wait is over, and sends again the leaves that nobody acknowledged. What
//! is due is decided by the state of each claim; here it is only carried to the engine and back. It has a thread
//! and a connection of its own, so that blocked user code cannot starve it, and runs no foreign code: what it
//! has to report is said by another thread, and what it wakes runs elsewhere.

mod probes;

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::Ordering::SeqCst;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use self::probes::Probes;
use crate::core::claim_state::{ClaimState, Unheard};
use crate::core::handle::Core;
use crate::core::live_claim::LiveClaim;
use crate::core::outage::is_outage;
use crate::engine::{Engine, Step};
use crate::model::claim::{ClaimId, Left, Renewal, Renewed};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::options::Protection;
use crate::model::request::Request;
use crate::observe;
use crate::system;
use crate::world::Alarm;

/// The most renewals that go to the engine in one step.
const BATCH: usize = 256;

/// The most renewals and leaves that are under way at a time. More would only stand in a queue of the engine's,
/// where what is urgent could not pass them, and would seem to be unanswered.
const MOST_UNDER_WAY: usize = 4096;

/// How long a request may be under way at most before it counts as unanswered.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a panic: one that comes again at once must not keep the processor.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// Watches until no handle to the core is left and nothing is left to be done.
pub(crate) async fn watch(core: Arc<Core>, mut alarm: Box<dyn Alarm>) {
    let _replaceable = Replaceable(core.clone());
    core.table.reporter.keep_apart();
    while let Err(panic) = watch_until_panic(&core, &mut *alarm).await {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let reason = text.or_else(|| panic.downcast_ref().copied()).unwrap_or_default();
        observe::watchdog_panicked(reason);
        alarm.set(core.world.now() + AFTER_A_PANIC);
        poll_fn(|cx| alarm.poll_rung(cx)).await;
    }
}

/// Holds must not be lost because an engine panicked once: on a thread of our own that is an `Err`.
async fn watch_until_panic(core: &Arc<Core>, alarm: &mut dyn Alarm) -> std::thread::Result<()> {
    let mut rounds = std::pin::pin!(rounds(core.clone(), alarm));
    poll_fn(|cx| {
        if !system::is_own_thread() {
            return rounds.as_mut().poll(cx).map(Ok);
        }
        match catch_unwind(AssertUnwindSafe(|| rounds.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => Poll::Ready(Err(panic)),
        }
    })
    .await
}

async fn rounds(core: Arc<Core>, alarm: &mut dyn Alarm) {
    core.table.take_over();
    let (on_the_way, to_send) = (Vec::new(), BTreeMap::new());
    let mut dispatcher = Dispatcher { core, on_the_way, under_way: 0, to_send, lifeline: None };
    let mut probes = Probes::default();
    // Before anything is sent: the engine may look after the callers' connections from here, too.
    own_way(&dispatcher.core, &mut dispatcher.lifeline);
    loop {
        dispatcher.send_out();
        dispatcher.core.lines.pass_on(dispatcher.core.world.now());
        probes.send_out(&dispatcher.core, &mut dispatcher.lifeline);
        let next = dispatcher.core.table.settle_next_look().min(dispatcher.patience_ends());
        let next = next.min(probes.next()).min(dispatcher.core.lines.due());
        if dispatcher.core.abandoned.load(SeqCst) && dispatcher.core.table.is_idle() {
            return;
        }
        alarm.set(next);
        poll_fn(|cx| {
            let rung = alarm.poll_rung(cx).is_ready();
            let asked = dispatcher.core.table.watchdog_signal.poll_notified(cx).is_ready();
            let answered = dispatcher.poll_answers(cx) | probes.poll_answers(&dispatcher.core, cx);
            if rung || asked || answered { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// If the watchdog's thread ends after all, the next claim starts another.
struct Replaceable(Arc<Core>);

impl Drop for Replaceable {
    fn drop(&mut self) {
        self.0.watched.store(false, SeqCst);
    }
}

struct Dispatcher {
    core: Arc<Core>,
    on_the_way: Vec<InFlight>,
    /// How many renewals and leaves those are.
    under_way: usize,
    /// What is to be renewed, by when an answer is needed: what has least time goes first.
    to_send: BTreeMap<(Moment, ClaimId), Arc<LiveClaim>>,
    lifeline: Option<Arc<dyn Engine>>,
}

/// What is renewed together: what the same part of the same engine keeps.
type Shard = (Protection, u32);

/// The engine by way of a connection of the watchdog's own, where there is one.
fn own_way<'a>(core: &Core, lifeline: &'a mut Option<Arc<dyn Engine>>) -> &'a Arc<dyn Engine> {
    let own = || core.engine.lifeline().unwrap_or_else(|| core.engine.clone());
    lifeline.get_or_insert_with(own)
}

struct InFlight {
    step: SentStep,
    /// How many claims it is about.
    count: usize,
    /// A request that takes longer counts as unanswered: the engine may be stuck.
    patience_ends: Moment,
}

enum SentStep {
    Renew(Vec<(Arc<LiveClaim>, Renewal)>, Step<Vec<Renewed>>),
    Leave(Arc<LiveClaim>, Step<Left>),
}

impl Dispatcher {
    /// Sends what is due now, as far as there is room for it; only then others hear of what was found.
    fn send_out(&mut self) {
        let now = self.core.world.now();
        let mut found = self.core.table.look(now);
        for (live, work) in &mut found {
            let needed_by = std::mem::replace(&mut work.effects.renew, Moment::FAR);
            if needed_by != Moment::FAR {
                self.to_send.insert((needed_by, live.claim.id), live.clone());
            }
            // One that finds no room comes again by itself.
            if work.effects.leave && self.under_way < MOST_UNDER_WAY {
                let leave = live.with(|state, request| state.leave_of(request));
                let step = self.engine_of(live).leave(&leave);
                self.take_along(SentStep::Leave(live.clone(), step), 1, now + LONGEST_PATIENCE);
            }
        }
        self.send_renewals(now);
        for (live, work) in found {
            if work.effects.unheard == Unheard::Say {
                self.core.doubt(&live.claim.name);
            }
            self.core.table.carry_out(&live, work);
        }
    }

    fn send_renewals(&mut self, now: Moment) {
        let mut renewals: Vec<(Shard, Arc<LiveClaim>, Renewal)> = Vec::new();
        while self.under_way + renewals.len() < MOST_UNDER_WAY
            && let Some((_, live)) = self.to_send.pop_first()
        {
            let seen = self.core.table.seen();
            let Some(renewal) = live.with(|state, request| state.renewal(request, seen)) else {
                continue;
            };
            let shard = self.core.engine_of(&live).shard(&live.claim.name);
            renewals.push(((live.protection, shard), live, renewal));
        }
        renewals.sort_by_key(|(shard, ..)| *shard);
        for same_shard in renewals.chunk_by(|a, b| a.0 == b.0) {
            for batch in same_shard.chunks(BATCH) {
                self.renew(batch, now);
            }
        }
    }

    fn renew(&mut self, batch: &[(Shard, Arc<LiveClaim>, Renewal)], now: Moment) {
        let Some(((_, shard), first, _)) = batch.first() else { return };
        let renewals: Vec<_> = batch.iter().map(|(_, _, renewal)| renewal.clone()).collect();
        let patience = batch
            .iter()
            .map(|(_, live, _)| live.with(|state, request| state.patience(request, now)))
            .min();
        let step = self.engine_of(first).renew(*shard, &renewals);
        let claims = batch.iter().map(|(_, live, _)| live.clone());
        let asked = claims.zip(renewals).collect();
        self.take_along(
            SentStep::Renew(asked, step),
            batch.len(),
            now + patience.unwrap_or_default().min(LONGEST_PATIENCE),
        );
    }

    fn take_along(&mut self, step: SentStep, count: usize, patience_ends: Moment) {
        self.under_way += count;
        self.on_the_way.push(InFlight { step, count, patience_ends });
    }

    /// Who keeps the claim, by way of a connection of the watchdog's own.
    fn engine_of(&mut self, live: &LiveClaim) -> Arc<dyn Engine> {
        let Dispatcher { core, lifeline, .. } = self;
        match live.protection {
            Protection::Engine => own_way(core, lifeline).clone(),
            Protection::Local | Protection::None => core.stand_in().clone(),
        }
    }

    fn patience_ends(&self) -> Moment {
        let ends = self.on_the_way.iter().map(|in_flight| in_flight.patience_ends);
        ends.min().unwrap_or(Moment::FAR)
    }

    /// Takes in the answers that have come, and gives up on those that should have. Returns whether
    /// there were any.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.core.world.now();
        let before = self.on_the_way.len();
        let waiting = std::mem::take(&mut self.on_the_way);
        for mut in_flight in waiting {
            let stuck = now >= in_flight.patience_ends;
            let core = &self.core;
            let answered = match &mut in_flight.step {
                SentStep::Renew(asked, step) => match Pin::new(step).poll(cx) {
                    Poll::Ready(answer) => {
                        core.renewed(asked, answer, now);
                        true
                    }
                    Poll::Pending if stuck => {
                        core.renewed(asked, Err(no_answer()), now);
                        true
                    }
                    Poll::Pending => false,
                },
                SentStep::Leave(live, step) => match Pin::new(step).poll(cx) {
                    Poll::Ready(answer) => {
                        core.table.left(live, answer.ok());
                        true
                    }
                    Poll::Pending => stuck,
                },
            };
            if answered {
                self.under_way -= in_flight.count;
            } else {
                self.on_the_way.push(in_flight);
            }
        }
        self.on_the_way.len() < before
    }
}

impl Core {
    fn renewed(
        &self,
        asked: &[(Arc<LiveClaim>, Renewal)],
        answer: Result<Vec<Renewed>>,
        now: Moment,
    ) {
        let mut answers = answer.map(Vec::into_iter);
        let mut all_heard = Vec::new();
        for (live, renewal) in asked {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_else(|| Renewed::Unknown(no_answer())),
                // Each claim needs an error of its own; the text says what the engine said.
                Err(error) => {
                    let unknown = Error::new(error.kind(), error.to_string());
                    Renewed::Unknown(unknown.in_doubt())
                }
            };
            self.doubt_if_unanswered(live, &answer);
            let told = |state: &mut ClaimState, request: &Request| {
                state.renewed(request, renewal, answer, now)
            };
            let mut work = live.tell(told);
            self.table.renewed(live, now);
            // What came of all of them is said together.
            let outcome = work.effects.renewal.take();
            all_heard.extend(outcome.map(|outcome| (live.clone(), outcome)));
            self.table.carry_out(live, work);
        }
        self.table.reporter.renewals(all_heard);
    }
}

impl Core {
    /// Starts the watchdog with the first claim.
    pub(crate) fn be_watched(self: &Arc<Self>) -> Result<()> {
        if self.watched.load(SeqCst) {
            return Ok(());
        }
        let _one_at_a_time = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.watched.load(SeqCst) {
            return Ok(());
        }
        let core = self.clone();
        // Before it starts: one that ends at once says so by taking this back.
        self.watched.store(true, SeqCst);
        let started = self.world.start(Box::new(|alarm| Box::pin(watch(core, alarm))));
        started.map_err(|error| {
            self.watched.store(false, SeqCst);
            let reason = format!("the watchdog's thread cannot be started: {error}");
            Error::new(ErrorKind::Internal, reason).next("see the limits of this process")
        })
    }

    /// A renewal that nobody answered may be the first sign of an outage.
    fn doubt_if_unanswered(&self, live: &LiveClaim, answer: &Renewed) {
        if let Renewed::Unknown(error) = answer
            && live.protection == Protection::Engine
            && is_outage(error)
        {
            self.doubt(&live.claim.name);
        }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "the engine did not answer in time").in_doubt()
}
