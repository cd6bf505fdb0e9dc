//! What the tests of the relay are made of: wallets, clients, relays in this process and beside it.

pub(crate) mod client;
pub(crate) mod wallet;
