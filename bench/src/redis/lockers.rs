//! The measured operations: the same two calls, acquire and release, on every kind of lock.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hashbrown::HashMap;
use redis::aio::MultiplexedConnection;
use redis::io::tcp::TcpSettings;
use redis::{
    AsyncConnectionConfig, Client, IntoConnectionInfo, ProtocolVersion, PushInfo, PushKind, Script,
    Value,
};
use rslock::{Lock, LockManager};
use tenure::{Hold, Tenure};
use tokio::sync::oneshot;

use super::clock;
use super::failure::Failure;

/// How long a lock is held at most.
const TTL_MS: u64 = 30_000;

/// Which lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// `SET NX PX` and a compare-and-delete script, through the `redis` crate: no line, no fence.
    Raw,
    /// The simplest line over one connection of the `redis` crate, which also carries the pushes.
    Script,
    /// The crate `rslock`: a plain lock on one server, which tries again until it is free.
    Rslock,
    /// tenure, `hold.release().await`.
    Awaited,
    /// tenure, `drop(hold)`.
    Dropped,
}

impl Kind {
    pub(crate) const ALL: [Kind; 5] =
        [Kind::Raw, Kind::Script, Kind::Rslock, Kind::Awaited, Kind::Dropped];

    pub(crate) fn label(self) -> &'static str {
        match self {
            Kind::Raw => "raw",
            Kind::Script => "redis-rs-script",
            Kind::Rslock => "rslock",
            Kind::Awaited => "tenure-awaited",
            Kind::Dropped => "tenure-dropped",
        }
    }

    /// Whether this kind is tenure.
    pub(crate) fn is_ours(self) -> bool {
        matches!(self, Kind::Awaited | Kind::Dropped)
    }

    pub(crate) fn of(label: &str) -> Option<Kind> {
        Kind::ALL.into_iter().find(|kind| kind.label() == label)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.label())
    }
}

/// One kind of lock, connected.
pub(crate) enum Locker {
    Raw(Raw),
    Script(Line),
    Rslock(LockManager),
    Tenure { tenure: Tenure, awaited: bool },
}

/// The result of an acquire.
pub(crate) enum Held {
    Id(String),
    Lock(Lock),
    Hold(Hold),
}

impl Locker {
    pub(crate) async fn connect(kind: Kind, url: &str) -> Result<Locker, Failure> {
        Ok(match kind {
            Kind::Raw => Locker::Raw(Raw::connect(url).await?),
            Kind::Script => Locker::Script(Line::connect(url).await?),
            Kind::Rslock => {
                let client = open(url, ProtocolVersion::RESP2)?;
                Locker::Rslock(LockManager::from_clients(vec![client]))
            }
            Kind::Awaited | Kind::Dropped => {
                let tenure = Tenure::connect(url).await?;
                Locker::Tenure { tenure, awaited: kind == Kind::Awaited }
            }
        })
    }

    pub(crate) async fn acquire(&self, name: &str) -> Result<Held, Failure> {
        Ok(match self {
            Locker::Raw(raw) => Held::Id(raw.acquire(name).await?),
            Locker::Script(line) => Held::Id(line.acquire(name).await?),
            Locker::Rslock(manager) => {
                let ttl = Duration::from_millis(TTL_MS);
                Held::Lock(manager.acquire_no_guard(name, ttl).await?)
            }
            Locker::Tenure { tenure, .. } => Held::Hold(tenure.mutex(name).acquire().await?),
        })
    }

    pub(crate) async fn release(&self, name: &str, held: Held) -> Result<(), Failure> {
        match (self, held) {
            (Locker::Raw(raw), Held::Id(id)) => raw.release(name, &id).await?,
            (Locker::Script(line), Held::Id(id)) => line.release(name, &id).await?,
            (Locker::Rslock(manager), Held::Lock(lock)) => manager.unlock(&lock).await,
            (Locker::Tenure { awaited: true, .. }, Held::Hold(hold)) => {
                hold.release().await?;
            }
            (_, held) => drop(held),
        }
        Ok(())
    }
}

/// Unique ids: 16 characters for the process, then a number.
struct Ids {
    process: String,
    next: AtomicU64,
}

impl Ids {
    fn new() -> Ids {
        let process = format!("{:08x}{:08x}", std::process::id(), clock::now() as u32);
        Ids { process, next: AtomicU64::new(0) }
    }

