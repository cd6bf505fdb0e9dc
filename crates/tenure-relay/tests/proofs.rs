//! What the relay promises, shown on a real node, a real Redis and real processes; on a node that
//! misbehaves on command where a real one does not.

use crate::probe;

mod access;
mod failover;
mod flood;
mod handover;
mod hung;
mod killed;
mod kinds;
mod misbehaviour;
mod node_errors;
mod nonces;
mod order;
mod outages;
mod reservations;
mod restart;
mod stop;

/// Not a test: the code of a relay in a separate process.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_process() {
    probe::relays::be_a_relay().await;
}
