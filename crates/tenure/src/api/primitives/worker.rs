//! One of several workers does the work; when it ends, another takes over.

mod callback;
mod driver;
mod id;
mod machine;
mod states;

#[cfg(test)]
mod tests;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use self::driver::{Driver, Led};
pub use self::machine::{Action, Event, Machine, Next, State};
pub use self::states::{States, Stopper};
use crate::api::primitives::election::{Election, Term};
use crate::api::setters::setters;
use crate::core::handle::Handle;
use crate::core::request_builder::RequestBuilder;
use crate::model::error::{Error, Result};
use crate::model::options::MOST_META;

/// A worker. Of all workers with the same name, one at a time does the work.
///
/// It campaigns in an election and, when it leads, starts the work, once per term. It stops the work *before* the
/// term ends, because it was told to or because renewals fail. Then it campaigns again; it never gives up, not even
/// if the engine cannot be reached. Workers share the name space of elections:
/// [`Election::leader`] shows which one works.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// use tenure::{Term, Work};
///
/// struct Reports(Option<tokio::task::JoinHandle<()>>);
///
/// impl Work for Reports {
///     type Error = std::io::Error;
///
///     async fn start(&mut self, term: &Term) -> Result<(), Self::Error> {
///         let fence = term.number();
///         self.0 = Some(tokio::spawn(async move { build_reports(fence).await }));
///         Ok(())
///     }
///
///     async fn stop(&mut self) -> Result<(), Self::Error> {
///         if let Some(task) = self.0.take() {
///             task.abort();
///             let _ = task.await; // it has ended when this returns
///         }
///         Ok(())
///     }
/// }
/// # async fn build_reports(_: tenure::Fence) {}
///
/// let worker = tenure.worker("reports");
/// let stopper = worker.stopper(); // for the handler of SIGTERM: hands over at once
/// # stopper.stop();
/// worker.run(Reports(None)).await?;
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(example()).unwrap();
/// ```
#[must_use = "this only describes the worker; run it"]
pub struct Worker {
    handle: Arc<Handle>,
    request: RequestBuilder,
    id: String,
    start_within: Option<Duration>,
    stop_within: Option<Duration>,
    stopper: Stopper,
    states: watch::Sender<State>,
}

/// What a worker does while it leads. Both callbacks may fail, panic or hang: each has a time limit.
///
/// No limit can stop a callback that blocks its thread: run such work on another thread, for example with
/// `spawn_blocking`.
pub trait Work: Send {
    /// Why a callback failed, for the log.
    type Error: fmt::Display;

    /// Starts the work, and returns when it runs. Called once per term, never at a renewal.
    ///
    /// If it fails, panics or takes longer than [`start_within`](Worker::start_within), [`stop`](Work::stop) is
    /// called, the term is resigned, and the worker campaigns again after a pause.
    ///
    /// # Cancel safety
    /// It is dropped when its time is over, the term ends or the worker is told to stop. `stop` is called after
    /// that, and must end everything that was begun.
    fn start(&mut self, term: &Term) -> impl Future<Output = Result<(), Self::Error>> + Send;

    /// Stops the work, and returns when it has ended: the next worker may start at that moment.
    ///
    /// If it fails, panics or takes longer than [`stop_within`](Worker::stop_within), the work may still be
    /// running. That is logged as an error, and the term is not released but runs out.
    ///
    /// # Cancel safety
    /// It is dropped when its time is over, and is not called again for this term.
    fn stop(&mut self) -> impl Future<Output = Result<(), Self::Error>> + Send;
}

setters!(Worker);

impl Worker {
    pub(crate) fn new(handle: Arc<Handle>, request: RequestBuilder) -> Worker {
        let (stopper, states) = (Stopper::new(), watch::Sender::new(State::Idle));
        let id = id::ulid();
        Worker { handle, request, id, start_within: None, stop_within: None, stopper, states }
    }

    /// A text that everyone can read while this worker leads. Default: its [`id`](Worker::id).
    pub fn value(mut self, value: impl Into<String>) -> Worker {
        self.request.details().value = Some(value.into());
        self
    }

