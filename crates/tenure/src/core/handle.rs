//! What all claims of one `Tenure` share.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::core::claim_state::Stake;
use crate::core::claim_table::Slots;
use crate::core::local_line;
use crate::core::outage::{Outage, StandIn};
use crate::core::trace_source::TraceSource;
use crate::engine::{Ack, Engine, Turns};
use crate::model::claim::{Broken, Ended, Fence, Note};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};
use crate::model::options::{OnOutage, Protection, check_text};
use crate::model::view::{Page, Scope, View};
use crate::observe::{End, Reporter};
use crate::system;
use crate::world::World;

/// What users hold on to; when the last one goes, the watchdog finishes its work and ends.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
}

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) slots: Arc<Slots>,
    pub(crate) lines: Arc<local_line::Lines>,
    pub(crate) outage: Outage,
    /// Keeps the holds that the engine did not grant; made with the first of them.
    stand_in: OnceLock<Arc<dyn Engine>>,
    pub(crate) abandoned: AtomicBool,
    pub(crate) closed: AtomicBool,
    pub(crate) watched: AtomicBool,
    pub(crate) starting: Mutex<()>,
    generation: u64,
    pub(crate) trace_source: TraceSource,
}

impl Core {
    pub(crate) fn new(engine: Arc<dyn Engine>, world: Arc<dyn World>) -> Core {
        let shard_of = {
            let engine = engine.clone();
            Box::new(move |name: &Name| engine.shard(name))
        };
        let reporter = Reporter::new(&engine.profile().label);
        let slots = Arc::new(Slots::new(world.clone(), shard_of, reporter));
        let turns: Weak<dyn Turns> = Arc::downgrade(&slots) as _;
        engine.attach(turns);
        let hurry = {
            let slots = slots.clone();
            move || slots.bell.ring()
        };
        Core {
            engine,
            lines: local_line::Lines::new(world.clone(), hurry),
            outage: Outage::default(),
            stand_in: OnceLock::new(),
            world,
            slots,
            abandoned: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            starting: Mutex::new(()),
            generation: system::generation(),
            trace_source: TraceSource::default(),
        }
    }

    /// A name as it is now; `None` if nobody uses it.
    pub(crate) async fn view(&self, name: &Name) -> Result<Option<View>> {
        let asked = async {
            name.check()?;
            self.open()?;
            self.engine.inspect(&Scope::Name(name.clone())).await
        };
        let page = asked.await.map_err(|error| self.explain(error, "inspect", name))?;
        Ok(page.views.into_iter().next())
    }

    pub(crate) async fn list(&self, space: Space, prefix: &str, all: &mut Vec<View>) -> Result<()> {
        let mut after = None;
        loop {
            let scope = Scope::Prefix { space, prefix: prefix.to_owned(), after, limit: 1000 };
            let asked = async {
                self.open()?;
                self.engine.inspect(&scope).await
            };
            let page = asked.await;
            let Page { views, more } =
                page.map_err(|error| self.explain(error, "list", &Name::unchecked(space, prefix)))?;
            after = views.last().map(|view| view.name.clone()).filter(|_| more);
            all.extend(views);
            if after.is_none() {
                return Ok(());
            }
        }
    }

    pub(crate) async fn break_hold(
        &self,
        name: &Name,
        fence: Fence,
        by: String,
        reason: String,
    ) -> Result<Broken> {
        let note = Note { by, reason };
        let asked = async {
            name.check()?;
            check_text("the reason", &note.reason)?;
            self.open()?;
            self.engine.break_hold(name, fence, &note).await
        };
        let broken = asked.await.map_err(|error| self.explain(error, "break", name))?;
        if broken == Broken::Done {
            self.slots.reporter.broken(name, fence, &note);
        }
        Ok(broken)
    }

    /// Refuses work for a closed or forked connection. After a fork nothing else may be touched:
    /// another thread of the parent may have held any of its locks.
    pub(crate) fn open(&self) -> Result<()> {
        if self.forked() || self.closed.load(SeqCst) { Err(Error::closed()) } else { Ok(()) }
    }

    pub(crate) fn forked(&self) -> bool {
        self.generation != system::generation()
    }

    /// Who keeps the claim: the engine, or what stands in for it.
    pub(crate) fn engine_of(&self, stake: &Stake) -> &Arc<dyn Engine> {
        match stake.protection {
            Protection::Engine => &self.engine,
            Protection::Local | Protection::None => self.stand_in(),
        }
    }

    pub(crate) fn stand_in(&self) -> &Arc<dyn Engine> {
        self.stand_in.get_or_init(|| Arc::new(StandIn::new(self.world.clone())))
    }

    /// Leaves a claim, held or waiting. Never blocks: this is what `Drop` does. Only what was given
    /// to its caller is kept for `hold_for`.
    pub(crate) fn leave(&self, stake: &Arc<Stake>, given: bool) {
        // What a once left must not wait for its leave.
        let may_be_kept = given && !stake.terms.hold_for.is_zero() && stake.claim.once.is_none();
        let now = if may_be_kept { self.world.now() } else { Moment::FAR };
        let (leave, lost) = stake.leave(now);
        if let Some(ended) = lost.filter(|ended| *ended != Ended::Closed) {
            let end = End { stake, holding: None, world: &self.world };
            self.slots.reporter.released_late(end, Some(ended));
        }
        let Some(leave) = leave else {
            if stake.is_kept() {
                self.slots.schedule(stake, Moment::ORIGIN);
            } else {
                // Lost, and its owner has come to the end; or never sent.
                drop(stake.part());
                if stake.is_over() {
                    self.slots.remove(stake);
                }
            }
            return;
        };
        self.engine_of(stake).leave_soon(leave, Ack::new(self.slots.clone(), stake.clone()));
        if stake.outage() == OnOutage::Local {
            // Behind the leave, so that the next of this process asks after it. Not when that is answered:
            // in an outage that takes a ttl.
            drop(stake.part());
        }
        if stake.is_leaving() {
            let is_down = self.is_down(&stake.claim.name);
            self.slots.schedule(stake, stake.await_answer(self.world.now(), is_down));
        }
    }

    /// Whether the name's part of the engine is out of reach.
    pub(crate) fn is_down(&self, name: &Name) -> bool {
        self.outage.any.load(SeqCst) && self.outage.is_down(self.engine.shard(name))
    }

    pub(crate) fn explain(&self, error: Error, operation: &'static str, name: &Name) -> Error {
        error.context(operation, name.as_str(), &self.engine.profile().label)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if !self.core.forked() {
            self.core.abandoned.store(true, SeqCst);
            self.core.slots.bell.ring();
        }
    }
}
