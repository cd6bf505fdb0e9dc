use std::error::Error;

use alloy_primitives::{Address, B256};

/// The error of a [`Chain`]: that of the client which talks to the node.
pub type ChainError = Box<dyn Error + Send + Sync>;

/// The chain that counts the nonces of an account: a node, through any client.
///
/// Both methods are called while others wait for their turn, so limit the time that they may take.
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
    /// How many transactions of the account the node has, including those in its pool: `eth_getTransactionCount`
    /// with `"pending"`.
    fn count(&self, account: Address) -> impl Future<Output = Result<u64, ChainError>> + Send;

    /// Whether the node has this transaction, mined or not: `eth_getTransactionByHash` is not null.
    fn knows(&self, hash: B256) -> impl Future<Output = Result<bool, ChainError>> + Send;
}
