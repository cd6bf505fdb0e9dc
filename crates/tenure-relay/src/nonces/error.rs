use std::fmt;

use super::ChainError;

/// Why a nonce was not given out, or the report about one not stored.
#[derive(Debug)]
#[non_exhaustive]
pub enum NonceError {
    /// The engine could not do it.
    Engine(tenure::Error),
    /// The node could not be asked.
    Chain(ChainError),
    /// This process was not running for longer than its reservation lasts, or the reservation is older than
    /// `reserved_for`: someone else may have the nonce.
    Lost(u64),
}

impl NonceError {
    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_retryable(&self) -> bool {
        match self {
            NonceError::Engine(error) => error.is_retryable(),
            NonceError::Chain(_) => true,
            NonceError::Lost(_) => false,
        }
    }
}

impl fmt::Display for NonceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NonceError::Engine(error) => error.fmt(f),
            NonceError::Chain(error) => {
                write!(f, "cannot ask the chain: {error}; look at the node, then ask again")
            }
            NonceError::Lost(nonce) => write!(
                f,
                "the reservation of nonce {nonce} has ended, and someone else may have it; do not \
                 send, and reserve anew"
            ),
        }
    }
}

impl std::error::Error for NonceError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            NonceError::Engine(error) => Some(error),
            NonceError::Chain(error) => Some(&**error),
            NonceError::Lost(_) => None,
        }
    }
}

impl From<tenure::Error> for NonceError {
    fn from(error: tenure::Error) -> NonceError {
        NonceError::Engine(error)
    }
}
