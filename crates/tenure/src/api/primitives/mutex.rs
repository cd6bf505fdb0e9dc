use std::fmt;
use std::future::Future;
use std::sync::Arc;

use crate::api::hold::Hold;
use crate::api::setters::{outage_setter, setters};
use crate::core::handle::Handle;
use crate::core::request_builder::RequestBuilder;
use crate::model::error::Result;

/// A request for a lock: one holder at a time, first come, first served.
///
/// Unlike `std::sync::Mutex` it contains no data, and it is not the lock itself, which the engine keeps under its
/// name. [`Tenure::mutex`](crate::Tenure::mutex) makes a request, setters change it, and
/// [`acquire`](Mutex::acquire) consumes it and returns a [`Hold`]. To acquire again, clone it first.
///
/// Not re-entrant: acquiring a lock that you already hold blocks until its `wait` is over.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// let hold = tenure.mutex("table:12").acquire().await?;
/// assert!(tenure.mutex("table:12").try_acquire().await?.is_none());
/// hold.release().await?;
///
/// let rows = tenure.mutex("report").run(async |hold| hold.fence().get() as usize).await?;
/// # assert!(rows > 0);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the request; acquire it"]
pub struct Mutex {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
}

setters!(Mutex);
outage_setter!(Mutex);

impl Mutex {
    /// Waits for the turn.
    ///
    /// # Errors
    /// `WaitOver` when the wait is over; its text says who holds it and how many are ahead.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no hold, no place and no
    /// renewal remains.
    pub async fn acquire(self) -> Result<Hold> {
        self.request.join(self.handle).await
    }

    /// Takes the place in line when it is *called*, and returns a future that waits for the turn: for callers
    /// whose order of arrival must not depend on which future is polled first.
    ///
    /// # Cancel safety
    /// As [`acquire`](Mutex::acquire), from the moment of the call on.
    pub fn join(self) -> impl Future<Output = Result<Hold>> + Send + use<> {
        self.request.join(self.handle)
    }

    /// Acquires if nobody holds or waits; otherwise returns `None`.
    ///
    /// # Cancel safety
    /// As [`acquire`](Mutex::acquire).
    pub async fn try_acquire(self) -> Result<Option<Hold>> {
        self.request.try_acquire(self.handle).await
    }

    /// Acquires, runs `work` and releases. The work is dropped when the hold is lost.
    ///
    /// # Errors
    /// The errors of [`acquire`](Mutex::acquire), and `Lost`.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and releases.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T> {
        self.acquire().await?.run(work).await
    }
}

impl fmt::Debug for Mutex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Mutex({:?})", *self.request)
    }
}
