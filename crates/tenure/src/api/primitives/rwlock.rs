use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::api::hold::Hold;
use crate::api::setters::{outage_setter, setters};
use crate::core::handle::Handle;
use crate::core::request_builder::RequestBuilder;
use crate::model::error::Result;
use crate::model::options::MOST_UNITS;

/// A request to read or to write: many readers or one writer, in strict order of arrival.
///
/// Unlike `std::sync::RwLock` it contains no data, and it is not the lock itself, which the engine keeps under
/// its name. [`read`](RwLock::read) and [`write`](RwLock::write) consume the request and return a
/// [`Hold`]; to acquire again, clone it first.
///
/// Consecutive readers read at the same time. A reader behind a waiting writer waits for it, so writers are not
/// starved. Hence a task that reads, and asks to read again behind a waiting writer, deadlocks with itself.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// let one = tenure.rwlock("catalog").read().await?;
/// let two = tenure.rwlock("catalog").read().await?;
/// assert!(tenure.rwlock("catalog").try_write().await?.is_none());
/// # drop((one, two));
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the request; acquire it"]
pub struct RwLock {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
}

setters!(RwLock);
outage_setter!(RwLock);

const ALL_UNITS: u32 = MOST_UNITS + 1;

impl RwLock {
    /// Waits to read.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no hold, no place and no
    /// renewal remains.
    pub async fn read(self) -> Result<Hold> {
        let RwLock { handle, request } = self.of(1);
        request.join(handle).await
    }

    /// Waits to write.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    pub async fn write(self) -> Result<Hold> {
        let RwLock { handle, request } = self.of(ALL_UNITS);
        request.join(handle).await
    }

    /// Takes the place of a reader when it is *called*.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read), from the moment of the call on.
    pub fn join_read(self) -> impl Future<Output = Result<Hold>> + Send + use<> {
        let RwLock { handle, request } = self.of(1);
        request.join(handle)
    }

    /// Takes the place of a writer when it is *called*.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read), from the moment of the call on.
    pub fn join_write(self) -> impl Future<Output = Result<Hold>> + Send + use<> {
        let RwLock { handle, request } = self.of(ALL_UNITS);
        request.join(handle)
    }

    /// Reads if nobody writes and nobody waits; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    pub async fn try_read(self) -> Result<Option<Hold>> {
        let RwLock { handle, request } = self.of(1);
        request.try_acquire(handle).await
    }

    /// Writes if nobody reads, writes or waits; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`read`](RwLock::read).
    pub async fn try_write(self) -> Result<Option<Hold>> {
        let RwLock { handle, request } = self.of(ALL_UNITS);
        request.try_acquire(handle).await
    }

    fn of(mut self, weight: u32) -> RwLock {
        (self.request.claim.weight, self.request.claim.capacity) = (weight, ALL_UNITS);
        self
    }
}

impl fmt::Debug for RwLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RwLock({:?})", *self.request)
    }
}
