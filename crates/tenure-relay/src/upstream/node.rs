//! One node, and whether it is worth asking.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Address;

/// So many failures in a row, and others are asked first.
const FAILURES: u32 = 3;
/// For so long, doubled with each further failure up to the longest.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

pub(super) struct Node {
    pub(super) address: Address,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    chain_id: Option<u64>,
    failures: u32,
    rests_until: Option<Instant>,
}

impl Node {
    pub(super) fn new(address: Address) -> Node {
        Node { address, seen: Mutex::default() }
    }

    /// Whether it has said that it is of this chain.
    pub(super) fn is_of_chain(&self, chain_id: u64) -> bool {
        self.seen().chain_id == Some(chain_id)
    }

    pub(super) fn has_shown_its_chain(&self, chain_id: u64) {
        self.seen().chain_id = Some(chain_id);
    }

    /// Whether it has answered when it was last asked.
    pub(super) fn answers(&self) -> bool {
        self.seen().failures == 0
    }

    /// After its rest it is one request that finds out whether it answers again.
    pub(super) fn may_be_asked(&self) -> bool {
        let (mut seen, now) = (self.seen(), Instant::now());
        let may_be_asked = seen.rests_until.is_none_or(|until| until <= now);
        if may_be_asked && seen.rests_until.is_some() {
            seen.rests_until = Some(now + REST);
        }
        may_be_asked
    }

    /// It has given an answer that can be used.
    pub(super) fn answered(&self) {
        let mut seen = self.seen();
        (seen.failures, seen.rests_until) = (0, None);
    }

    /// It has given none.
    pub(super) fn failed(&self) {
        let mut seen = self.seen();
        seen.failures = seen.failures.saturating_add(1);
        if let Some(further) = seen.failures.checked_sub(FAILURES) {
            let rest = REST.saturating_mul(1 << further.min(5)).min(LONGEST_REST);
            seen.rests_until = Some(Instant::now() + rest);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
