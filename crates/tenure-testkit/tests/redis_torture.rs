//! Many processes on one Redis, killed, paused and cut off at random, and their history judged.
//!
//! The test starts itself again as workers, which ask for a few names over and over and write down
//! what they see before they act on it. Meanwhile workers are killed and paused, the server is killed,
//! paused and made to forget its scripts, and connections break. Then the faults end, everybody who
//! waits must be served, and the journals are put side by side: no overlap, no fence twice or falling,
//! no write under an old fence by a hold that is still good, and nothing left on the server.
//!
//! `TENURE_ACQUISITIONS` and `TENURE_FAULTS` say how much; `TENURE_SEED` repeats the order of faults and
//! asks, as far as processes can be made to repeat: `TENURE_SEED=42 cargo test -p tenure-testkit --test
//! redis_torture -- --nocapture`. `TENURE_JOURNALS` names a folder that keeps the journals.
#![allow(clippy::print_stdout, reason = "what the run met is worth reading")]

#[path = "redis_torture/journal.rs"]
mod journal;
#[path = "redis_torture/liveness.rs"]
mod liveness;
#[path = "redis_torture/nemesis.rs"]
mod nemesis;
#[path = "redis_torture/play.rs"]
mod play;
#[path = "redis_torture/requests.rs"]
mod requests;
#[path = "redis_torture/resource.rs"]
mod resource;
#[path = "redis_torture/verdict.rs"]
mod verdict;
#[path = "redis_torture/worker.rs"]
mod worker;
#[path = "redis_torture/workers.rs"]
mod workers;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use play::{Memory, Plan};
use tenure::Tenure;

/// What a run without variables must reach.
const ACQUISITIONS: u64 = 10_000;
const FAULTS: u64 = 50;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// One in `part` of what is asked for.
fn plan(memory: Memory, part: u64) -> Plan {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let faults = number("TENURE_FAULTS").unwrap_or(FAULTS).div_ceil(part);
    Plan {
        memory,
        acquisitions: number("TENURE_ACQUISITIONS").unwrap_or(ACQUISITIONS).div_ceil(part),
        faults,
        seed: number("TENURE_SEED").unwrap_or(since.as_micros() as u64),
        // Far more than it takes: a fault comes about twice a second.
        bound: Duration::from_secs(120).max(Duration::from_secs(4) * faults as u32),
    }
}

#[test]
fn nobody_holds_twice_on_a_server_that_keeps_its_memory() {
    play::run(plan(Memory::Kept, 1));
}

#[test]
fn nobody_holds_twice_on_a_server_that_loses_its_memory() {
    play::run(plan(Memory::Lost, 2));
}

/// Not a test: what the others start as a process of its own.
#[test]
fn worker() {
    if let Some(orders) = worker::Orders::from_env() {
        worker::run(orders, |url, _| Box::pin(async move { Tenure::connect(&url).await }));
    }
}
