//! The guard, and a place in line to wait for later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::driver::Driver;
use crate::api::detached::Detached;
use crate::model::claim::{Ended, Fence, Released, Risk};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::options::Protection;

/// A lock that you hold: a [`Hold`](crate::Hold) whose methods block.
#[derive(Debug)]
#[must_use = "a hold that is dropped at once protects nothing"]
pub struct Hold {
    pub(super) inner: crate::Hold,
    pub(super) driver: Driver,
}

impl Hold {
    pub(super) fn new(inner: crate::Hold, driver: &Driver) -> Hold {
        Hold { inner, driver: driver.clone() }
    }

    /// The name that is held; of several, the first.
    pub fn name(&self) -> &str {
        self.inner.name()
    }

    /// The number of this grant. See [`Hold::fence`](crate::Hold::fence).
    pub fn fence(&self) -> Fence {
        self.inner.fence()
    }

    /// Each name with its fence, in the order of the names.
    pub fn fences(&self) -> impl Iterator<Item = (&str, Fence)> {
        self.inner.fences()
    }

    /// What protects it. See [`Hold::protection`](crate::Hold::protection).
    pub fn protection(&self) -> Protection {
        self.inner.protection()
    }

    /// How long it will certainly last by this process's clock, not counting future renewals.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether it is certainly still held. Only reads the clock.
    pub fn is_live(&self) -> bool {
        self.inner.is_live()
    }

    /// Waits until the hold ends other than by its release, and returns the reason.
    pub fn lost(&self) -> Ended {
        self.driver.wait(self.inner.lost())
    }

    /// Waits until renewals start to fail while the hold is still good, or until it is lost, and returns the
    /// reason.
    pub fn at_risk(&self) -> Risk {
        self.driver.wait(self.inner.at_risk())
    }

    /// Extends the hold to `ttl` from now. Never shortens it.
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        self.driver.wait(self.inner.extend(ttl))
    }

    /// Releases, and returns whether the hold lasted until then.
    pub fn release(self) -> Result<Released> {
        self.driver.wait(self.inner.release())
    }

    /// Detaches the hold without releasing it. See [`Hold::detach`](crate::Hold::detach).
    pub fn detach(self) -> Result<Detached> {
        self.driver.wait(self.inner.detach())
    }

    /// Makes the hold last for its ttl even if this process dies. See [`Hold::outlive`](crate::Hold::outlive).
    pub fn outlive(&self) -> Result<()> {
        self.driver.wait(self.inner.outlive())
    }

    /// The hold, for use with a runtime.
    pub fn into_inner(self) -> crate::Hold {
        self.inner
    }

    /// Runs `work` to completion and releases. Fails with `Lost` if the hold did not last until then.
    pub(super) fn run<T>(self, work: impl FnOnce(&Hold) -> T) -> Result<T> {
        let done = work(&self);
        match self.inner.ended() {
            None => self.release().map(|_| done),
            Some(ended) => {
                let error = Error::new(ErrorKind::Lost, ended.to_string())
                    .next("the work went on to its end; guard what it writes with the fence");
                Err(self.inner.core().explain(error, "run", &self.inner.live().claim.name))
            }
        }
    }
}

/// A place in line that was taken by the call to `join`. Dropping it leaves the line.
#[must_use = "a place in line is given up when this is dropped"]
pub struct Joined {
    turn: Pin<Box<dyn Future<Output = Result<crate::Hold>> + Send>>,
    driver: Driver,
}

impl Joined {
    pub(super) fn new<F>(driver: &Driver, join: impl FnOnce() -> F) -> Joined
    where
        F: Future<Output = Result<crate::Hold>> + Send + 'static,
    {
        Joined { turn: Box::pin(driver.call(join)), driver: driver.clone() }
    }

    /// Waits for the turn.
    pub fn wait(self) -> Result<Hold> {
        let hold = self.driver.wait(self.turn)?;
        Ok(Hold::new(hold, &self.driver))
    }
}

impl fmt::Debug for Joined {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Joined")
    }
}
