//! An Ethereum JSON-RPC relay that keeps each sender's transactions in order across instances, and
//! nonces for signers.

#[cfg(feature = "relay")]
pub mod envelope;
#[cfg(feature = "relay")]
pub mod refusal;
#[cfg(feature = "relay")]
pub mod transaction;

pub mod in_flight;
