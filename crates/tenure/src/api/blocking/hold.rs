//! The guard, and a place in line that is waited for later.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use super::driver::Driver;
use crate::api::detached::Detached;
use crate::model::claim::{Ended, Fence, Released, Risk};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::options::Protection;

/// A granted claim in your hand: a [`Hold`](crate::Hold), whose calls wait where they are made.
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

    /// What is held; of several, the first by name.
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

    /// How long it is certain to last by this process's clock, renewals to come not counted.
    pub fn remaining(&self) -> Duration {
        self.inner.remaining()
    }

    /// Whether it is certainly still held. Looks at the clock; asks nobody.
    pub fn is_live(&self) -> bool {
        self.inner.is_live()
    }

    /// Waits until the hold ends without its release, and says why.
    pub fn lost(&self) -> Ended {
        self.driver.wait(self.inner.lost())
    }

    /// Waits until renewals begin to fail while the hold is still good, or until it is lost,
    /// and says why.
    pub fn at_risk(&self) -> Risk {
        self.driver.wait(self.inner.at_risk())
    }

    /// Makes the hold last `ttl` from now. It never becomes shorter.
    pub fn extend(&self, ttl: Duration) -> Result<()> {
        self.driver.wait(self.inner.extend(ttl))
    }

    /// Releases, and says whether the hold lasted until then.
    pub fn release(self) -> Result<Released> {
        self.driver.wait(self.inner.release())
    }

    /// Lets go of it without releasing. See [`Hold::detach`](crate::Hold::detach).
    pub fn detach(self) -> Result<Detached> {
        self.driver.wait(self.inner.detach())
    }

    /// Makes it last for its ttl if this process dies. See [`Hold::outlive`](crate::Hold::outlive).
    pub fn outlive(&self) -> Result<()> {
        self.driver.wait(self.inner.outlive())
    }

    /// The hold for use with a runtime.
    pub fn into_inner(self) -> crate::Hold {
        self.inner
    }

    /// Runs `work` to its end and releases; `Lost` if the hold did not last until then.
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

/// A place in line that was taken when `join` was called. Dropping it leaves the line.
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
