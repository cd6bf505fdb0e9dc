use std::fmt;

use tokio::sync::watch;

use super::State;

/// The state of a worker, which can be watched. See [`Worker::states`](super::Worker::states).
#[derive(Clone)]
pub struct States(watch::Receiver<State>);

impl States {
    pub(super) fn new(receiver: watch::Receiver<State>) -> States {
        States(receiver)
    }

    /// The current state.
    pub fn current(&self) -> State {
        *self.0.borrow()
    }

    /// Waits for a change since the last call, and returns the new state; `None` once the worker is gone. A slow
    /// caller gets the latest state, not every one in between.
    ///
    /// # Cancel safety
    /// Safe: the latest change is never missed.
    pub async fn changed(&mut self) -> Option<State> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }

    /// Waits until the worker is in that state. Returns `false` if the worker is gone before.
    ///
    /// # Cancel safety
    /// Safe: it only reads.
    pub async fn reach(&mut self, state: State) -> bool {
        self.0.wait_for(|now| *now == state).await.is_ok()
    }
}

impl fmt::Debug for States {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "States({})", self.current())
    }
}

/// Tells a worker to stop, from anywhere. See [`Worker::stopper`](super::Worker::stopper).
#[derive(Clone)]
pub struct Stopper(watch::Sender<bool>);

impl Stopper {
    pub(super) fn new() -> Stopper {
        Stopper(watch::Sender::new(false))
    }

    /// Tells it to stop. No matter what it is doing, its work is stopped, then its term released, and
    /// [`run`](super::Worker::run) returns. A worker that is not running yet will not start. Further calls have
    /// no effect.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it is told to stop.
    pub(super) async fn told(&self) {
        // It cannot fail: this is the sender.
        let _ = self.0.subscribe().wait_for(|told| *told).await;
    }
}

impl fmt::Debug for Stopper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Stopper({})", if self.is_told() { "told to stop" } else { "not told" })
    }
}
