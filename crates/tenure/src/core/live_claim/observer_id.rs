//! Who observes a hold.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Tells the observers of a hold apart, so that one that is dropped can be removed. A clone is another observer.
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
