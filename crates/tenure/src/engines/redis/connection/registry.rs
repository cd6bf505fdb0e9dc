//! All connections of an engine: the callers' and the watchdog's.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use super::Connection;
use super::takeover::Wakeup;
use crate::model::moment::Moment;

#[derive(Default)]
pub(crate) struct Registry {
    connections: Mutex<Vec<Weak<Connection>>>,
    /// When all of them were last reconnected.
    reconnected: AtomicU64,
    /// Wakes the task that takes over connections nobody reads.
    pub(super) wakeup: Wakeup,
}

impl Registry {
    pub(super) fn add(&self, connection: &Arc<Connection>) {
        let mut all = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|connection| connection.strong_count() > 0);
        all.push(Arc::downgrade(connection));
    }

    pub(crate) fn all(&self) -> Vec<Arc<Connection>> {
        let all = self.connections.lock().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    }

    /// Reconnects all connections, at most once a second.
    pub(crate) fn reconnect_all(&self, now: Moment) {
        let now = now.as_nanos();
        if now > self.reconnected.load(Relaxed) + 1_000_000_000 {
            self.reconnected.store(now, Relaxed);
            self.all().iter().for_each(|connection| connection.reconnect());
        }
    }
}
