//! `Tenure`: puts an engine and the core together.

mod open;

use std::env::VarError;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use self::open::{Opened, open};
use crate::api::primitives::{All, Election, Mutex, Once, RwLock, Semaphore, Worker};
use crate::core::handle::{Core, Handle};
use crate::core::outage::is_outage;
use crate::core::request_builder::RequestBuilder;
use crate::engine::Engine;
use crate::model::claim::{Broken, Fence};
use crate::model::error::{Error, Result};
use crate::model::name::{Name, Space};
use crate::model::options::Options;
use crate::model::profile::Profile;
use crate::model::view::View;
use crate::observe;
use crate::world::{SystemWorld, World};

/// A connection to an engine: locks, semaphores and read-write locks by name.
///
/// Cheap to clone; clones share everything. When the last clone and the last [`Hold`](crate::Hold) are dropped,
/// queued releases are still sent in the background; [`close`](Tenure::close) waits for them.
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

impl Tenure {
    /// Connects to the engine that the URL names.
    ///
    /// | URL | engine |
    /// |---|---|
    /// | `memory:` | this process; each connection has its own lines, clones share them |
    /// | `file:PATH` | a file, for all processes of this machine; see [`File`](crate::engines::file::File) |
    /// | `redis://host:6379` | a Redis or Valkey server; also `rediss://`, `redis+unix://`, `redis-sentinel://h1,h2/service` and `redis-cluster://h1,h2`, see [`RedisConfig`](crate::engines::redis::RedisConfig) |
    /// | `postgres://host/database` | a Postgres database; see [`PostgresConfig`](crate::engines::postgres::PostgresConfig) |
    /// | `http://host:7117` | the locks of a `tenure serve`; also `https://`, and `http+unix:/PATH`; see [`HttpConfig`](crate::engines::http::HttpConfig) |
    ///
    /// A query sets defaults for all calls: `memory:?ttl=5s&wait=10s`. It accepts `ttl`, `wait`, `renew`,
    /// `renew_every`, `max_hold`, `hold_for`, `max_waiters`, `on_outage` and `owner`.
    ///
    /// A server that cannot be reached is not an error: `engine.down` is logged, the connection is made when the
    /// server is back, and until then claims do what `on_outage` says. Call [`health`](Tenure::health) to find
    /// out. A password that is refused is an error, and so is a file that cannot be opened.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    pub async fn connect(url: &str) -> Result<Tenure> {
        Tenure::open(url, true).await
    }

    /// Like [`connect`](Tenure::connect), but does not wait for the server: the first call connects, and fails if
    /// that fails. A file is still opened at once.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
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
            // Any name will do to ask whether the engine is back.
            let name = Name::unchecked(Space::Lock, "tenure");
            let core = &tenure.handle.core;
            core.goes_down(&name, &error);
            core.be_watched().map_err(|error| core.explain(error, "connect", &name))?;
        }
        Ok(tenure)
    }

    /// Connects to the engine that `TENURE_URL` names, or to `memory:` if it is unset, with a warning in the log: that
    /// protects this process only. Defaults come from `TENURE_TTL`, `TENURE_WAIT`, `TENURE_RENEW`,
    /// `TENURE_RENEW_EVERY`, `TENURE_MAX_HOLD`, `TENURE_HOLD_FOR`, `TENURE_MAX_WAITERS`, `TENURE_ON_OUTAGE` and
    /// `TENURE_OWNER`, which win over those in the URL.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
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

    /// Uses an engine that you have made yourself.
    pub fn with_engine(engine: Arc<dyn Engine>) -> Tenure {
        Tenure::in_world(engine, Arc::new(SystemWorld))
    }

    /// Uses an engine with your own clock, randomness and threads: for tests on virtual time.
    pub fn in_world(engine: Arc<dyn Engine>, world: Arc<dyn World>) -> Tenure {
        let core = Core::new(engine, world);
        let handle = Arc::new(Handle { core: Arc::new(core) });
        Tenure { handle, defaults: Arc::new(Options::new(default_owner())) }
    }

    /// The engine itself, for programs that offer it to others: each step is one attempt, without the waiting,
    /// renewing and releasing that this `Tenure` does for its own claims.
    pub fn engine(&self) -> Arc<dyn Engine> {
        let core = &self.handle.core;
        core.handover.as_ref().map_or(&core.engine, |handover| handover.engine()).clone()
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

    /// The guarantees and limits of the engine.
    pub fn profile(&self) -> &Profile {
        self.handle.core.engine.profile()
    }

    /// A lock: one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex { handle: self.handle.clone(), request: self.request(Space::Lock, name.as_ref()) }
    }

    /// `capacity` units to share. All users of a name must agree on the capacity.
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Semaphore {
        let mut request = self.request(Space::Lock, name.as_ref());
        (request.claim.capacity, request.claim.fixed) = (capacity, false);
        Semaphore { handle: self.handle.clone(), request }
    }

    /// Many readers, or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock { handle: self.handle.clone(), request: self.request(Space::Lock, name.as_ref()) }
    }

    /// Several locks at once: all or nothing, without deadlock.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> All {
        let names: Vec<_> =
            names.into_iter().map(|n| Name::unchecked(Space::Lock, n.as_ref())).collect();
        All { handle: self.handle.clone(), request: self.request(Space::Lock, ""), names }
    }

    /// Leader election: one leader at a time, visible to everyone.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        let request = self.request(Space::Election, name.as_ref());
        Election { handle: self.handle.clone(), request }
    }

    /// Does work while it leads. Of several workers with the same name, one leads at a time.
    pub fn worker(&self, name: impl AsRef<str>) -> Worker {
        Worker::new(self.handle.clone(), self.request(Space::Election, name.as_ref()))
    }

    /// Work that is done once, and whose outcome is remembered.
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        Once::new(self.handle.clone(), self.request(Space::Once, name.as_ref()))
    }

    fn request(&self, space: Space, name: &str) -> RequestBuilder {
        RequestBuilder::new(Name::unchecked(space, name), &self.defaults)
    }

    /// Who holds a name and who waits for it; `None` if nobody does.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn inspect(&self, name: impl AsRef<str>) -> Result<Option<View>> {
        self.handle.core.view(&Name::unchecked(Space::Lock, name.as_ref())).await
    }

    /// All names in use that begin with `prefix`, in order: those of locks, elections and onces, which
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
    /// [`inspect`](Tenure::inspect) showed: if someone else holds by now, nothing is broken.
    ///
    /// Breaking does not stop the holder's work: the holder learns of it by push, or at its next renewal.
    ///
    /// # Cancel safety
    /// A break that was sent may take effect although the future was dropped.
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

    /// Pings the engine, and returns how long the answer took.
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

    /// Whether the engine can be reached for this name, as far as this connection knows: what `tenure_engine_up`
    /// shows. Asks nobody; [`health`](Tenure::health) does.
    pub fn is_reachable(&self, name: impl AsRef<str>) -> bool {
        !self.handle.core.is_down(&Name::unchecked(Space::Lock, name.as_ref()))
    }

    /// Has the watchdog check whether the engine can be reached, as if a claim had missed an answer, and returns
    /// at once. Call it every few seconds in a service that must notice an outage while nobody claims anything;
    /// `engine.down`, `tenure_engine_up` and [`is_reachable`](Tenure::is_reachable) show the result.
    pub fn probe(&self) {
        let core = &self.handle.core;
        if core.open().is_ok() && core.be_watched().is_ok() {
            core.doubt(&Name::unchecked(Space::Lock, "probe"));
        }
    }

    /// Closes this connection: waiting claims end with `Closed`, live holds are lost, later calls fail. Returns
    /// when every queued release was answered, or after a second.
    ///
    /// A live hold is not released, because its work may still be running: it ends with its ttl.
    ///
    /// # Cancel safety
    /// The connection is closed even if the future is dropped; only the waiting ends.
    pub async fn close(&self) {
        let core = &self.handle.core;
        if core.forked() {
            return;
        }
        core.closed.store(true, SeqCst);
        for live in core.table.all() {
            core.table.tell(&live, |state, _| state.close());
        }
        for live in core.table.all() {
            if live.with(|state, _| state.is_leaving()) {
                core.answer_to_leave(&live, false).await;
            }
        }
        // The lines do not depend on how the engine closes.
        let _ = core.engine.close().await;
        // A process that exits after this has reported its last releases.
        core.table.reporter.finish();
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
