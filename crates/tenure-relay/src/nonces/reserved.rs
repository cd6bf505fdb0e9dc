use std::fmt;
use std::sync::Arc;

use alloy_primitives::B256;

use super::lane::Lane;
use super::own::Slot;
use super::{Chain, NonceError};

/// A nonce that only you have. Report how it was used: if it is dropped without that, it counts as
/// [unknown](Reserved::unknown), and nobody gets it before that is resolved.
#[must_use = "a reservation that is dropped keeps its nonce for a while"]
pub struct Reserved<C: Chain> {
    lane: Arc<Lane>,
    chain: Arc<C>,
    nonce: u64,
    /// `None` once it was reported.
    slot: Option<Slot>,
}

impl<C: Chain> Reserved<C> {
    pub(super) fn new(lane: Arc<Lane>, chain: Arc<C>, slot: Slot) -> Reserved<C> {
        Reserved { lane, chain, nonce: slot.nonce(), slot: Some(slot) }
    }

    /// The nonce.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The chain that is asked.
    pub fn chain(&self) -> &C {
        &self.chain
    }

    /// Whether it is certainly still yours. Only reads the clock. Do not send otherwise.
    pub fn is_live(&self) -> bool {
        self.slot.as_ref().is_some_and(Slot::is_live)
    }

    /// Records the hash of the transaction that is about to be sent, beside its nonce.
    ///
    /// If this process is killed from here on, others look up the hash at the chain before they take the nonce; without
    /// it they can only wait for `ttl`. It is also the last check whether the nonce is still yours.
    ///
    /// # Errors
    /// [`NonceError::Lost`] if the reservation has ended: do not send. [`NonceError::Engine`]: the reservation is
    /// unchanged.
    ///
    /// # Cancel safety
    /// The hash may have been recorded although the future was dropped; the nonce stays reserved.
    pub async fn sending(&mut self, hash: B256) -> Result<(), NonceError> {
        let was_had = match &mut self.slot {
            Some(slot) => self.lane.write(slot, hash).await?,
            None => false,
        };
        if !was_had {
            // Nothing was sent, and whoever has the nonce now keeps it.
            self.slot = None;
            return Err(NonceError::Lost(self.nonce));
        }
        Ok(())
    }

    /// The node has accepted the transaction with this hash. Nobody gets the nonce, even while a node does not
    /// count it yet, unless no node knows the hash any more, `unknown_for` later.
    ///
    /// # Errors
    /// [`NonceError::Engine`]: the nonce is kept nevertheless, for as long as this process can.
    ///
    /// # Cancel safety
    /// If the future is dropped, the nonce is kept as if nothing had been reported.
    pub async fn commit(mut self, hash: B256) -> Result<(), NonceError> {
        self.lane.commit(&*self.chain, &mut self.slot, hash).await
    }

    /// Nothing was sent, or the node refused it: the next caller gets the nonce.
    ///
    /// # Errors
    /// [`NonceError::Engine`]: it then ends by its ttl.
    ///
    /// # Cancel safety
    /// The nonce becomes free even if the future is dropped.
    pub async fn release(mut self) -> Result<(), NonceError> {
        if let Some(slot) = self.slot.take() {
            slot.leave().await?;
        }
        Ok(())
    }

    /// It was sent, but there was no answer: nobody gets the nonce until the chain has counted it, or
    /// `unknown_for` is over and the chain does not know the hash.
    ///
    /// # Errors
    /// As [`commit`](Reserved::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Reserved::commit).
    pub async fn unknown(mut self, hash: B256) -> Result<(), NonceError> {
        self.lane.keep_with(&mut self.slot, hash).await
    }

    /// The node says that another transaction has the nonce: someone sends from this account without these
    /// nonces, or was stopped for too long. This is counted. Nobody gets the nonce, even if the node does not
    /// count that other transaction yet.
    ///
    /// # Errors
    /// [`NonceError::Chain`], [`NonceError::Engine`]: the nonce is kept as if nothing had been reported.
    ///
    /// # Cancel safety
    /// As [`commit`](Reserved::commit).
    pub async fn wrong_nonce(mut self) -> Result<(), NonceError> {
        self.lane.wrong_nonce(&*self.chain, &mut self.slot).await
    }
}

impl<C: Chain> Drop for Reserved<C> {
    fn drop(&mut self) {
        if let Some(slot) = self.slot.take() {
            self.lane.keep(slot);
        }
    }
}

impl<C: Chain> fmt::Debug for Reserved<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.slot.as_ref().and_then(|slot| slot.hash);
        let mut shown = f.debug_struct("Reserved");
        shown.field("nonce", &self.nonce).field("hash", &hash).finish_non_exhaustive()
    }
}