    fn mint(&self) -> (u64, String) {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        (number, format!("{}{number}", self.process))
    }
}

/// The baseline.
pub(crate) struct Raw {
    connection: MultiplexedConnection,
    delete: Script,
    ids: Ids,
}

impl Raw {
    async fn connect(url: &str) -> Result<Raw, Failure> {
        let mut connection = connect(url, ProtocolVersion::RESP2, patient()).await?;
        let delete = Script::new(include_str!("lua/compare_and_delete.lua"));
        delete.load_async(&mut connection).await?;
        Ok(Raw { connection, delete, ids: Ids::new() })
    }

    /// Tries until the lock is free; in this use, nobody else tries to acquire it.
    async fn acquire(&self, name: &str) -> Result<String, Failure> {
        let mut connection = self.connection.clone();
        let (_, id) = self.ids.mint();
        let mut set = redis::cmd("SET");
        set.arg(name).arg(&id).arg("NX").arg("PX").arg(TTL_MS);
        while !set.query_async::<bool>(&mut connection).await? {
            tokio::task::yield_now().await;
        }
        Ok(id)
    }

    async fn release(&self, name: &str, id: &str) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        Ok(self.delete.key(name).arg(id).invoke_async(&mut connection).await?)
    }
}

type Waiting = Arc<Mutex<HashMap<u64, oneshot::Sender<()>>>>;

/// A line in a list, handed over by push; no fence, no renewal, no detection of dead clients.
pub(crate) struct Line {
    connection: MultiplexedConnection,
    claim: Script,
    release: Script,
    ids: Ids,
    waiting: Waiting,
}

impl Line {
    async fn connect(url: &str) -> Result<Line, Failure> {
        let waiting = Waiting::default();
        let pushed = waiting.clone();
        let config = patient().set_push_sender(move |push: PushInfo| {
            wake(&pushed, &push);
            Ok::<(), ()>(())
        });
        let mut connection = connect(url, ProtocolVersion::RESP3, config).await?;
        let ids = Ids::new();
        connection.subscribe(&ids.process).await?;
        let claim = Script::new(include_str!("lua/claim.lua"));
        let release = Script::new(include_str!("lua/release.lua"));
        claim.load_async(&mut connection).await?;
        release.load_async(&mut connection).await?;
        Ok(Line { connection, claim, release, ids, waiting })
    }

    async fn acquire(&self, name: &str) -> Result<String, Failure> {
        let mut connection = self.connection.clone();
        let (number, id) = self.ids.mint();
        let (turn, comes) = oneshot::channel();
        // Before the request: the push may be read before its reply.
        lock(&self.waiting).insert(number, turn);
        let mut claim = self.claim.key(name);
        let claim = claim.key(format!("{name}:line")).arg(&id).arg(TTL_MS);
        if claim.invoke_async(&mut connection).await? {
            lock(&self.waiting).remove(&number);
        } else {
            comes.await?;
        }
        Ok(id)
    }

    async fn release(&self, name: &str, id: &str) -> Result<(), Failure> {
        let mut connection = self.connection.clone();
        let mut release = self.release.key(name);
        let release = release.key(format!("{name}:line")).arg(id).arg(TTL_MS);
        Ok(release.invoke_async(&mut connection).await?)
    }
}

/// A push contains the id of the claim whose turn it is.
fn wake(waiting: &Waiting, push: &PushInfo) {
    if push.kind != PushKind::Message {
        return;
    }
    let Some(Value::BulkString(id)) = push.data.last() else { return };
    let number = id.get(16..).and_then(|digits| str::from_utf8(digits).ok()?.parse().ok());
    if let Some(turn) = number.and_then(|number: u64| lock(waiting).remove(&number)) {
        // A receiver that is gone no longer waits.
        let _ = turn.send(());
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn patient() -> AsyncConnectionConfig {
    AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)))
}

async fn connect(
    url: &str,
    protocol: ProtocolVersion,
    config: AsyncConnectionConfig,
) -> Result<MultiplexedConnection, Failure> {
    let client = open(url, protocol)?;
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

fn open(url: &str, protocol: ProtocolVersion) -> Result<Client, Failure> {
    let info = url.into_connection_info()?;
    let settings = info.redis_settings().clone().set_protocol(protocol);
    let tcp = TcpSettings::default().set_nodelay(true);
    let info = info.set_redis_settings(settings).set_tcp_settings(tcp);
    Ok(Client::open(info)?)
}
