//! `Core`: what all claims of one `Tenure` share, and how they are left.

use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use crate::core::claim_table::ClaimTable;
use crate::core::handover::Handover;
use crate::core::live_claim::LiveClaim;
use crate::core::local_line;
use crate::core::outage::{Outage, StandIn};
use crate::core::trace_source::TraceSource;
use crate::engine::{Ack, Engine, Turns};
use crate::model::claim::{Broken, Fence, Note};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};
use crate::model::options::{OnOutage, Protection, check_text};
use crate::model::view::{Page, Scope, View};
use crate::observe::Reporter;
use crate::system;
use crate::world::World;

/// What users own: when the last handle is dropped, the watchdog finishes its work and ends.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) core: Arc<Core>,
}

/// What all claims of one `Tenure` share.
#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) engine: Arc<dyn Engine>,
    /// The same, if holds are handed over within this process.
    pub(crate) handover: Option<Arc<Handover>>,
    pub(crate) world: Arc<dyn World>,
    pub(crate) table: Arc<ClaimTable>,
    pub(crate) lines: Arc<local_line::LocalLines>,
    pub(crate) outage: Outage,
    /// Keeps the holds that the engine did not grant. Made for the first of them.
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
        let handover =
            engine.profile().hands_over.then(|| Handover::new(engine.clone(), world.clone()));
        let engine = handover.clone().map_or(engine, |handover| handover as Arc<dyn Engine>);
        let shard_of = {
            let engine = engine.clone();
            Box::new(move |name: &Name| engine.shard(name))
        };
        let reporter = Reporter::new(&engine.profile().label);
        let table = Arc::new(ClaimTable::new(world.clone(), shard_of, reporter));
        let turns: Weak<dyn Turns> = Arc::downgrade(&table) as _;
        engine.attach(turns);
        let hurry = {
            let table = table.clone();
            move || table.watchdog_signal.notify()
        };
        if let Some(handover) = &handover {
            // The table has the engine, to know the shards of names.
            let table = Arc::downgrade(&table);
            handover.hurry(move || {
                if let Some(table) = table.upgrade() {
                    table.watchdog_signal.notify();
                }
            });
        }
        Core {
            engine,
            handover,
            lines: local_line::LocalLines::new(world.clone(), hurry),
            outage: Outage::default(),
            stand_in: OnceLock::new(),
            world,
            table,
            abandoned: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            watched: AtomicBool::new(false),
            starting: Mutex::new(()),
            generation: system::generation(),
            trace_source: TraceSource::default(),
        }
    }

    /// The current state of a name; `None` if nobody uses it.
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
            self.table.reporter.broken(name, fence, &note);
        }
        Ok(broken)
    }

    /// Fails if this is closed or was forked. After a fork nothing else may be touched: another thread of the
    /// parent may have held any of its locks.
    pub(crate) fn open(&self) -> Result<()> {
        if self.forked() || self.closed.load(SeqCst) { Err(Error::closed()) } else { Ok(()) }
    }

    pub(crate) fn forked(&self) -> bool {
        self.generation != system::generation()
    }

    /// What keeps the claim: the engine, or its stand-in.
    pub(crate) fn engine_of(&self, live: &LiveClaim) -> &Arc<dyn Engine> {
        match live.protection {
            Protection::Engine => &self.engine,
            Protection::Local | Protection::None => self.stand_in(),
        }
    }

    pub(crate) fn stand_in(&self) -> &Arc<dyn Engine> {
        self.stand_in.get_or_init(|| Arc::new(StandIn::new(self.world.clone())))
    }

    /// Leaves a claim, held or waiting. Never blocks, because `Drop` calls it. Only a hold that its caller had is
    /// kept for `hold_for`.
    pub(crate) fn leave(&self, live: &Arc<LiveClaim>, given: bool) {
        // The outcome of a once must not wait for `hold_for`.
        let may_be_kept = given && !live.terms.hold_for.is_zero() && live.claim.once.is_none();
        let now = if may_be_kept { self.world.now() } else { Moment::FAR };
        let (leave, work) = live.leave(now);
        if let Some(work) = work {
            self.table.carry_out(live, work);
        }
        let Some(leave) = leave else {
            let (is_kept, is_over) = live.with(|state, _| (state.is_kept(), state.is_over()));
            if is_kept {
                self.table.schedule(live, Moment::ORIGIN);
                return;
            }
            // It was lost, and its owner is done, or it was never sent.
            drop(live.take_local_place());
            if is_over {
                self.table.remove(live);
            }
            return;
        };
        let engine = self.engine_of(live);
        let left = engine.leave_at_once(&leave);
        let is_answered = left.is_some();
        match left {
            Some(left) => self.table.left(live, Some(left)),
            None => engine.leave_soon(leave, Ack::new(self.table.clone(), live.clone())),
        }
        if live.outage() == OnOutage::Local {
            // After the leave, so that the next claim of this process asks after it. Do not wait for the answer:
            // during an outage that takes a ttl.
            drop(live.take_local_place());
        }
        if !is_answered && live.with(|state, _| state.is_leaving()) {
            let (now, is_down) = (self.world.now(), self.is_down(&live.claim.name));
            self.table.tell(live, |state, request| state.await_answer(request, now, is_down));
        }
    }

    /// Whether the part of the engine that keeps the name is down.
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
            self.core.table.watchdog_signal.notify();
        }
    }
}
