//! [`Nonces`](crate::nonces) for alloy: any provider as the chain, alloy's `NonceManager`, and a `send` that
//! settles each nonce.

use std::collections::HashMap;
use std::fmt;
use std::marker::PhantomData;
use std::sync::{Arc, Mutex, PoisonError};

use alloy_consensus::transaction::TxHashRef;
use alloy_network::{Ethereum, Network, NetworkTransactionBuilder, TransactionBuilder};
use alloy_primitives::{Address, B256};
use alloy_provider::fillers::{FillProvider, NonceManager, TxFiller};
use alloy_provider::{PendingTransactionBuilder, Provider, RootProvider, SendableTx};
use alloy_transport::{RpcError, TransportError, TransportErrorKind, TransportResult};
use async_trait::async_trait;
use tenure::Tenure;

use crate::node_error::NodeError;
use crate::nonces::{Chain, ChainError, Lane, NonceError, Nonces, Reserved, Terms};

/// A provider as the [`Chain`] of [`Nonces`].
pub struct Node<P, N = Ethereum> {
    provider: P,
    network: PhantomData<fn() -> N>,
}

impl<P, N> Node<P, N> {
    /// The chain that this provider talks to.
    pub fn new(provider: P) -> Node<P, N> {
        Node { provider, network: PhantomData }
    }

    /// The provider.
    pub fn provider(&self) -> &P {
        &self.provider
    }
}

impl<P, N> fmt::Debug for Node<P, N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Node")
    }
}

impl<P: Provider<N>, N: Network> Chain for Node<P, N> {
    async fn count(&self, account: Address) -> Result<u64, ChainError> {
        Ok(self.provider.get_transaction_count(account).pending().await?)
    }

    async fn knows(&self, hash: B256) -> Result<bool, ChainError> {
        Ok(self.provider.get_transaction_by_hash(hash).await?.is_some())
    }
}

/// The nonces of all accounts that providers of one chain send from, shared by all processes on one engine.
///
/// As alloy's `NonceManager` it gives out each nonce once, across processes, for
/// `ProviderBuilder::new().filler(NonceFiller::new(nonces))`. That interface asks for nonces and never reports how
/// they were used, so each is kept until the chain has counted it, or until
/// [`unknown_for`](Terms::unknown_for) is over: a transaction that fails before it is sent leaves a gap
/// for that long, and one whose process is killed for [`ttl`](Terms::ttl). It also cannot record hashes, so a
/// transaction that waits in the node behind a gap for longer than that loses its nonce to another.
///
/// [`send`](SharedNonces::send) has none of these limits.
#[derive(Clone)]
pub struct SharedNonces {
    tenure: Tenure,
    chain_id: u64,
    terms: Terms,
    lanes: Arc<Mutex<HashMap<Address, Arc<Lane>>>>,
}

impl SharedNonces {
    /// The nonces of all accounts of this chain.
    pub fn new(tenure: &Tenure, chain_id: u64) -> SharedNonces {
        SharedNonces::with_terms(tenure, chain_id, Terms::default())
    }

    /// The same, with other times.
    pub fn with_terms(tenure: &Tenure, chain_id: u64, terms: Terms) -> SharedNonces {
        SharedNonces { tenure: tenure.clone(), chain_id, terms, lanes: Arc::default() }
    }

    fn lane(&self, account: Address) -> Arc<Lane> {
        let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
        let lane = || Arc::new(Lane::new(&self.tenure, self.chain_id, account, self.terms));
        lanes.entry(account).or_insert_with(lane).clone()
    }

    /// The nonces of one account, with all of their methods.
    pub fn of<P, N>(&self, account: Address, provider: &P) -> Nonces<Node<RootProvider<N>, N>>
    where
        P: Provider<N>,
        N: Network,
    {
        let node = Node::new(provider.root().clone());
        Nonces::of_lane(self.lane(account), node, self.terms)
    }

