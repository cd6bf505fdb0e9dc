//! The watchdog: the thread that renews.
//!
//! It renews holds and places, in a batch per shard of the engine; notices what has run out; wakes the callers
//! whose wait is over; and sends again the leaves that were not acknowledged. The state of each claim decides what
//! is due; the watchdog only exchanges requests and answers with the engine. It has its own thread and connection,
//! so blocked user code cannot starve it. It runs no foreign code: another thread makes its reports, and the tasks
//! it wakes run elsewhere.

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

/// The largest number of renewals in one step of the engine.
const BATCH: usize = 256;

/// The largest number of renewals and leaves under way at a time. More would only wait in a queue of the engine,
/// where urgent ones could not overtake them, and would look unanswered.
const MOST_UNDER_WAY: usize = 4096;

/// The longest time that a request may be under way before it counts as unanswered.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// How long to wait after a panic: one that repeats at once must not occupy the processor.
const AFTER_A_PANIC: Duration = Duration::from_millis(100);

/// Runs until there is no handle to the core and nothing left to do.
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

/// Holds must not be lost because an engine panicked once: on the watchdog's own thread, a panic is returned as an
/// `Err`.
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
    // Before anything is sent: the engine may also watch the callers' connections from here.
    own_way(&dispatcher.core, &mut dispatcher.lifeline);
    loop {
        if let Some(handover) = &dispatcher.core.handover {
            handover.look();
        }
        dispatcher.send_out();
        dispatcher.core.lines.pass_on(dispatcher.core.world.now());
        probes.send_out(&dispatcher.core, &mut dispatcher.lifeline);
        let next = dispatcher.core.table.settle_next_look().min(dispatcher.patience_ends());
        let next = next.min(probes.next()).min(dispatcher.core.lines.due());
        let handover = dispatcher.core.handover.clone();
        let next = next.min(handover.as_ref().map_or(Moment::FAR, |handover| handover.next()));
        if dispatcher.core.abandoned.load(SeqCst) && dispatcher.core.table.is_idle() {
            return;
        }
        alarm.set(next);
        poll_fn(|cx| {
            let rung = alarm.poll_rung(cx).is_ready();
            let asked = dispatcher.core.table.watchdog_signal.poll_notified(cx).is_ready();
            let answered = dispatcher.poll_answers(cx) | probes.poll_answers(&dispatcher.core, cx);
            let handed = handover.as_ref().is_some_and(|handover| handover.poll_answers(cx));
            if rung || asked || answered || handed { Poll::Ready(()) } else { Poll::Pending }
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
    /// The number of renewals and leaves in them.
    under_way: usize,
    /// The claims to renew, by the time an answer is needed: the most urgent first.
    to_send: BTreeMap<(Moment, ClaimId), Arc<LiveClaim>>,
    lifeline: Option<Arc<dyn Engine>>,
}

/// What is renewed together: claims kept by the same part of the same engine. Places travel apart from holds, so
/// that a slow answer about places does not make holds count as unanswered.
type Together = (Protection, u32, bool);

/// The engine, over the watchdog's own connection if it has one.
fn own_way<'a>(core: &Core, lifeline: &'a mut Option<Arc<dyn Engine>>) -> &'a Arc<dyn Engine> {
    let own = || core.engine.lifeline().unwrap_or_else(|| core.engine.clone());
    lifeline.get_or_insert_with(own)
}

struct InFlight {
    step: SentStep,
    /// The number of claims in it.
    count: usize,
    /// A request that takes longer counts as unanswered: the engine may be stuck.
    patience_ends: Moment,
}

enum SentStep {
    Renew(Vec<(Arc<LiveClaim>, Renewal)>, Step<Vec<Renewed>>),
    Leave(Arc<LiveClaim>, Step<Left>),
}

impl Dispatcher {
    /// Sends what is due, as far as there is room. Everything else that follows from a look is done after that.
    fn send_out(&mut self) {
        let now = self.core.world.now();
        let mut found = self.core.table.look(now);
        for (live, work) in &mut found {
            let needed_by = std::mem::replace(&mut work.effects.renew, Moment::FAR);
            if needed_by != Moment::FAR {
                self.to_send.insert((needed_by, live.claim.id), live.clone());
            }
            // A leave that finds no room becomes due again.
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
        let mut renewals: Vec<(Together, Arc<LiveClaim>, Renewal)> = Vec::new();
        while self.under_way + renewals.len() < MOST_UNDER_WAY
            && let Some((_, live)) = self.to_send.pop_first()
        {
            let seen = self.core.table.seen();
            let Some(renewal) = live.with(|state, request| state.renewal(request, seen)) else {
                continue;
            };
            let shard = self.core.engine_of(&live).shard(&live.claim.name);
            let is_place = matches!(renewal, Renewal::Place(_));
            renewals.push(((live.protection, shard, is_place), live, renewal));
        }
        renewals.sort_by_key(|(together, ..)| *together);
        for together in renewals.chunk_by(|a, b| a.0 == b.0) {
            for batch in together.chunks(BATCH) {
                self.renew(batch, now);
            }
        }
    }

    fn renew(&mut self, batch: &[(Together, Arc<LiveClaim>, Renewal)], now: Moment) {
        let Some(((_, shard, _), first, _)) = batch.first() else { return };
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

    /// What keeps the claim, over the watchdog's own connection.
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

    /// Handles the answers that have arrived, and gives up on those that are overdue. Returns whether there were
    /// any.
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
                // Each claim needs its own error; the text is the engine's.
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
            // The renewals are reported together.
            let outcome = work.effects.renewal.take();
            all_heard.extend(outcome.map(|outcome| (live.clone(), outcome)));
            self.table.carry_out(live, work);
        }
        self.table.reporter.renewals(all_heard);
    }
}

impl Core {
    /// Starts the watchdog for the first claim.
    pub(crate) fn be_watched(self: &Arc<Self>) -> Result<()> {
        if self.watched.load(SeqCst) {
            return Ok(());
        }
        let _one_at_a_time = self.starting.lock().unwrap_or_else(PoisonError::into_inner);
        if self.watched.load(SeqCst) {
            return Ok(());
        }
        let core = self.clone();
        // Before it starts: a watchdog that ends at once resets this.
        self.watched.store(true, SeqCst);
        let started = self.world.start(Box::new(|alarm| Box::pin(watch(core, alarm))));
        started.map_err(|error| {
            self.watched.store(false, SeqCst);
            let reason = format!("the watchdog's thread cannot be started: {error}");
            Error::new(ErrorKind::Internal, reason).next("check the limits of this process")
        })
    }

    /// A renewal that was not answered may be the first sign of an outage.
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
