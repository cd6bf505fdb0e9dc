//! What the relay promises, shown on a real node, a real Redis and real processes; on a node that
//! misbehaves on command where a real one does not.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod probe;

#[path = "proofs/access.rs"]
mod access;
#[path = "proofs/failover.rs"]
mod failover;
#[path = "proofs/flood.rs"]
mod flood;
#[path = "proofs/handover.rs"]
mod handover;
#[path = "proofs/hung.rs"]
mod hung;
#[path = "proofs/kinds.rs"]
mod kinds;
#[path = "proofs/misbehaviour.rs"]
mod misbehaviour;
#[path = "proofs/nonces.rs"]
mod nonces;
#[path = "proofs/order.rs"]
mod order;
#[path = "proofs/outages.rs"]
mod outages;
#[path = "proofs/reservations.rs"]
mod reservations;
#[path = "proofs/restart.rs"]
mod restart;
#[path = "proofs/stop.rs"]
mod stop;
#[path = "proofs/verdicts.rs"]
mod verdicts;

/// Not a test of its own: what a relay in a process of its own runs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relay_process() {
    probe::relays::be_a_relay().await;
}
