//! The identity of an observer of a hold.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Identifies an observer of a hold, so that it can be removed when it is dropped. A clone is another observer.
pub(crate) struct ObserverId(pub(crate) u64);

impl ObserverId {
    pub(crate) fn new() -> ObserverId {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        ObserverId(NEXT.fetch_add(1, Relaxed))
    }
}

impl Clone for ObserverId {
    fn clone(&self) -> ObserverId {
        ObserverId::new()
    }
}
