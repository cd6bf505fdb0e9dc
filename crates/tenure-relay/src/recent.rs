//! The last transaction of each sender that this relay has sent: the one after it need not ask the node
//! whether it is next.
//!
//! The node has said that it has the one before, so there is no gap; whether the nonce is used
//! meanwhile the node says itself. Where a node counts late, this knows better.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use alloy_primitives::Address;

/// For how long it is known.
const LASTS: Duration = Duration::from_secs(5);
/// With so many it is time to forget the old ones.
const MANY: usize = 10_000;

#[derive(Default)]
pub(crate) struct Recent(Mutex<HashMap<Address, (u64, Instant)>>);

impl Recent {
    /// The node has the transaction with this nonce.
    pub(crate) fn accepted(&self, sender: Address, nonce: u64) {
        let mut all = self.lock();
        if all.len() >= MANY {
            all.retain(|_, (_, since)| since.elapsed() < LASTS);
        }
        // Those of the last seconds are more than that: then nobody is spared a question.
        if all.len() < MANY || all.contains_key(&sender) {
            all.insert(sender, (nonce, Instant::now()));
        }
    }

    /// Whether the one before this has just been taken.
    pub(crate) fn comes_before(&self, sender: Address, nonce: u64) -> bool {
        let last = self.lock().get(&sender).copied();
        let last = last.filter(|(_, since)| since.elapsed() < LASTS);
        last.is_some_and(|(last, _)| last.checked_add(1) == Some(nonce))
    }

    /// The node does not share what is known here.
    pub(crate) fn forget(&self, sender: Address) {
        self.lock().remove(&sender);
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Address, (u64, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_one_after_the_last_is_known_to_be_next() {
        let (recent, one, two) = (Recent::default(), Address::ZERO, Address::with_last_byte(2));
        assert!(!recent.comes_before(one, 0));
        recent.accepted(one, 6);
        assert!(recent.comes_before(one, 7));
        assert!(!recent.comes_before(one, 8) && !recent.comes_before(one, 6));
        assert!(!recent.comes_before(two, 7));
        recent.forget(one);
        assert!(!recent.comes_before(one, 7));
        recent.accepted(one, u64::MAX);
        assert!(!recent.comes_before(one, 0));
    }

    #[test]
    fn it_does_not_grow_without_end() {
        let recent = Recent::default();
        for number in 0..2 * MANY {
            recent.accepted(Address::left_padding_from(&number.to_be_bytes()), 0);
        }
        assert!(recent.lock().len() <= MANY);
    }
}
