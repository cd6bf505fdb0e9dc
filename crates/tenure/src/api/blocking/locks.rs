//! Locks, semaphores and read-write locks. Each wraps the type of the same name in the crate's root, and a driver
//! that waits for its futures.

use super::driver::Driver;
use super::hold::{Hold, Joined};
use crate::model::error::Result;

/// The constructor and the setters that all of them have.
macro_rules! request {
    ($type:ident) => {
        impl $type {
            pub(super) fn new(
                inner: crate::$type,
                driver: &$crate::api::blocking::driver::Driver,
            ) -> $type {
                $type { inner, driver: driver.clone() }
            }

            /// Replaces all options.
            pub fn options(self, options: $crate::Options) -> $type {
                $type { inner: self.inner.options(options), ..self }
            }

            /// How long the hold lasts without renewal. Default: 30 s.
            pub fn ttl(self, ttl: std::time::Duration) -> $type {
                $type { inner: self.inner.ttl(ttl), ..self }
            }

            /// How long to wait in line. Default: for ever.
            pub fn wait(self, wait: std::time::Duration) -> $type {
                $type { inner: self.inner.wait(wait), ..self }
            }

            /// Whether the watchdog renews the hold. Default: yes, at a third of the ttl.
            pub fn renew(self, renew: bool) -> $type {
                $type { inner: self.inner.renew(renew), ..self }
            }

            /// How long the hold is renewed, counted from its grant. Default: no limit.
            pub fn max_hold(self, max_hold: std::time::Duration) -> $type {
                $type { inner: self.inner.max_hold(max_hold), ..self }
            }

            /// How often the watchdog renews the hold: at least this often, and at most half of the ttl apart.
            /// Default: a third of the ttl.
            pub fn renew_every(self, renew_every: std::time::Duration) -> $type {
                $type { inner: self.inner.renew_every(renew_every), ..self }
            }

            /// How long the name stays taken at least, counted from the grant. Default: zero.
            pub fn hold_for(self, hold_for: std::time::Duration) -> $type {
                $type { inner: self.inner.hold_for(hold_for), ..self }
            }

            /// Join the line only if fewer than this many wait. Default: no limit.
            pub fn max_waiters(self, max_waiters: u32) -> $type {
                $type { inner: self.inner.max_waiters(max_waiters), ..self }
            }

            /// Who makes the claim, shown to others. Default: `host:pid`.
            pub fn owner(self, owner: impl Into<String>) -> $type {
                $type { inner: self.inner.owner(owner), ..self }
            }

            /// The reason, shown to others. Default: none.
            pub fn reason(self, reason: impl Into<String>) -> $type {
                $type { inner: self.inner.reason(reason), ..self }
            }

            /// Adds a pair such as a correlation id, shown with the holder and in logs.
            pub fn meta(self, key: impl Into<String>, value: impl Into<String>) -> $type {
                $type { inner: self.inner.meta(key, value), ..self }
            }

            /// The trace of the work, as a W3C `traceparent`. Default: none.
            pub fn trace(self, traceparent: impl Into<String>) -> $type {
                $type { inner: self.inner.trace(traceparent), ..self }
            }
        }
    };
}
pub(super) use request;

/// The setter of primitives that can continue without the engine.
macro_rules! outage {
    ($type:ident) => {
        impl $type {
            /// What to do when the engine cannot be reached. Default: fail.
            pub fn on_outage(self, on_outage: $crate::OnOutage) -> $type {
                $type { inner: self.inner.on_outage(on_outage), ..self }
            }
        }
    };
}

/// A request for a lock: one holder at a time. See [`Mutex`](crate::Mutex).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct Mutex {
    pub(super) inner: crate::Mutex,
    pub(super) driver: Driver,
}

request!(Mutex);
outage!(Mutex);

/// A request for units of a limited number. See [`Semaphore`](crate::Semaphore).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct Semaphore {
    pub(super) inner: crate::Semaphore,
    pub(super) driver: Driver,
}

request!(Semaphore);
outage!(Semaphore);

/// A request to read or to write: many readers or one writer. See [`RwLock`](crate::RwLock).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct RwLock {
    pub(super) inner: crate::RwLock,
    pub(super) driver: Driver,
}

request!(RwLock);
outage!(RwLock);

/// A request for several locks at once: all or nothing. See [`All`](crate::All).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct All {
    pub(super) inner: crate::All,
    pub(super) driver: Driver,
}

request!(All);
outage!(All);

