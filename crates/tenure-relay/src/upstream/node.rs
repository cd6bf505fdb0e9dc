//! One node, and whether it answers.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Address;
use crate::meters;

/// After this many failures in a row, other nodes are asked first.
const FAILURES: u32 = 3;
/// For how long: doubled with each further failure, up to the longest.
const REST: Duration = Duration::from_secs(1);
const LONGEST_REST: Duration = Duration::from_secs(30);

pub(crate) struct Node {
    pub(super) address: Address,
    seen: Mutex<Seen>,
}

#[derive(Default)]
struct Seen {
    chain_id: Option<u64>,
    failures: u32,
    rests_until: Option<Instant>,
    failing_since: Option<Instant>,
}

impl Node {
    pub(super) fn new(address: Address) -> Node {
        meters::node_is_up(address.host(), true);
        Node { address, seen: Mutex::default() }
    }

    /// Whether it has confirmed that it is of this chain.
    pub(super) fn is_of_chain(&self, chain_id: u64) -> bool {
        self.seen().chain_id == Some(chain_id)
    }

    pub(super) fn has_shown_its_chain(&self, chain_id: u64) {
        self.seen().chain_id = Some(chain_id);
    }

    /// Whether it answered its last request.
    pub(super) fn answers(&self) -> bool {
        self.seen().failures == 0
    }

    /// Whether it is not resting. When its rest is over, one request tests whether it answers again.
    pub(super) fn may_be_asked(&self) -> bool {
        let (mut seen, now) = (self.seen(), Instant::now());
        let may_be_asked = seen.rests_until.is_none_or(|until| until <= now);
        if may_be_asked && seen.rests_until.is_some() {
            seen.rests_until = Some(now + REST);
        }
        may_be_asked
    }

    /// It gave a usable answer.
    pub(super) fn answered(&self) {
        let mut seen = self.seen();
        let (failures, since) = (seen.failures, seen.failing_since.take());
        (seen.failures, seen.rests_until) = (0, None);
        drop(seen);
        let (Some(since), node) = (since, self.address.host()) else { return };
        meters::node_is_up(node, true);
        if failures >= FAILURES {
            let down_ms = since.elapsed().as_millis() as u64;
            tracing::info!(event = "node.up", node, down_ms);
        }
    }

    /// It gave no answer, or an unusable one.
    pub(super) fn failed(&self, why: &str) {
        let mut seen = self.seen();
        seen.failures = seen.failures.saturating_add(1);
        if let Some(further) = seen.failures.checked_sub(FAILURES) {
            let rest = REST.saturating_mul(1 << further.min(5)).min(LONGEST_REST);
            seen.rests_until = Some(Instant::now() + rest);
        }
        seen.failing_since.get_or_insert_with(Instant::now);
        let failures = seen.failures;
        drop(seen);
        let node = self.address.host();
        meters::node_failed(node);
        meters::node_is_up(node, false);
        // A single failure now and then is not worth a log line.
        if failures == FAILURES {
            tracing::warn!(event = "node.down", node, reason = why);
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
