//! The thread that drives a connection, and how a caller waits without a runtime.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

use crate::model::error::{Error, ErrorKind, Result};

/// The thread ends with the last clone.
#[derive(Clone, Debug)]
pub(super) struct Driver(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    runtime: Handle,
    /// Dropping it ends the thread.
    _lives: oneshot::Sender<()>,
}

impl Driver {
    pub(super) fn start() -> Result<Driver> {
        let failed = |error: std::io::Error| {
            let reason = format!("cannot start the thread that drives the connection: {error}");
            Error::new(ErrorKind::Unavailable, reason).next("check the limits of this process")
        };
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (lives, ended) = oneshot::channel();
        let handle = runtime.handle().clone();
        // A runtime may only be dropped where blocking is allowed, as on that thread.
        let drive = move || drop(runtime.block_on(ended));
        let thread = thread::Builder::new().name("tenure-driver".into());
        thread.spawn(drive).map_err(failed)?;
        Ok(Driver(Arc::new(Inner { runtime: handle, _lives: lives })))
    }

    /// Waits for a future on this thread, within the driver's runtime.
    pub(super) fn wait<T>(&self, future: impl Future<Output = T>) -> T {
        let _inside = self.0.runtime.enter();
        let waker = Waker::from(Arc::new(Unpark(thread::current())));
        let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
        loop {
            match future.as_mut().poll(&mut cx) {
                Poll::Ready(value) => return value,
                Poll::Pending => thread::park(),
            }
        }
    }

    /// Makes a call, within the driver's runtime, whose result is waited for later.
    pub(super) fn call<T>(&self, call: impl FnOnce() -> T) -> T {
        let _inside = self.0.runtime.enter();
        call()
    }
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}
