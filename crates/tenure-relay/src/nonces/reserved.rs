use std::fmt;
use std::sync::Arc;

use alloy_primitives::B256;

use super::lane::Lane;
use super::{Chain, NonceError};
use crate::in_flight::Member;

/// A nonce that is yours alone. Say what became of it: dropped without a word it counts as
/// [unknown](Reserved::unknown), and nobody gets it before that is resolved.
#[must_use = "a reservation that is dropped keeps its nonce for a while"]
pub struct Reserved<C: Chain> {
    lane: Arc<Lane>,
    chain: Arc<C>,
    nonce: u64,
    /// Until something was said of it.
    member: Option<Member>,
}

impl<C: Chain> Reserved<C> {
    pub(super) fn new(lane: Arc<Lane>, chain: Arc<C>, member: Member) -> Reserved<C> {
        Reserved { lane, chain, nonce: member.nonce(), member: Some(member) }
    }

    /// The nonce.
    pub fn nonce(&self) -> u64 {
        self.nonce
    }

    /// The chain that is asked.
    pub fn chain(&self) -> &C {
        &self.chain
    }

    /// Whether it is certainly still yours. Looks at the clock; asks nobody. Do not send otherwise.
    pub fn is_live(&self) -> bool {
        self.member.as_ref().is_some_and(Member::is_live)
    }

    /// Writes the hash of the transaction that is about to be sent, beside its nonce.
    ///
    /// If this process is killed from here on, others ask the chain for the hash before they take the
    /// nonce; without it they can only wait for `ttl`. It is also the last look whether the nonce is
    /// still yours.
    ///
    /// # Errors
    /// [`NonceError::Lost`] if the reservation has ended: do not send. [`NonceError::Engine`]: it is
    /// reserved as it was.
    ///
    /// # Cancel safety
    /// The hash may have been written although the future was dropped; the nonce stays reserved.
    pub async fn sending(&mut self, hash: B256) -> Result<(), NonceError> {
        let was_had = match &mut self.member {
            Some(member) => self.lane.write(member, hash).await?,
            None => false,
        };
        if !was_had {
            // Nothing was sent, and whoever has the nonce now has it.
            self.member = None;
            return Err(NonceError::Lost(self.nonce));
        }
        Ok(())
    }

    /// The node has taken the transaction with this hash. Nobody gets the nonce, also while a node
    /// does not count it yet; only if no node knows the hash any more, `unknown_for` later.
    ///
    /// # Errors
    /// [`NonceError::Engine`]: the nonce is kept all the same, for as long as this process can.
    ///
    /// # Cancel safety
    /// If the future is dropped, the nonce is kept as one of which nothing was said.
    pub async fn commit(mut self, hash: B256) -> Result<(), NonceError> {
        self.lane.commit(&*self.chain, &mut self.member, hash).await
    }

    /// Nothing was sent, or the node refused it: whoever comes next gets the nonce.
    ///
    /// # Errors
    /// [`NonceError::Engine`]: it ends by its ttl then.
    ///
    /// # Cancel safety
    /// The nonce becomes free even if the future is dropped.
    pub async fn release(mut self) -> Result<(), NonceError> {
        if let Some(member) = self.member.take() {
            member.leave().await?;
        }
        Ok(())
    }

    /// It was sent, and no answer came: nobody gets the nonce until the chain has counted it, or
    /// `unknown_for` is over and the chain does not know the hash.
    ///
    /// # Errors
    /// As [`commit`](Reserved::commit).
    ///
    /// # Cancel safety
    /// As [`commit`](Reserved::commit).
    pub async fn unknown(mut self, hash: B256) -> Result<(), NonceError> {
        self.lane.keep_with(&mut self.member, hash).await
    }

    /// The node says that another transaction has the nonce: someone sends from this account without these
    /// nonces, or was stopped for too long. It is counted. Nobody gets the nonce, also if the node has that
    /// other transaction and does not count it yet.
    ///
    /// # Errors
    /// [`NonceError::Chain`], [`NonceError::Engine`]: the nonce is kept as one of which nothing was said.
    ///
    /// # Cancel safety
    /// As [`commit`](Reserved::commit).
    pub async fn wrong_nonce(mut self) -> Result<(), NonceError> {
        self.lane.wrong_nonce(&*self.chain, &mut self.member).await
    }
}

impl<C: Chain> Drop for Reserved<C> {
    fn drop(&mut self) {
        if let Some(member) = self.member.take() {
            self.lane.abandon(member);
        }
    }
}

impl<C: Chain> fmt::Debug for Reserved<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let hash = self.member.as_ref().and_then(Member::hash);
        let mut shown = f.debug_struct("Reserved");
        shown.field("nonce", &self.nonce).field("hash", &hash).finish_non_exhaustive()
    }
}
