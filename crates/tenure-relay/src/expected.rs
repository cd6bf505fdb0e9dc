//! Which nonce of a sender a node is expected to count next: the one after the last that it accepted from this relay.
//!
//! An expectation saves a request and proves nothing. A transaction that is sent because of it carries the question for
//! the count in the same request, and the answer decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::Address;

use crate::upstream::Node;

/// How long an expectation lasts, and for how many senders.
const EXPECTED_FOR: Duration = Duration::from_secs(30);
const MANY: usize = 10_000;

#[derive(Default)]
pub(crate) struct Expected(Mutex<HashMap<Address, Next>>);

struct Next {
    nonce: u64,
    node: Arc<Node>,
    since: Instant,
}

impl Expected {
    /// The node that is expected to count this nonce next, if any.
    pub(crate) fn node(&self, sender: Address, nonce: u64) -> Option<Arc<Node>> {
        let senders = self.lock();
        let next = senders.get(&sender);
        let next = next.filter(|next| next.nonce == nonce && next.since.elapsed() < EXPECTED_FOR);
        next.map(|next| next.node.clone())
    }

    /// Notes that a node accepted this nonce.
    pub(crate) fn taken(&self, sender: Address, nonce: u64, node: &Arc<Node>) {
        let mut senders = self.lock();
        if senders.len() >= MANY {
            senders.retain(|_, next| next.since.elapsed() < EXPECTED_FOR);
        }
        if senders.len() < MANY || senders.contains_key(&sender) {
            let (nonce, node) = (nonce.saturating_add(1), node.clone());
            senders.insert(sender, Next { nonce, node, since: Instant::now() });
        }
    }

    pub(crate) fn forget(&self, sender: Address) {
        self.lock().remove(&sender);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Address, Next>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
