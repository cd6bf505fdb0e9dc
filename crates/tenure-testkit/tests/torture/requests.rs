//! The requests of workers, and how long they hold.

use std::time::Duration;

use tenure::{Hold, Result, Tenure};
use tenure_testkit::rng::Rng;

/// The units of a read-write lock: a writer takes them all.
const ALL: u32 = 1 << 20;
/// The units of the semaphores.
const SEATS: u32 = 3;

/// The kind of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Mutex,
    Semaphore,
    RwLock,
}

/// Enough that some remain while claims pile up behind a killed holder for others.
const NAMES: [(&str, Kind); 20] = [
    ("door-0", Kind::Mutex),
    ("door-1", Kind::Mutex),
    ("door-2", Kind::Mutex),
    ("door-3", Kind::Mutex),
    ("door-4", Kind::Mutex),
    ("door-5", Kind::Mutex),
    ("door-6", Kind::Mutex),
    ("door-7", Kind::Mutex),
    ("door-8", Kind::Mutex),
    ("door-9", Kind::Mutex),
    ("door-10", Kind::Mutex),
    ("door-11", Kind::Mutex),
    ("seats-0", Kind::Semaphore),
    ("seats-1", Kind::Semaphore),
    ("seats-2", Kind::Semaphore),
    ("seats-3", Kind::Semaphore),
    ("book-0", Kind::RwLock),
    ("book-1", Kind::RwLock),
    ("book-2", Kind::RwLock),
    ("book-3", Kind::RwLock),
];

/// How a request ends if it is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    /// The wait has a limit.
    Limited(Duration),
    /// The caller drops the future after that long.
    Dropped(Duration),
    /// It does not wait.
    None,
}

/// One request.
#[derive(Clone, Debug)]
pub(crate) struct LockRequest {
    pub(crate) name: &'static str,
    kind: Kind,
    pub(crate) weight: u32,
    pub(crate) capacity: u32,
    pub(crate) ttl: Duration,
    renew: bool,
    patience: Patience,
    /// The owner of the claim, as others see it: its number.
    owner: String,
}

impl LockRequest {
    /// A random request; no ttl is longer than `longest`.
    pub(crate) fn random(rng: &mut Rng, longest: Duration, serial: u64) -> LockRequest {
        let (name, kind) = NAMES[rng.between(0, NAMES.len() as u64 - 1) as usize];
        let (weight, capacity) = match kind {
            Kind::Mutex => (1, 1),
            Kind::Semaphore => (rng.between(1, u64::from(SEATS)) as u32, SEATS),
            Kind::RwLock => (if rng.chance(300) { ALL } else { 1 }, ALL),
        };
        let ttl = match rng.between(0, 9) {
            0 | 1 => Duration::from_millis(400),
            // Longer than the first life of a pushed turn.
            2 => Duration::from_millis(2_500),
            _ => Duration::from_secs(1),
        };
        let patience = match rng.between(0, 99) {
            0..15 => Patience::Limited(rng.micros(1_000, 300_000)),
            15..25 => Patience::Dropped(rng.micros(0, 20_000)),
            25..32 => Patience::None,
            _ => Patience::Endless,
        };
        let (ttl, renew, owner) = (ttl.min(longest), !rng.chance(100), serial.to_string());
        LockRequest { name, kind, weight, capacity, ttl, renew, patience, owner }
    }

    /// Whether it waits until it is served.
    pub(crate) fn is_patient(&self) -> bool {
        self.patience == Patience::Endless
    }

    /// Whether it is exclusive, so that the resource can check its fence.
    pub(crate) fn is_alone(&self) -> bool {
        self.weight == self.capacity
    }

    /// Sends it. Returns nothing if it was busy or the caller gave up.
    pub(crate) async fn send(&self, tenure: &Tenure) -> Result<Option<Hold>> {
        match self.patience {
            Patience::Dropped(after) => {
                match tokio::time::timeout(after, self.wait(tenure)).await {
                    Ok(answer) => answer.map(Some),
                    Err(_) => Ok(None),
                }
            }
            Patience::None => self.look(tenure).await,
            Patience::Endless | Patience::Limited(_) => self.wait(tenure).await.map(Some),
        }
    }

    fn options(&self, tenure: &Tenure) -> tenure::Options {
        let mut options = tenure.defaults();
        (options.ttl, options.renew) = (self.ttl, self.renew);
        options.details_mut().owner.clone_from(&self.owner);
        if let Patience::Limited(wait) = self.patience {
            options.wait = Some(wait);
        }
        options
    }

    async fn wait(&self, tenure: &Tenure) -> Result<Hold> {
        let options = self.options(tenure);
        match self.kind {
            Kind::Mutex => tenure.mutex(self.name).options(options).acquire().await,
            Kind::Semaphore => {
                let semaphore = tenure.semaphore(self.name, self.capacity).options(options);
                semaphore.acquire_many(self.weight).await
            }
            Kind::RwLock if self.is_alone() => {
                tenure.rwlock(self.name).options(options).write().await
            }
            Kind::RwLock => tenure.rwlock(self.name).options(options).read().await,
        }
    }

    async fn look(&self, tenure: &Tenure) -> Result<Option<Hold>> {
        let options = self.options(tenure);
        match self.kind {
            Kind::Mutex => tenure.mutex(self.name).options(options).try_acquire().await,
            Kind::Semaphore => {
                let semaphore = tenure.semaphore(self.name, self.capacity).options(options);
                semaphore.try_acquire_many(self.weight).await
            }
            Kind::RwLock if self.is_alone() => {
                tenure.rwlock(self.name).options(options).try_write().await
            }
            Kind::RwLock => tenure.rwlock(self.name).options(options).try_read().await,
        }
    }
}

/// How long a section lasts: mostly moments, but now and then longer than the ttl.
pub(crate) fn length(rng: &mut Rng) -> Duration {
    match rng.between(0, 999) {
        0..3 => rng.micros(1_000_000, 2_000_000),
        3..15 => rng.micros(100_000, 500_000),
        15..100 => rng.micros(5_000, 30_000),
        _ => rng.micros(0, 2_000),
    }
}