    /// Reserves a nonce for the transaction's sender and [sends](send) it.
    ///
    /// The transaction needs a sender (`from`); if it has a nonce, that is used and nothing is reserved.
    ///
    /// # Errors
    /// As [`send`]; `LocalUsageError` with a [`NonceError`] if no nonce could be reserved.
    ///
    /// # Cancel safety
    /// As [`send`].
    pub async fn send<F, P, N>(
        &self,
        provider: &FillProvider<F, P, N>,
        transaction: N::TransactionRequest,
    ) -> TransportResult<PendingTransactionBuilder<N>>
    where
        F: TxFiller<N>,
        P: Provider<N>,
        N: Network<TxEnvelope: TxHashRef>,
    {
        if transaction.nonce().is_some() {
            return provider.send_transaction(transaction).await;
        }
        let Some(from) = transaction.from() else {
            return Err(TransportError::local_usage_str(
                "the transaction has no sender; set `from`",
            ));
        };
        let reserved = self.of(from, provider).reserve().await;
        let reserved = reserved.map_err(TransportError::local_usage)?;
        send(provider, reserved, transaction).await
    }
}

/// Fills in the transaction with the reserved nonce, signs it with the provider's wallet, sends it, and settles
/// the nonce: if it was not sent, or the node refused it, the nonce is the next to be given out; if it may have
/// been sent, it is kept until that is known.
///
/// The provider needs fillers for gas and the chain id, and a wallet; its nonce filler, if it has one, is not
/// used.
///
/// # Errors
/// Those of the provider; `LocalUsageError` if it did not sign, and with a [`NonceError`] if the reservation had
/// ended before anything was sent. If the engine could not be told how the nonce was used, that is logged, and
/// the nonce is kept.
///
/// # Cancel safety
/// If the future is dropped, the transaction may have been sent, and its nonce is kept until that is known.
pub async fn send<F, P, N, C>(
    provider: &FillProvider<F, P, N>,
    reserved: Reserved<C>,
    mut transaction: N::TransactionRequest,
) -> TransportResult<PendingTransactionBuilder<N>>
where
    F: TxFiller<N>,
    P: Provider<N>,
    N: Network<TxEnvelope: TxHashRef>,
    C: Chain,
{
    transaction.set_nonce(reserved.nonce());
    match signed(provider, transaction).await {
        Ok(envelope) => submit(provider, reserved, envelope).await,
        Err(error) => {
            let released = reserved.release().await;
            released.unwrap_or_else(|unsaid| not_heard(B256::ZERO, &unsaid));
            Err(error)
        }
    }
}

async fn signed<F, P, N>(
    provider: &FillProvider<F, P, N>,
    transaction: N::TransactionRequest,
) -> TransportResult<N::TxEnvelope>
where
    F: TxFiller<N>,
    P: Provider<N>,
    N: Network,
{
    match provider.fill(transaction).await? {
        SendableTx::Envelope(envelope) => Ok(envelope),
        SendableTx::Builder(builder) => {
            let missing = builder.complete_preferred().err();
            let missing = missing.map(|missing| format!(": {missing:?} is missing"));
            let missing = missing.unwrap_or_default();
            let error = format!("the provider did not sign{missing}; give it a wallet and fillers");
            Err(TransportError::local_usage_str(&error))
        }
    }
}

