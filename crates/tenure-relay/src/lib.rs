//! An Ethereum JSON-RPC relay that keeps each sender's transactions in order across instances, and
//! nonces for signers.

pub mod in_flight;
pub mod nonces;
