//! What the tests of the relay are made of: wallets, clients, relays in this process and beside it.
#![allow(dead_code, reason = "each test uses a part of it")]

pub(crate) mod client;
pub(crate) mod gate;
pub(crate) mod payments;
pub(crate) mod relays;
pub(crate) mod wallet;