    /// How long [`Work::start`] may take. Default: a third of the ttl.
    pub fn start_within(mut self, start_within: Duration) -> Worker {
        self.start_within = Some(start_within);
        self
    }

    /// How long [`Work::stop`] may take. If renewals fail, stopping begins this long before the term ends.
    /// Default: a third of the ttl; at most half of it, and together with [`renew_every`](Worker::renew_every) at
    /// most five sixths of it.
    pub fn stop_within(mut self, stop_within: Duration) -> Worker {
        self.stop_within = Some(stop_within);
        self
    }

    /// Sets another id, such as one for all workers of a process.
    pub fn with_id(mut self, id: impl Into<String>) -> Worker {
        self.id = id.into();
        self
    }

    /// Identifies this worker: a ULID, made with the worker. It is in every log line about this worker, and in
    /// the meta of its holds as `worker`.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The worker's state, which can be watched.
    pub fn states(&self) -> States {
        States::new(self.states.subscribe())
    }

    /// Tells the worker to stop, from anywhere.
    pub fn stopper(&self) -> Stopper {
        self.stopper.clone()
    }

    /// Works whenever it leads, until it is told to [stop](Worker::stopper). Then the work is stopped,
    /// the term is released, so that the next worker leads at once, and this returns.
    ///
    /// `wait` is ignored. Needs a runtime with timers.
    ///
    /// # Errors
    /// Only errors that a retry cannot fix, such as `Invalid`, `Denied` or `Closed`. No work is running then.
    ///
    /// # Cancel safety
    /// Dropping it calls nothing: the term is no longer renewed and runs out, because the work may still be
    /// running. Use a [`stopper`](Worker::stopper) instead.
    pub async fn run(mut self, work: impl Work) -> Result<()> {
        self.request.wait = None;
        let ttl = self.request.claim.ttl;
        let start_within = self.start_within.unwrap_or(ttl / 3);
        let stop_within = self.stop_within.unwrap_or(ttl / 3);
        check_bounds(start_within, stop_within, ttl, self.request.terms.renew_every)
            .map_err(|error| self.handle.core.explain(error, "work", &self.request.claim.name))?;
        let Worker { handle, mut request, id, stopper, states, .. } = self;
        let details = request.details();
        details.value.get_or_insert_with(|| id.clone());
        if details.meta.len() < MOST_META {
            details.meta.push(("worker".into(), id.clone()));
        }
        let election = Election { handle, request };
        let (machine, failures, led) = (Machine::new(), 0, Led::default());
        let driver = Driver {
            election,
            id,
            start_within,
            stop_within,
            stopper,
            states,
            machine,
            failures,
            led,
            term: None,
        };
        driver.run(work).await
    }
}

/// Between the time a renewal is due and the time to stop, there must be room for an answer and another try: at
/// least a sixth of the ttl.
fn check_bounds(
    start_within: Duration,
    stop_within: Duration,
    ttl: Duration,
    renew_every: Option<Duration>,
) -> Result<()> {
    for (what, bound) in [("start_within", start_within), ("stop_within", stop_within)] {
        if bound.is_zero() {
            let reason = format!("{what} is zero");
            return Err(Error::invalid(reason).next("give the callback some time"));
        }
    }
    if stop_within > ttl / 2 {
        let reason = format!("stop_within {stop_within:?} is above half of the ttl {ttl:?}");
        let advice = "raise the ttl: stopping has to fit in what is left when renewals have failed";
        return Err(Error::invalid(reason).next(advice));
    }
    if let Some(every) = renew_every
        && every.saturating_add(stop_within).saturating_mul(6) > ttl.saturating_mul(5)
    {
        let reason = format!(
            "renew_every {every:?} and stop_within {stop_within:?} leave less than a sixth of the ttl {ttl:?}"
        );
        let advice = "renew more often, or raise the ttl: a renewal needs time to be answered";
        return Err(Error::invalid(reason).next(advice));
    }
    Ok(())
}

impl fmt::Debug for Worker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Worker({}, {:?})", self.id, *self.request)
    }
}
