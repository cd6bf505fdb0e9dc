//! Where a test runs: in real time, or in the virtual time of the [simulation](crate::sim).
//!
//! A test body that gets its tasks and its sleeps from a `Runtime` runs in both.

use std::fmt::Debug;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::engine::{Moment, SystemWorld, World};

/// A future that a runtime can run.
pub type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Time and tasks.
pub trait Runtime: Debug + Send + Sync + 'static {
    /// The world of clients on this runtime.
    fn world(&self) -> Arc<dyn World>;

    /// Spawns a task.
    fn start(&self, task: Task);

    /// Sleeps.
    fn sleep(&self, span: Duration) -> Task;
}

impl dyn Runtime {
    /// Spawns a future, and returns its value.
    pub fn spawn<T: Send + 'static>(
        &self,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Joined<T> {
        let slot = Arc::new(Mutex::new(Slot { value: None, gone: false, waker: None }));
        let promise = Promise(slot.clone());
        self.start(Box::pin(async move {
            let value = future.await;
            promise.keep(value);
        }));
        Joined(slot)
    }

    /// The current time of this runtime's world.
    pub fn now(&self) -> Moment {
        self.world().now()
    }

    /// Runs a future for at most `span`; `None` if it was not ready by then, and was dropped.
    pub async fn within<T>(&self, span: Duration, future: impl Future<Output = T>) -> Option<T> {
        let mut future = std::pin::pin!(future);
        let mut sleep = self.sleep(span);
        std::future::poll_fn(|cx| {
            if let Poll::Ready(value) = future.as_mut().poll(cx) {
                return Poll::Ready(Some(value));
            }
            sleep.as_mut().poll(cx).map(|()| None)
        })
        .await
    }
}

struct Slot<T> {
    value: Option<T>,
    gone: bool,
    waker: Option<Waker>,
}

struct Promise<T>(Arc<Mutex<Slot<T>>>);

impl<T> Promise<T> {
    fn keep(self, value: T) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).value = Some(value);
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        slot.gone = true;
        if let Some(waker) = slot.waker.take() {
            drop(slot);
            waker.wake();
        }
    }
}

/// The value of a spawned future. Panics if the future was dropped or panicked.
#[must_use = "futures do nothing unless awaited"]
pub struct Joined<T>(Arc<Mutex<Slot<T>>>);

impl<T> Future for Joined<T> {
    type Output = T;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        let mut slot = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = slot.value.take() {
            return Poll::Ready(value);
        }
        assert!(!slot.gone, "a spawned task ended without its value");
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }
}

/// Real time, on the tokio runtime that it was created in: engines may start tasks from threads of their own.
#[derive(Clone, Debug)]
pub struct RealRuntime(tokio::runtime::Handle);

impl RealRuntime {
    /// Uses the tokio runtime that this is called in.
    pub fn here() -> RealRuntime {
        RealRuntime(tokio::runtime::Handle::current())
    }
}

impl Runtime for RealRuntime {
    fn world(&self) -> Arc<dyn World> {
        Arc::new(SystemWorld)
    }

    fn start(&self, task: Task) {
        self.0.spawn(task);
    }

    fn sleep(&self, span: Duration) -> Task {
        let _inside = self.0.enter();
        Box::pin(tokio::time::sleep(span))
    }
}
