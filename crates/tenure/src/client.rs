//! `Tenure`: the one file that sees both the core and the engines.

mod open;

use std::env::VarError;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use self::open::{Opened, open};
use crate::ask::Draft;
use crate::claim::{Broken, Ended, Fence, Note};
use crate::clock::{SystemWorld, World};
use crate::engine::{Engine, Page, Profile, Scope, Turns, View};
use crate::error::{Error, ErrorKind, Result};
use crate::local;
use crate::moment::Moment;
use crate::name::{Name, Space};
use crate::observe::{self, End, Reporter};
use crate::options::{OnOutage, Options, Protection, check_text};
use crate::outage::{Outage, StandIn, is_outage};
use crate::primitives::{All, Election, Mutex as NamedMutex, Once, RwLock, Semaphore, Worker};
use crate::stake::{Stake, Todo};
use crate::system;
use crate::telemetry::TraceSource;
use crate::turn::{Ack, Slots};
use crate::watchdog;

/// A connection to an engine: locks, semaphores and read-write locks by name.
///
/// Cheap to clone; clones share everything. When the last clone and the last [`Hold`](crate::Hold)
/// are gone, queued releases still go out in the background; [`close`](Tenure::close) waits for them.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// use std::time::Duration;
/// use tenure::Tenure;
///
/// let tenure = Tenure::connect("memory:").await?;
/// let hold = tenure.mutex("wallet:0xab").wait(Duration::from_secs(10)).acquire().await?;
/// println!("nobody else signs for this wallet; fence {}", hold.fence());
/// hold.release().await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone, Debug)]
pub struct Tenure {
    pub(crate) handle: Arc<Handle>,
    defaults: Arc<Options>,
}

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
    pub(crate) lines: Arc<local::Lines>,
    pub(crate) outage: Outage,
    /// Keeps the holds that the engine did not grant; made with the first of them.
    stand_in: OnceLock<Arc<dyn Engine>>,
    pub(crate) abandoned: AtomicBool,
    closed: AtomicBool,
    pub(crate) watched: AtomicBool,
    starting: Mutex<()>,
    generation: u64,
    pub(crate) trace_source: TraceSource,
}

impl Tenure {
    /// Connects to the engine that the URL names.
    ///
    /// | URL | engine |
    /// |---|---|
    /// | `memory:` | this process; each connect has lines of its own, clones share them |
    /// | `file:PATH` | a file, for all processes of this machine; see [`File`](crate::engines::file::File) |
    /// | `redis://host:6379` | a Redis or Valkey server; also `rediss://`, `redis+unix://`, `redis-sentinel://h1,h2/service` and `redis-cluster://h1,h2`, see [`RedisConfig`](crate::engines::redis::RedisConfig) |
    ///
    /// A query sets defaults for all calls: `memory:?ttl=5s&wait=10s`. It knows `ttl`, `wait`,
    /// `renew`, `renew_every`, `max_hold`, `hold_for`, `max_waiters`, `on_outage` and `owner`.
    ///
    /// A Redis that is not there is no error: `engine.down` is logged, it is connected to when it is there, and
    /// until then claims do what `on_outage` says. Whoever wants to know asks for its
    /// [`health`](Tenure::health). A password that it refuses is an error, and so is a file that cannot be
    /// opened.
    ///
    /// # Cancel safety
    /// Safe: nothing is kept of a connection that was not returned.
    pub async fn connect(url: &str) -> Result<Tenure> {
        Tenure::open(url, true).await
    }

    /// The same without a look at the server: the first call connects, and hears what is wrong with it.
    /// A file is opened here, too.
    ///
    /// # Cancel safety
    /// Safe: nothing is kept of a connection that was not returned.
    pub async fn connect_lazily(url: &str) -> Result<Tenure> {
        Tenure::open(url, false).await
    }

