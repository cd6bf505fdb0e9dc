//! Nonces for signers: one account, any number of processes, each nonce given once.
//!
//! The truth is the chain's pending count and the units that the engine keeps; nothing else is stored anywhere,
//! so there is nothing to repair after a kill. `docs/nonces.md` shows how to use it, and
//! `docs/decisions/0012-nonces-live-in-the-line.md` why no nonce is given out twice.

mod chain;
mod error;
mod lane;
mod meters;
mod own;
#[cfg(feature = "relay")]
mod remote;
mod reserved;
mod standing;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use alloy_primitives::Address;
use tenure::Tenure;

pub use self::chain::{Chain, ChainError};
pub use self::error::NonceError;
pub use self::meters::describe;
pub use self::reserved::Reserved;
pub use self::standing::Standing;

pub(crate) use self::lane::Lane;
use self::own::Slot;
#[cfg(feature = "relay")]
pub(crate) use self::remote::{Ask, Given};

/// Time limits. Everyone who reserves nonces of an account should use the same.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Terms {
    /// How long a nonce stays reserved after its process was killed, if its hash was not
    /// [recorded](Reserved::sending) before. Default: 10 s.
    pub ttl: Duration,
    /// How long a reservation lasts at most, and how long the record of a transaction lasts if nobody looks.
    /// Default: 5 min.
    pub reserved_for: Duration,
    /// How long a transaction that no node knows keeps its nonce. Default: 1 min.
    pub unknown_for: Duration,
    /// How much later a node may count than another one; zero for a single node. Default: 5 s.
    pub late: Duration,
}

impl Default for Terms {
    fn default() -> Terms {
        Terms {
            ttl: Duration::from_secs(10),
            reserved_for: Duration::from_secs(300),
            unknown_for: Duration::from_secs(60),
            late: Duration::from_secs(5),
        }
    }
}

/// The nonces of one account on one chain, for any number of processes.
///
/// After [reserving](Nonces::reserve) a nonce, report how it was used: it was sent
/// ([`commit`](Reserved::commit)), certainly not sent ([`release`](Reserved::release)), or that is not known
/// ([`unknown`](Reserved::unknown)). Lower nonces are given out before higher ones, so the next caller fills a
/// gap.
///
/// ```
/// # use alloy_primitives::{Address, B256};
/// # use tenure_relay::nonces::{Chain, ChainError, Nonces};
/// # struct Node;
/// # impl Chain for Node {
/// #     async fn count(&self, _: Address) -> Result<u64, ChainError> { Ok(7) }
/// #     async fn knows(&self, _: B256) -> Result<bool, ChainError> { Ok(true) }
/// # }
/// # async fn example() -> Result<(), Box<dyn std::error::Error>> {
/// # let (tenure, node) = (tenure::Tenure::connect("memory:").await?, Node);
/// # let (wallet, hash) = (Address::ZERO, B256::ZERO);
/// # let send = async |_nonce: u64| -> Result<(), bool> { Ok(()) };
/// let nonces = Nonces::new(&tenure, 1, wallet, node);
///
/// let mut reserved = nonces.reserve().await?;
/// // … sign a transaction with reserved.nonce(), then, before it is sent:
/// reserved.sending(hash).await?;
/// match send(reserved.nonce()).await {
///     Ok(()) => reserved.commit(hash).await?,
///     Err(node_said_no) if node_said_no => reserved.release().await?,
///     Err(_) => reserved.unknown(hash).await?,
/// }
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
pub struct Nonces<C> {
    lane: Arc<Lane>,
    chain: Arc<C>,
    terms: Terms,
}

impl<C: Chain> Nonces<C> {
    /// The nonces of `account`, as `chain` counts them.
    pub fn new(tenure: &Tenure, chain_id: u64, account: Address, chain: C) -> Nonces<C> {
        Nonces::with_terms(tenure, chain_id, account, chain, Terms::default())
    }

    /// The same, with other times.
    pub fn with_terms(
        tenure: &Tenure,
        chain_id: u64,
        account: Address,
        chain: C,
        terms: Terms,
    ) -> Nonces<C> {
        Nonces::of_lane(Arc::new(Lane::new(tenure, chain_id, account, terms)), chain, terms)
    }

    pub(crate) fn of_lane(lane: Arc<Lane>, chain: C, terms: Terms) -> Nonces<C> {
        Nonces { lane, chain: Arc::new(chain), terms }
    }

    /// The time limits.
    pub fn terms(&self) -> Terms {
        self.terms
    }

    /// The chain that is asked.
    pub fn chain(&self) -> &C {
        &self.chain
    }

    /// Takes the lowest nonce that is neither used nor taken: a gap first, if there is one.
    ///
    /// # Errors
    /// [`NonceError::Engine`] and [`NonceError::Chain`]; nothing is reserved then.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine nothing is reserved.
    pub async fn reserve(&self) -> Result<Reserved<C>, NonceError> {
        Ok(self.hand_out(self.lane.reserve(&*self.chain).await?))
    }

    /// Takes this nonce, to fill a gap; `None` if it is used or taken.
    ///
    /// # Errors
    /// As [`reserve`](Nonces::reserve).
    ///
    /// # Cancel safety
    /// As [`reserve`](Nonces::reserve).
    pub async fn fill(&self, nonce: u64) -> Result<Option<Reserved<C>>, NonceError> {
        let taken = self.lane.fill(&*self.chain, nonce).await?;
        Ok(taken.map(|slot| self.hand_out(slot)))
    }

    fn hand_out(&self, slot: Slot) -> Reserved<C> {
        Reserved::new(self.lane.clone(), self.chain.clone(), slot)
    }

    /// The free nonces below one that is taken. Each is also logged and counted, once; the next
    /// [`reserve`](Nonces::reserve) takes the lowest.
    ///
    /// # Errors
    /// As [`reserve`](Nonces::reserve).
    ///
    /// # Cancel safety
    /// Safe: it only reads, and leaves units that are no longer needed.
    pub async fn gaps(&self) -> Result<Vec<u64>, NonceError> {
        Ok(self.lane.look(&*self.chain).await?.gaps())
    }

    /// Asks the chain and the engine for the current state, and leaves units of nonces that the chain has
    /// counted.
    ///
    /// [`reserve`](Nonces::reserve) does the same. Call it before the last process that sends exits, or after
    /// something other than these nonces has sent from the account.
    ///
    /// # Errors
    /// As [`reserve`](Nonces::reserve).
    ///
    /// # Cancel safety
    /// Safe: it only reads, and leaves units that are no longer needed.
    pub async fn resync(&self) -> Result<Standing, NonceError> {
        let standing = self.lane.look(&*self.chain).await?;
        self.lane.resynced();
        Ok(standing)
    }
}

impl<C> Clone for Nonces<C> {
    fn clone(&self) -> Nonces<C> {
        Nonces { lane: self.lane.clone(), chain: self.chain.clone(), terms: self.terms }
    }
}

impl<C> fmt::Debug for Nonces<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Nonces").field("lane", &self.lane).finish_non_exhaustive()
    }
}
