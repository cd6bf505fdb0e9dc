//! The highest numbers that this process has seen. A server that has lost its memory must continue above them.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::protocol::layout::{PARTITIONS, partition};
use crate::model::claim::{Claim, Fence};

pub(super) struct Numbers {
    /// By partition, because each partition counts on its own: one maximum for all would raise every
    /// partition with each claim.
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
        // A fence cannot be that high. A bogus number from outside must not stop the partition for good.
        let possible = fence.get() < 1 << 53;
        if let Some(seen) = self.seen.get(usize::from(partition)).filter(|_| possible) {
            seen.fetch_max(fence.get(), Relaxed);
            self.highest.fetch_max(fence.get(), Relaxed);
        }
    }

    /// The highest number of the partition that this process has seen.
    pub(super) fn of(&self, partition: u16) -> Fence {
        let seen = self.seen.get(usize::from(partition));
        Fence::new(seen.map_or(0, |seen| seen.load(Relaxed)))
    }

    /// The number that a claim must be above, as far as this process knows.
    pub(super) fn before(&self, claim: &Claim) -> Fence {
        let seen = self.of(partition(&claim.name));
        // One that comes from another process may be about this very name.
        match claim.on_behalf || claim.seen.get() > self.highest.load(Relaxed) {
            true => claim.seen.max(seen),
            false => seen,
        }
    }
}
