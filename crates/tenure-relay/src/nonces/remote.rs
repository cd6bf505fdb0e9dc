//! Reservations for remote signers: they ask over the network, may die at any moment, and may ask another process
//! the next time.
//!
//! A reservation lasts for its time, whether or not the signer or this process lives, and its unit contains
//! everything that the next call needs. What this process keeps of it only lets it clean up sooner.

use std::time::Duration;

use alloy_primitives::B256;
use tenure::Fence;

use super::lane::Lane;
use super::own::Slot;
use super::{Chain, NonceError};
use crate::in_flight::{ID, Member, Seen, TURN, seen};

type Result<T> = std::result::Result<T, NonceError>;

/// A request of a signer.
#[derive(Clone, Debug)]
pub(crate) struct Ask {
    /// Its name for the reservation: the same name gets the same nonce, while it lasts.
    pub(crate) id: Option<String>,
    /// This nonce and no other, to fill a gap.
    pub(crate) nonce: Option<u64>,
    /// For how long.
    pub(crate) lasts: Duration,
    /// The turn in which it asks, if nonces are given out one at a time.
    pub(crate) turn: Option<Fence>,
}

/// The reserved nonce.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Given {
    pub(crate) nonce: u64,
    /// How much longer it lasts.
    pub(crate) lasts: Duration,
}

impl Ask {
    fn marks(&self) -> Vec<(&'static str, String)> {
        let id = self.id.iter().map(|id| (ID, id.clone()));
        id.chain(self.turn.iter().map(|turn| (TURN, turn.get().to_string()))).collect()
    }
}

impl Lane {
    /// Takes the lowest free nonce, or the requested one; `None` if that is taken.
    pub(crate) async fn reserve_for(&self, chain: &impl Chain, ask: &Ask) -> Result<Option<Given>> {
        let _in_line = self.stand_in_line().await?;
        let set = self.taken.clone().ttl(ask.lasts).max_hold(ask.lasts).unrenewed();
        loop {
            let mut standing = self.look(chain).await?;
            if let Some(unit) = ask.id.as_ref().and_then(|id| standing.of(id)) {
                return Ok(Some(Given { nonce: unit.nonce, lasts: unit.remaining }));
            }
            if let Some(turn) = ask.turn {
                standing.end_turns_before(turn);
            }
            let nonce = match ask.nonce {
                None => standing.next(),
                Some(nonce) if standing.is_free(nonce) => nonce,
                Some(_) => return Ok(None),
            };
            let member = set.join_with(nonce, None, &ask.marks()).await?;
            if let Some(slot) = self.confirm(chain, member, &standing).await? {
                self.keep(slot);
                return Ok(Some(Given { nonce, lasts: ask.lasts }));
            }
        }
    }

    /// The signer is about to send this hash with its reserved nonce: from now on others look up the hash at the
    /// chain before they take the nonce.
    pub(crate) async fn sending_for(&self, id: &str, hash: B256) -> Result<()> {
        let unit = self.unit_of(id).await?.ok_or(NonceError::Lost(0))?;
        let member = self.sent.join(unit.nonce, Some(hash)).await?;
        // If the unit still exists after the hash was recorded, it existed all the time.
        let is_had = self.unit_of(id).await?.is_some_and(|now| now.fence == unit.fence);
        if !is_had {
            member.leave().await?;
            return Err(NonceError::Lost(unit.nonce));
        }
        self.keep(Slot::adopted(member));
        Ok(())
    }

    /// The signer has not sent it, and gives the nonce back; with a hash, the node has refused that. Returns
    /// whether it had a nonce.
    pub(crate) async fn release_for(&self, id: &str, hash: Option<B256>) -> Result<bool> {
        let Some(unit) = self.unit_of(id).await? else { return Ok(false) };
        let is_refused = |other: &Seen| hash.is_some() && other.hash == hash;
        // The hash first: a nonce with only a hash is looked up at the chain.
        for other in self.units().await?.iter().filter(|other| is_refused(other)) {
            self.end(other).await?;
        }
        self.end(&unit).await?;
        Ok(true)
    }

    /// This process is about to send a transaction with this nonce to the chain.
    pub(crate) async fn hand_over(&self, nonce: u64, hash: B256) -> Result<Member> {
        Ok(self.sent.join(nonce, Some(hash)).await?)
    }

    /// The chain has it, or may have it.
    pub(crate) fn keep_sent(&self, sent: Member) {
        self.keep(Slot::adopted(sent));
    }

    /// The reserved nonce was used, or that was tried: from now on only the record of a transaction keeps it.
    /// Returns the turn in which it was given out, if that is over now.
    pub(crate) async fn close(&self, nonce: u64) -> Result<Option<Fence>> {
        let is_open = |unit: &Seen| unit.hash.is_none();
        let mut turn = None;
        for unit in self.units().await?.iter().filter(|unit| unit.nonce == nonce && is_open(unit)) {
            turn = turn.max(unit.turn);
            self.end(unit).await?;
        }
        if turn.is_none() {
            return Ok(None);
        }
        // After our own unit has ended: of two that end at the same time, the last sees none.
        let units = self.units().await?;
        let is_over = !units.iter().any(|unit| unit.turn == turn && is_open(unit));
        Ok(turn.filter(|_| is_over))
    }

    /// Whether this process has nothing more to clean up.
    pub(crate) fn is_idle(&self) -> bool {
        self.own().is_idle()
    }

    async fn units(&self) -> Result<Vec<Seen>> {
        Ok(self.taken.units().await?.iter().filter_map(seen).collect())
    }

    async fn unit_of(&self, id: &str) -> Result<Option<Seen>> {
        Ok(self.units().await?.into_iter().find(|unit| unit.id.as_deref() == Some(id)))
    }

    /// Ends a unit, no matter which process joined it.
    async fn end(&self, unit: &Seen) -> Result<()> {
        let own = self.own().remove(unit.fence);
        match own {
            Some(member) => drop(member.leave().await?),
            None => {
                let why = "the nonce was given back";
                self.tenure.break_hold(self.taken.name(), unit.fence, why).await?;
            }
        }
        Ok(())
    }
}
