//! Whether more than one claim of this process wants a name.
//!
//! Most names are wanted by one at a time, and need no machine: it is made for the second claim. The first is like one of
//! another process to it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::model::claim::ClaimId;
use crate::model::name::Name;

const SLOTS: usize = 1024;

/// The last claim for a name that has not left. Names that share a slot forget each other's claims, so a second claim may
/// be taken for a first; that costs it a trip to the engine.
pub(super) struct LastClaims([AtomicU64; SLOTS]);

impl Default for LastClaims {
    fn default() -> LastClaims {
        LastClaims([const { AtomicU64::new(0) }; SLOTS])
    }
}

impl LastClaims {
    /// Remembers a claim. Returns whether the last one for its name is another and has not left.
    pub(super) fn is_second(&self, name: &Name, id: &ClaimId) -> bool {
        let (slot, mark) = self.slot(name, id);
        let before = slot.swap(mark, Relaxed);
        before != mark && before >> 32 == mark >> 32
    }

    /// A claim leaves.
    pub(super) fn leaves(&self, name: &Name, id: &ClaimId) {
        let (slot, mark) = self.slot(name, id);
        let _ = slot.compare_exchange(mark, 0, Relaxed, Relaxed);
    }

    /// The slot of a name, and the mark of a claim for it: half of it is the name's, half the claim's.
    fn slot(&self, name: &Name, id: &ClaimId) -> (&AtomicU64, u64) {
        // Not the name's own hash, which differs from run to run: a simulation must repeat.
        let hash = name.as_str().bytes().fold(0xcbf2_9ce4_8422_2325, |hash: u64, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        // Never the mark of an empty slot.
        let mark = hash & 0xffff_ffff_0000_0000 | id.bits() & 0xffff_ffff | 1;
        (&self.0[hash as usize % SLOTS], mark)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::Space;

    #[test]
    fn a_claim_is_the_second_while_another_one_has_not_left() {
        let last = LastClaims::default();
        let name = |text: &str| Name::new(Space::Lock, text).unwrap();
        let id = |number: u128| ClaimId::from_bytes((number << 8).to_le_bytes());
        let (door, gate) = (name("door"), name("gate"));
        assert!(!last.is_second(&door, &id(1)));
        assert!(!last.is_second(&door, &id(1)), "it asks again");
        assert!(!last.is_second(&gate, &id(2)));
        assert!(last.is_second(&door, &id(3)));
        last.leaves(&door, &id(1));
        assert!(last.is_second(&door, &id(4)), "the third claim is still there");
        last.leaves(&door, &id(4));
        assert!(!last.is_second(&door, &id(5)));
    }
}
