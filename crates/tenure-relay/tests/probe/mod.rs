//! The tools of the relay's tests: wallets, clients, and relays in this process and in others.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod gate;
pub(crate) mod payments;
pub(crate) mod relays;
pub(crate) mod wallet;
