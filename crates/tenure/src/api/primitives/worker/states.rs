use std::fmt;

use tokio::sync::watch;

use super::State;

/// What a worker is doing, as it goes. See [`Worker::states`](super::Worker::states).
#[derive(Clone)]
pub struct States(watch::Receiver<State>);

impl States {
    pub(super) fn new(receiver: watch::Receiver<State>) -> States {
        States(receiver)
    }

    /// What it is doing now.
    pub fn current(&self) -> State {
        *self.0.borrow()
    }

    /// What it is doing, when that has changed since the last time; `None` once the worker is gone.
    /// Whoever is slow sees the latest state and not each one in between.
    ///
    /// # Cancel safety
    /// Safe: no change is missed that was not followed by another.
    pub async fn changed(&mut self) -> Option<State> {
        self.0.changed().await.ok()?;
        Some(*self.0.borrow_and_update())
    }

    /// Waits until it is in that state; `false` if the worker is gone before.
    ///
    /// # Cancel safety
    /// Safe: it only looks.
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

    /// Tells it to stop. Whatever it is doing, its work is stopped, then its term released, and
    /// [`run`](super::Worker::run) returns; one that does not run yet will not begin. Once is enough.
    pub fn stop(&self) {
        self.0.send_replace(true);
    }

    pub(super) fn is_told(&self) -> bool {
        *self.0.borrow()
    }

    /// Waits until it was told to stop.
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
