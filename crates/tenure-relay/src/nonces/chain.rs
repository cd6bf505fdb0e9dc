use std::error::Error;

use alloy_primitives::{Address, B256};

/// What a [`Chain`] failed with: whatever the client that asks the node has.
pub type ChainError = Box<dyn Error + Send + Sync>;

/// What the nonces of an account are counted by: a node, asked with whatever client there is.
///
/// Both questions are asked while others wait for their turn, so bound the time that they may take.
///
/// ```
/// use alloy_primitives::{Address, B256};
/// use tenure_relay::nonces::{Chain, ChainError};
///
/// struct Node;
///
/// impl Chain for Node {
///     async fn count(&self, account: Address) -> Result<u64, ChainError> {
///         // eth_getTransactionCount [account, "pending"]
/// #       let _ = account;
///         Ok(0)
///     }
///
///     async fn knows(&self, hash: B256) -> Result<bool, ChainError> {
///         // eth_getTransactionByHash [hash] is not null
/// #       let _ = hash;
///         Ok(false)
///     }
/// }
/// ```
pub trait Chain: Send + Sync {
    /// How many transactions of the account the node has, those in its pool included:
    /// `eth_getTransactionCount` with `"pending"`.
    fn count(&self, account: Address) -> impl Future<Output = Result<u64, ChainError>> + Send;

    /// Whether the node has this transaction, mined or not: `eth_getTransactionByHash` is not null.
    fn knows(&self, hash: B256) -> impl Future<Output = Result<bool, ChainError>> + Send;
}
