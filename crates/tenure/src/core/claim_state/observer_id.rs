//! Whoever watches a hold.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tells those who watch a hold apart, so that whoever stops watching leaves nothing with it.
pub(crate) struct Watcher(pub(crate) u64);

impl Watcher {
    pub(crate) fn new() -> Watcher {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Watcher(NEXT.fetch_add(1, Relaxed))
    }
}

impl Clone for Watcher {
    fn clone(&self) -> Watcher {
        Watcher::new()
    }
}