    async fn open(url: &str, reach: bool) -> Result<Tenure> {
        let Opened { engine, fields, down } = open(url, reach).await?;
        let mut options = Options::new(default_owner());
        options.ttl = options.ttl.min(engine.profile().longest_ttl);
        for (field, value) in fields {
            let label = &engine.profile().label;
            options.set(&field, &value).map_err(|error| error.context("connect", "", label))?;
        }
        let tenure = Tenure::with_engine(engine).with_defaults(options)?;
        if let Some(error) = down.filter(is_outage) {
            // Any name will do to ask whether it is back.
            let name = Name::unchecked(Space::Lock, "tenure");
            let core = &tenure.handle.core;
            core.goes_down(&name, &error);
            core.be_watched().map_err(|error| core.explain(error, "connect", &name))?;
        }
        Ok(tenure)
    }

    /// Connects to the engine that `TENURE_URL` names (`memory:` if unset, with a warning in the log: it
    /// protects this process only), with defaults from
    /// `TENURE_TTL`, `TENURE_WAIT`, `TENURE_RENEW`, `TENURE_RENEW_EVERY`, `TENURE_MAX_HOLD`,
    /// `TENURE_HOLD_FOR`,
    /// `TENURE_MAX_WAITERS`, `TENURE_ON_OUTAGE` and `TENURE_OWNER`, which win over those in the URL.
    ///
    /// # Cancel safety
    /// Safe: nothing is kept of a connection that was not returned.
    pub async fn from_env() -> Result<Tenure> {
        let url = variable("TENURE_URL")?.unwrap_or_else(|| {
            observe::no_url();
            "memory:".into()
        });
        let tenure = Tenure::connect(&url).await?;
        let mut options = tenure.defaults();
        for field in Options::FIELDS {
            if let Some(value) = variable(&format!("TENURE_{}", field.to_uppercase()))? {
                let label = &tenure.profile().label;
                options.set(field, &value).map_err(|error| error.context("from_env", "", label))?;
            }
        }
        tenure.with_defaults(options)
    }

    /// Uses an engine that is already there.
    pub fn with_engine(engine: Arc<dyn Engine>) -> Tenure {
        Tenure::in_world(engine, Arc::new(SystemWorld))
    }

    /// Uses an engine in a world of one's own: virtual time, for tests.
    pub fn in_world(engine: Arc<dyn Engine>, world: Arc<dyn World>) -> Tenure {
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
        let core = Core {
            engine,
            lines: local::Lines::new(world.clone(), hurry),
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
        };
        let handle = Arc::new(Handle { core: Arc::new(core) });
        Tenure { handle, defaults: Arc::new(Options::new(default_owner())) }
    }

    /// The same connection with other defaults.
    pub fn with_defaults(self, options: Options) -> Result<Tenure> {
        let label = self.profile().label.clone();
        let checked = options.check(self.profile());
        checked.map_err(|error| error.context("set defaults", "", &label))?;
        Ok(Tenure { defaults: Arc::new(options), ..self })
    }

    /// The defaults of this connection.
    pub fn defaults(&self) -> Options {
        (*self.defaults).clone()
    }

    /// What the engine promises.
    pub fn profile(&self) -> &Profile {
        self.handle.core.engine.profile()
    }

