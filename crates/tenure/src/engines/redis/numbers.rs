//! The highest numbers that this process has seen: a server that has lost its memory must go on above them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::protocol::layout::{PARTITIONS, partition};
use crate::model::claim::{Claim, Fence};

pub(super) struct Numbers {
    /// By partition. They count apart, so the highest of all would push every partition on with each claim.
    seen: Box<[AtomicU64]>,
    highest: AtomicU64,
}

impl Default for Numbers {
    fn default() -> Numbers {
        let seen = (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect();
        Numbers { seen, highest: AtomicU64::new(0) }
    }
}

impl Numbers {
    pub(super) fn saw(&self, partition: u16, fence: Fence) {
        // No fence is that high; a number from elsewhere must not stop the partition for ever.
        let possible = fence.get() < 1 << 53;
        if let Some(seen) = self.seen.get(usize::from(partition)).filter(|_| possible) {
            seen.fetch_max(fence.get(), Relaxed);
            self.highest.fetch_max(fence.get(), Relaxed);
        }
    }

    /// The highest number that a claim must be above, as far as this process knows.
    pub(super) fn before(&self, claim: &Claim) -> Fence {
        if claim.seen.get() > self.highest.load(Relaxed) {
            // From elsewhere, so it may be of this very name.
            return claim.seen;
        }
        Fence::new(self.seen[usize::from(partition(&claim.name))].load(Relaxed))
    }
}
