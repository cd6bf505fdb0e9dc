//! The nonces that this process holds: those of its callers, and those whose outcome is not known yet.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use alloy_primitives::B256;
use tenure::Hold;

use crate::in_flight::Member;

/// A nonce with its units: that of the caller that took it, which lasts while this process lives, and that with
/// the hash of its transaction, which outlives the process.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(super) nonce: u64,
    pub(super) hash: Option<B256>,
    pub(super) taken: Option<Member>,
    pub(super) sent: Option<Member>,
}

impl Slot {
    pub(super) fn taken(member: Member) -> Slot {
        Slot { nonce: member.nonce(), hash: None, taken: Some(member), sent: None }
    }

    /// Another process took it and sent it, and is gone.
    pub(super) fn adopted(member: Member) -> Slot {
        let (nonce, hash) = (member.nonce(), member.hash());
        Slot { nonce, hash, taken: None, sent: Some(member) }
    }

    pub(crate) fn nonce(&self) -> u64 {
        self.nonce
    }

    /// Whether all other processes certainly still see it as this process's.
    pub(super) fn is_live(&self) -> bool {
        self.taken.as_ref().is_some_and(Member::is_live)
    }

    pub(super) async fn leave(self) -> tenure::Result<()> {
        // The hash first: a nonce with only a hash is looked up at the chain.
        if let Some(sent) = self.sent {
            sent.leave().await?;
        }
        if let Some(taken) = self.taken {
            taken.leave().await?;
        }
        Ok(())
    }
}

/// Nonces that no caller has any more.
#[derive(Debug, Default)]
pub(super) struct Own {
    kept: Vec<Kept>,
    /// The highest count that this process has seen, for those whose node is late.
    floor: Option<(u64, Hold)>,
    /// Hashes that the chain knows, and when it confirmed that.
    known: HashMap<B256, Instant>,
}

#[derive(Debug)]
struct Kept {
    slot: Slot,
    /// When to look up the hash at the chain, and to give up if it is not known there.
    until: Instant,
}

impl Kept {
    fn is_over(&self) -> bool {
        match &self.slot {
            Slot { taken: Some(taken), .. } => !taken.is_live() || Instant::now() >= self.until,
            // Everyone looks these up at the chain; this process only leaves them when they are counted.
            Slot { sent: Some(sent), .. } => !sent.is_live(),
            _ => true,
        }
    }
}

impl Own {
    pub(super) fn keep(&mut self, slot: Slot, until: Instant) {
        self.kept.push(Kept { slot, until });
    }

    pub(super) fn any_below(&self, count: u64) -> bool {
        self.kept.iter().any(|kept| kept.slot.nonce < count)
    }

    pub(super) fn forget_below(&mut self, count: u64) {
        self.kept.retain(|kept| kept.slot.nonce >= count);
    }

    /// Takes out the unit with this fence, if it is this process's.
    #[cfg(feature = "relay")]
    pub(super) fn remove(&mut self, fence: tenure::Fence) -> Option<Member> {
        let is_it = |member: &mut Member| member.hold().fence() == fence;
        let found = self.kept.iter_mut().find_map(|kept| {
            let Slot { taken, sent, .. } = &mut kept.slot;
            taken.take_if(is_it).or_else(|| sent.take_if(is_it))
        });
        self.kept.retain(|kept| kept.slot.taken.is_some() || kept.slot.sent.is_some());
        found
    }

    /// Whether the time of all nonces here is over.
    #[cfg(feature = "relay")]
    pub(super) fn is_idle(&self) -> bool {
        self.kept.iter().all(Kept::is_over)
    }

    /// The nonces whose time to wait is over.
    pub(super) fn over(&self) -> Vec<(u64, Option<B256>)> {
        let over = self.kept.iter().filter(|kept| kept.is_over());
        over.map(|kept| (kept.slot.nonce, kept.slot.hash)).collect()
    }

    pub(super) fn forget_over(&mut self, nonce: u64) {
        self.kept.retain(|kept| kept.slot.nonce != nonce || !kept.is_over());
    }

    /// This process no longer claims the nonce: if it has a hash, everyone looks that up at the chain.
    pub(super) fn let_go(&mut self, nonce: u64) {
        for kept in self.kept.iter_mut().filter(|kept| kept.slot.nonce == nonce && kept.is_over()) {
            kept.slot.taken = None;
        }
        self.kept.retain(|kept| kept.slot.taken.is_some() || kept.slot.sent.is_some());
    }

    /// Whether this process has published at least this count, for a while to come.
    pub(super) fn has_floor(&self, count: u64, lasts: Duration) -> bool {
        let told = |(known, hold): &(u64, Hold)| *known >= count && hold.remaining() > lasts;
        self.floor.as_ref().is_some_and(told)
    }

    pub(super) fn raise_floor(&mut self, count: u64, hold: Hold) {
        if self.floor.as_ref().is_none_or(|(known, _)| *known <= count) {
            self.floor = Some((count, hold));
        }
    }

    /// Whether the chain has confirmed it recently.
    pub(super) fn is_known(&mut self, hash: &B256, lately: Duration) -> bool {
        self.known.retain(|_, at| at.elapsed() < lately);
        self.known.contains_key(hash)
    }

    pub(super) fn known(&mut self, hash: B256) {
        self.known.insert(hash, Instant::now());
    }
}