/// Waits for a hold, and wraps it in a blocking one.
fn held(driver: &Driver, wait: impl Future<Output = Result<crate::Hold>>) -> Result<Hold> {
    Ok(Hold::new(driver.wait(wait)?, driver))
}

fn tried(
    driver: &Driver,
    wait: impl Future<Output = Result<Option<crate::Hold>>>,
) -> Result<Option<Hold>> {
    Ok(driver.wait(wait)?.map(|hold| Hold::new(hold, driver)))
}

impl Mutex {
    /// Waits for the turn.
    pub fn acquire(self) -> Result<Hold> {
        held(&self.driver, self.inner.acquire())
    }

    /// Takes the place in line now, to wait for the turn later.
    pub fn join(self) -> Joined {
        Joined::new(&self.driver, || self.inner.join())
    }

    /// Acquires if nobody holds or waits; otherwise returns `None`.
    pub fn try_acquire(self) -> Result<Option<Hold>> {
        tried(&self.driver, self.inner.try_acquire())
    }

    /// Acquires, runs `work` to completion and releases. Fails with `Lost` if the hold did not last until then.
    pub fn run<T>(self, work: impl FnOnce(&Hold) -> T) -> Result<T> {
        self.acquire()?.run(work)
    }
}

impl Semaphore {
    /// Waits for one unit.
    pub fn acquire(self) -> Result<Hold> {
        self.acquire_many(1)
    }

    /// Waits for `weight` units at once.
    pub fn acquire_many(self, weight: u32) -> Result<Hold> {
        held(&self.driver, self.inner.acquire_many(weight))
    }

    /// Takes the place in line for one unit now, to wait for the turn later.
    pub fn join(self) -> Joined {
        self.join_many(1)
    }

    /// Takes the place in line for `weight` units now, to wait for the turn later.
    pub fn join_many(self, weight: u32) -> Joined {
        Joined::new(&self.driver, || self.inner.join_many(weight))
    }

    /// Takes one unit if it is free and nobody waits.
    pub fn try_acquire(self) -> Result<Option<Hold>> {
        self.try_acquire_many(1)
    }

    /// Takes `weight` units if they are free and nobody waits.
    pub fn try_acquire_many(self, weight: u32) -> Result<Option<Hold>> {
        tried(&self.driver, self.inner.try_acquire_many(weight))
    }

    /// Acquires one unit, runs `work` to completion and releases. Fails with `Lost` if the hold did not last
    /// until then.
    pub fn run<T>(self, work: impl FnOnce(&Hold) -> T) -> Result<T> {
        self.acquire()?.run(work)
    }

    /// Changes the capacity for everyone. See [`Semaphore::resize`](crate::Semaphore::resize).
    pub fn resize(self, capacity: u32) -> Result<()> {
        self.driver.wait(self.inner.resize(capacity))
    }
}

impl RwLock {
    /// Waits to read.
    pub fn read(self) -> Result<Hold> {
        held(&self.driver, self.inner.read())
    }

    /// Waits to write.
    pub fn write(self) -> Result<Hold> {
        held(&self.driver, self.inner.write())
    }

    /// Takes the place of a reader now, to wait for the turn later.
    pub fn join_read(self) -> Joined {
        Joined::new(&self.driver, || self.inner.join_read())
    }

    /// Takes the place of a writer now, to wait for the turn later.
    pub fn join_write(self) -> Joined {
        Joined::new(&self.driver, || self.inner.join_write())
    }

    /// Reads if nobody writes and nobody waits.
    pub fn try_read(self) -> Result<Option<Hold>> {
        tried(&self.driver, self.inner.try_read())
    }

    /// Writes if nobody reads, writes or waits.
    pub fn try_write(self) -> Result<Option<Hold>> {
        tried(&self.driver, self.inner.try_write())
    }
}

impl All {
    /// Waits for all of them; `wait` is the limit for all together.
    pub fn acquire(self) -> Result<Hold> {
        held(&self.driver, self.inner.acquire())
    }

    /// Acquires all of them if all are free; otherwise none, and returns `None`.
    pub fn try_acquire(self) -> Result<Option<Hold>> {
        tried(&self.driver, self.inner.try_acquire())
    }

    /// Acquires all, runs `work` to completion and releases. Fails with `Lost` if one of them did not last until
    /// then.
    pub fn run<T>(self, work: impl FnOnce(&Hold) -> T) -> Result<T> {
        self.acquire()?.run(work)
    }
}
