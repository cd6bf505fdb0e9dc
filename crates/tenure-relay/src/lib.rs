//! An Ethereum JSON-RPC relay that keeps each sender's transactions in order across instances, and
//! nonces for signers.

#[cfg(feature = "relay")]
mod access;
#[cfg(feature = "relay")]
mod active;
#[cfg(feature = "alloy")]
pub mod alloy;
#[cfg(feature = "relay")]
mod config;
#[cfg(feature = "relay")]
pub mod envelope;
pub mod in_flight;
#[cfg(feature = "relay")]
mod lane;
#[cfg(feature = "relay")]
pub mod meters;
#[cfg(feature = "relay")]
mod node;
#[cfg(any(feature = "relay", feature = "alloy"))]
mod node_error;
pub mod nonces;
#[cfg(feature = "relay")]
mod processing;
#[cfg(feature = "relay")]
mod queue;
#[cfg(feature = "relay")]
pub mod refusal;
#[cfg(feature = "relay")]
mod relay;
#[cfg(feature = "relay")]
mod repeat;
#[cfg(feature = "relay")]
mod server;
#[cfg(feature = "relay")]
mod signers;
#[cfg(feature = "relay")]
mod submission;
#[cfg(feature = "relay")]
pub mod transaction;
#[cfg(feature = "relay")]
mod upstream;

#[cfg(feature = "relay")]
pub use self::{
    access::Access,
    config::{Config, Gap, Repeats},
    relay::Relay,
    server::{Credentials, Server, Tls},
    upstream::{Address, chain_id},
};

/// The examples of the guide run as tests.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/nonces.md")]
struct Guide;
