//! The one renewing thread.
//!
//! It renews what is held and what waits, in a batch per shard of the engine, notices what has run
//! out, rings for those whose wait is over, and sends again the leaves that nobody acknowledged. What
//! is due is decided by the stakes; here it is only carried to the engine and back. It has a thread
//! and a connection of its own, so that blocked user code cannot starve it.

mod probes;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll};
use std::time::Duration;

use self::probes::Probes;
use crate::claim::{Left, Renewal, Renewed};
use crate::client::Core;
use crate::clock::Alarm;
use crate::engine::{Engine, Step};
use crate::error::{Error, ErrorKind};
use crate::moment::Moment;
use crate::options::Protection;
use crate::stake::{Stake, Todo};
use crate::turn::not_in_circles;

/// The most renewals that go to the engine in one step.
const BATCH: usize = 256;

/// How long a request may be under way at most before it counts as unanswered.
const LONGEST_PATIENCE: Duration = Duration::from_secs(5);

/// Watches until no handle to the core is left and nothing is left to be done.
pub(crate) async fn watch(core: Arc<Core>, mut alarm: Box<dyn Alarm>) {
    let _replaceable = Replaceable(core.clone());
    core.slots.take_over();
    let mut errands = Errands { core, on_the_way: Vec::new(), lifeline: None };
    let mut probes = Probes::default();
    loop {
        errands.send_out();
        errands.core.lines.pass_on(errands.core.world.now());
        probes.send_out(&errands.core, &mut errands.lifeline);
        let next = errands.core.slots.settle_next_look().min(errands.patience_ends());
        let next = next.min(probes.next()).min(errands.core.lines.due());
        if errands.core.abandoned.load(SeqCst) && errands.core.slots.is_idle() {
            return;
        }
        alarm.set(next);
        poll_fn(|cx| {
            let rung = alarm.poll_rung(cx).is_ready();
            let asked = errands.core.slots.bell.poll_rung(cx).is_ready();
            let answered = errands.poll_answers(cx) | probes.poll_answers(&errands.core, cx);
            if rung || asked || answered { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }
}

/// If an engine panics on this thread, the next claim starts another watchdog.
struct Replaceable(Arc<Core>);

impl Drop for Replaceable {
    fn drop(&mut self) {
        self.0.watched.store(false, SeqCst);
    }
}

struct Errands {
    core: Arc<Core>,
    on_the_way: Vec<Errand>,
    lifeline: Option<Arc<dyn Engine>>,
}

/// What is renewed together: what the same part of the same engine keeps.
type Shard = (Protection, u32);

/// The engine by way of a connection of the watchdog's own, where there is one.
fn own_way<'a>(core: &Core, lifeline: &'a mut Option<Arc<dyn Engine>>) -> &'a Arc<dyn Engine> {
    let own = || core.engine.lifeline().unwrap_or_else(|| core.engine.clone());
    lifeline.get_or_insert_with(own)
}

struct Errand {
    step: Question,
    /// A request that takes longer counts as unanswered: the engine may be stuck.
    patience_ends: Moment,
}

enum Question {
    Renew(Vec<(Arc<Stake>, Renewal)>, Step<Vec<Renewed>>),
    Leave(Arc<Stake>, Step<Left>),
}

impl Errands {
    /// Sends what is due now.
    fn send_out(&mut self) {
        let now = self.core.world.now();
        let mut renewals: Vec<(Shard, Arc<Stake>, Renewal)> = Vec::new();
        for (stake, mut todo) in self.core.slots.look(now) {
            if let Some(renewal) = todo.renew.take() {
                let shard = self.core.engine_of(&stake).shard(&stake.claim.name);
                renewals.push(((stake.protection, shard), stake.clone(), renewal));
            }
            if let Some(leave) = todo.leave.take() {
                let step = self.engine_of(&stake).leave(&leave);
                self.take_along(Question::Leave(stake.clone(), step), now + LONGEST_PATIENCE);
            }
            self.core.slots.carry_out(&stake, &mut todo);
        }
        renewals.sort_by_key(|(shard, ..)| *shard);
        for same_shard in renewals.chunk_by(|a, b| a.0 == b.0) {
            for batch in same_shard.chunks(BATCH) {
                self.renew(batch, now);
            }
        }
    }

    fn renew(&mut self, batch: &[(Shard, Arc<Stake>, Renewal)], now: Moment) {
        let Some(((_, shard), first, _)) = batch.first() else { return };
        let renewals: Vec<_> = batch.iter().map(|(_, _, renewal)| renewal.clone()).collect();
        let patience = batch.iter().map(|(_, stake, _)| stake.patience(now)).min();
        let step = self.engine_of(first).renew(*shard, &renewals);
        let stakes = batch.iter().map(|(_, stake, _)| stake.clone());
        let asked = stakes.zip(renewals).collect();
        self.take_along(
            Question::Renew(asked, step),
            now + patience.unwrap_or_default().min(LONGEST_PATIENCE),
        );
    }

    fn take_along(&mut self, step: Question, patience_ends: Moment) {
        self.on_the_way.push(Errand { step, patience_ends });
    }

    /// Who keeps the claim, by way of a connection of the watchdog's own.
    fn engine_of(&mut self, stake: &Stake) -> Arc<dyn Engine> {
        let Errands { core, lifeline, .. } = self;
        match stake.protection {
            Protection::Engine => own_way(core, lifeline).clone(),
            Protection::Local | Protection::None => core.stand_in().clone(),
        }
    }

    fn patience_ends(&self) -> Moment {
        let ends = self.on_the_way.iter().map(|errand| errand.patience_ends);
        ends.min().unwrap_or(Moment::FAR)
    }

    /// Takes in the answers that have come, and gives up on those that should have. Returns whether
    /// there were any.
    fn poll_answers(&mut self, cx: &mut Context<'_>) -> bool {
        let now = self.core.world.now();
        let before = self.on_the_way.len();
        let waiting = std::mem::take(&mut self.on_the_way);
        for mut errand in waiting {
            let stuck = now >= errand.patience_ends;
            let core = &self.core;
            let answered = match &mut errand.step {
                Question::Renew(asked, step) => match Pin::new(step).poll(cx) {
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
                Question::Leave(stake, step) => match Pin::new(step).poll(cx) {
                    Poll::Ready(answer) => {
                        core.slots.left(stake, answer.ok());
                        true
                    }
                    Poll::Pending => stuck,
                },
            };
            if !answered {
                self.on_the_way.push(errand);
            }
        }
        self.on_the_way.len() < before
    }
}

impl Core {
    fn renewed(
        &self,
        asked: &[(Arc<Stake>, Renewal)],
        answer: Result<Vec<Renewed>, Error>,
        now: Moment,
    ) {
        let mut answers = answer.map(Vec::into_iter);
        for (stake, renewal) in asked {
            let answer = match &mut answers {
                Ok(answers) => answers.next().unwrap_or_else(|| Renewed::Unknown(no_answer())),
                // Each stake needs an error of its own; the text says what the engine said.
                Err(error) => {
                    let unknown = Error::new(error.kind(), error.to_string());
                    Renewed::Unknown(unknown.in_doubt())
                }
            };
            let mut todo = Todo::default();
            let next = stake.renewed(renewal, answer, now, &mut todo);
            self.slots.carry_out(stake, &mut todo);
            self.slots.schedule(&stake.claim.name, not_in_circles(next, now));
        }
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "the engine did not answer in time").in_doubt()
}