async fn submit<P, N, C>(
    provider: &P,
    mut reserved: Reserved<C>,
    envelope: N::TxEnvelope,
) -> TransportResult<PendingTransactionBuilder<N>>
where
    P: Provider<N>,
    N: Network<TxEnvelope: TxHashRef>,
    C: Chain,
{
    let hash = *envelope.tx_hash();
    reserved.sending(hash).await.map_err(TransportError::local_usage)?;
    let sent = provider.send_tx_envelope(envelope).await;
    let outcome = match &sent {
        Ok(_) => Outcome::Accepted,
        Err(error) => outcome(error),
    };
    let pending = || PendingTransactionBuilder::new(provider.root().clone(), hash);
    // A node also answers "used" for a transaction that it already has, if it came twice; some answer "known" for
    // one that they have just refused.
    let outcome = match outcome {
        Outcome::Known | Outcome::Used => match reserved.chain().knows(hash).await {
            Ok(true) => Outcome::Accepted,
            Ok(false) if outcome == Outcome::Used => Outcome::Used,
            Ok(false) | Err(_) => Outcome::Unknown,
        },
        other => other,
    };
    let (said, answer) = match outcome {
        Outcome::Accepted => (reserved.commit(hash).await, sent.or_else(|_| Ok(pending()))),
        Outcome::Used => (reserved.wrong_nonce().await, sent),
        Outcome::Refused => (reserved.release().await, sent),
        Outcome::Known | Outcome::Unknown => (reserved.unknown(hash).await, sent),
    };
    said.unwrap_or_else(|unsaid| not_heard(hash, &unsaid));
    answer
}

/// The engine could not be told how a nonce was used; the caller only needs to know about the transaction.
fn not_heard(hash: B256, error: &NonceError) {
    tracing::warn!(target: "tenure", event = "nonce.not_heard", %hash, reason = %error);
}

/// The outcome of a transaction.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    Accepted,
    /// The node says that it has it.
    Known,
    /// Another transaction has its nonce.
    Used,
    Refused,
    Unknown,
}

/// What an error of the submission means for the nonce.
fn outcome(error: &TransportError) -> Outcome {
    match error {
        RpcError::ErrorResp(said) => {
            let data = said.try_data_as::<String>().and_then(Result::ok);
            match NodeError::of(said.code, &said.message, data.as_deref()) {
                NodeError::AlreadyKnown => Outcome::Known,
                NodeError::NonceUsed => Outcome::Used,
                NodeError::Unavailable | NodeError::Unlisted => Outcome::Unknown,
                NodeError::Rejected => Outcome::Refused,
            }
        }
        RpcError::UnsupportedFeature(_) | RpcError::LocalUsageError(_) | RpcError::SerError(_) => {
            Outcome::Refused
        }
        _ => Outcome::Unknown,
    }
}

#[async_trait]
impl NonceManager for SharedNonces {
    async fn get_next_nonce<P, N>(&self, provider: &P, address: Address) -> TransportResult<u64>
    where
        P: Provider<N>,
        N: Network,
    {
        let lane = self.lane(address);
        let reserved = lane.reserve(&Node::<_, N>::new(provider.root().clone())).await;
        let slot = reserved.map_err(TransportErrorKind::custom)?;
        let nonce = slot.nonce();
        // Nobody will report how it is used.
        lane.keep(slot);
        Ok(nonce)
    }
}

impl fmt::Debug for SharedNonces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedNonces").field("chain_id", &self.chain_id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_says_decides_what_becomes_of_the_nonce() {
        for (code, message, expected) in [
            (-32000, "already known", Outcome::Known),
            (-32003, "transaction already imported", Outcome::Known),
            (-32003, "nonce too low", Outcome::Used),
            (-32000, "Nonce too low: next nonce 7, tx nonce 6", Outcome::Used),
            (-32003, "replacement transaction underpriced", Outcome::Used),
            (-32003, "insufficient funds for gas * price + value", Outcome::Refused),
            (-32000, "max fee per gas less than block base fee", Outcome::Refused),
            (-32000, "words that nobody has listed", Outcome::Unknown),
            (-32603, "Internal error", Outcome::Unknown),
            (-32000, "upstream request timed out", Outcome::Unknown),
        ] {
            let said = format!(r#"{{"code":{code},"message":"{message}"}}"#);
            let error = RpcError::ErrorResp(serde_json::from_str(&said).unwrap());
            assert_eq!(outcome(&error), expected, "{message}");
        }
        assert_eq!(outcome(&TransportError::local_usage_str("no wallet")), Outcome::Refused);
        assert_eq!(outcome(&TransportErrorKind::backend_gone()), Outcome::Unknown);
        assert_eq!(outcome(&RpcError::NullResp), Outcome::Unknown);
    }
}