    /// A lock: one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> NamedMutex {
        NamedMutex { handle: self.handle.clone(), ask: self.ask(Space::Lock, name.as_ref()) }
    }

    /// `capacity` units that are shared out. All users of a name must agree on it.
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Semaphore {
        let mut ask = self.ask(Space::Lock, name.as_ref());
        (ask.claim.capacity, ask.claim.fixed) = (capacity, false);
        Semaphore { handle: self.handle.clone(), ask }
    }

    /// Many readers, or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { handle: self.handle.clone(), ask: self.ask(Space::Lock, name.as_ref()) }
    }

    /// Several locks at once: all or nothing, without deadlock.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> All {
        let names: Vec<_> =
            names.into_iter().map(|n| Name::unchecked(Space::Lock, n.as_ref())).collect();
        All { handle: self.handle.clone(), ask: self.ask(Space::Lock, ""), names }
    }

    /// One leader at a time, whom everyone can see.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        let ask = self.ask(Space::Election, name.as_ref());
        Election { handle: self.handle.clone(), ask }
    }

    /// One of many that does the work while it leads.
    pub fn worker(&self, name: impl AsRef<str>) -> Worker {
        Worker::new(self.handle.clone(), self.ask(Space::Election, name.as_ref()))
    }

    /// Work that is done once, and whose outcome is remembered.
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        Once::new(self.handle.clone(), self.ask(Space::Once, name.as_ref()))
    }

    fn ask(&self, space: Space, name: &str) -> Draft {
        Draft::new(Name::unchecked(space, name), &self.defaults)
    }

    /// Who holds a name and who waits for it; `None` if nobody does.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<View>> {
        self.handle.core.view(&Name::unchecked(Space::Lock, name.as_ref())).await
    }

    /// All names in use that begin with `prefix`, in order: of locks, elections and onces, which
    /// [`Name::space`](crate::engine::Name::space) tells apart.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<View>> {
        let mut views = Vec::new();
        for space in [Space::Lock, Space::Election, Space::Once] {
            self.handle.core.list(space, prefix.as_ref(), &mut views).await?;
        }
        views.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(views)
    }

    /// Ends a hold by force, and serves the next in line. The fence must be the one that
    /// [`inspect`](Tenure::inspect) showed: if the hold has moved on, nothing is broken.
    ///
    /// Breaking does not stop the holder's work: it hears of it by push, or at its next renewal.
    ///
    /// # Cancel safety
    /// A break that was sent may happen although the future was dropped.
    pub async fn break_hold(
        &self,
        name: impl AsRef<str>,
        fence: Fence,
        reason: impl Into<String>,
    ) -> Result<Broken> {
        let name = Name::unchecked(Space::Lock, name.as_ref());
        let by = self.defaults.details.owner.clone();
        self.handle.core.break_hold(&name, fence, by, reason.into()).await
    }

    /// Asks the engine for a sign of life, and says how long that took.
    ///
    /// # Cancel safety
    /// Safe: it changes nothing.
    pub async fn health(&self) -> Result<Duration> {
        let core = &self.handle.core;
        let sent = core.world.now();
        let asked = async {
            core.open()?;
            core.engine.health().await
        };
        let label = &self.profile().label;
        asked.await.map_err(|error| error.context("health", "", label))?;
        Ok(core.world.now().since(sent))
    }

    /// Ends this connection: waiting claims end with `Closed`, live holds are lost, later calls fail;
    /// returns when every queued release has been answered, or has had a second for that.
    ///
    /// A live hold is not released, because its work may still run: it ends with its ttl.
    ///
    /// # Cancel safety
    /// The connection is closed even if the future is dropped; only the waiting ends.
    pub async fn close(&self) {
        let core = &self.handle.core;
        if core.forked() {
            return;
        }
        core.closed.store(true, SeqCst);
        for stake in core.slots.all() {
            let mut todo = Todo::default();
            stake.close(&mut todo);
            core.slots.carry_out(&stake, &mut todo);
        }
        for stake in core.slots.all() {
            if stake.is_leaving() {
                core.answer_to_leave(&stake, false).await;
            }
        }
        // The lines do not depend on how the engine says goodbye.
        let _ = core.engine.close().await;
        // Whoever ends after this has told its last releases.
        core.slots.reporter.finish();
    }
}

impl Core {
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

    async fn list(&self, space: Space, prefix: &str, all: &mut Vec<View>) -> Result<()> {
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
        let started = self.world.start(Box::new(|alarm| Box::pin(watchdog::watch(core, alarm))));
        started.map_err(|error| {
            self.watched.store(false, SeqCst);
            let reason = format!("the watchdog's thread cannot be started: {error}");
            Error::new(ErrorKind::Internal, reason).next("see the limits of this process")
        })
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

fn variable(name: &str) -> Result<Option<String>> {
    match std::env::var(name) {
        Ok(value) => Ok(Some(value)),
        Err(VarError::NotPresent) => Ok(None),
        Err(VarError::NotUnicode(_)) => {
            let error = Error::invalid(format!("{name} is not valid UTF-8"));
            Err(error.next("set it again, or unset it").context("from_env", "", ""))
        }
    }
}

fn default_owner() -> String {
    let system = rustix::system::uname();
    format!("{}:{}", system.nodename().to_string_lossy(), std::process::id())
}
