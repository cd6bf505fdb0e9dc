//! The tests of the relay and of nonces, in one program: one is linked faster than nine.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod allocators;
mod alloy;
mod envelope;
mod libraries;
mod mutations;
mod nonces;
mod probe;
mod proofs;
mod refusal;
mod signers;
mod transaction;
mod vectors;
