use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::api::hold::Hold;
use crate::api::setters::{outage_setter, setters};
use crate::core::handle::Handle;
use crate::core::request_builder::RequestBuilder;
use crate::model::error::Result;

/// A request for units of a limited number, first come, first served: a request for many units is not overtaken by
/// requests for few.
///
/// The engine keeps the units under their name. [`acquire`](Semaphore::acquire) consumes the request and returns a
/// [`Hold`]; to acquire again, clone it first.
///
/// All users of a name must use the same capacity. [`resize`](Semaphore::resize) changes it.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// let two = tenure.semaphore("partner-api", 5).acquire_many(2).await?;
/// let one = tenure.semaphore("partner-api", 5).acquire().await?;
/// assert!(tenure.semaphore("partner-api", 5).try_acquire_many(3).await?.is_none());
/// # drop((two, one));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the request; acquire it"]
pub struct Semaphore {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
}

setters!(Semaphore);
outage_setter!(Semaphore);

impl Semaphore {
    /// Waits for one unit.
    ///
    /// # Errors
    /// `WaitOver` when the wait is over, `Conflict` if others use the name with another capacity.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no hold, no place and no
    /// renewal remains.
    pub async fn acquire(self) -> Result<Hold> {
        self.request.join(self.handle).await
    }

    /// Waits for `weight` units at once.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn acquire_many(self, weight: u32) -> Result<Hold> {
        let Semaphore { handle, request } = self.of(weight);
        request.join(handle).await
    }

    /// Takes the place in line for one unit when it is *called*, and returns a future that waits for the turn.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire), from the moment of the call on.
    pub fn join(self) -> impl Future<Output = Result<Hold>> + Send + use<> {
        self.request.join(self.handle)
    }

    /// Takes the place in line for `weight` units when it is *called*.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire), from the moment of the call on.
    pub fn join_many(self, weight: u32) -> impl Future<Output = Result<Hold>> + Send + use<> {
        let Semaphore { handle, request } = self.of(weight);
        request.join(handle)
    }

    /// Acquires one unit if it is free and nobody waits; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn try_acquire(self) -> Result<Option<Hold>> {
        self.request.try_acquire(self.handle).await
    }

    /// Acquires `weight` units if they are free and nobody waits; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Semaphore::acquire).
    pub async fn try_acquire_many(self, weight: u32) -> Result<Option<Hold>> {
        let Semaphore { handle, request } = self.of(weight);
        request.try_acquire(handle).await
    }

    /// Acquires one unit, runs `work` and releases. The work is dropped when the hold is lost.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and releases.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T> {
        self.acquire().await?.run(work).await
    }

    /// Changes the capacity for everyone. It wins over the capacity that calls ask for while the name is used,
    /// and for a day after. Held units stay held; waiting requests that can never fit end with `Conflict`.
    ///
    /// # Cancel safety
    /// A change that was sent may take effect although the future was dropped.
    pub async fn resize(self, capacity: u32) -> Result<()> {
        self.request.resize(&self.handle.core, capacity).await
    }

    fn of(mut self, weight: u32) -> Semaphore {
        self.request.claim.weight = weight;
        self
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Semaphore({:?})", *self.request)
    }
}
