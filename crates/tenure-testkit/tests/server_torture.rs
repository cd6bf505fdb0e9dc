//! Many processes on one Redis or Postgres, killed, paused and cut off at random, and their history checked.
//!
//! The test starts itself again as workers, which claim a few names over and over and record what they see before
//! they act on it. Meanwhile workers are killed and paused, the server is killed, paused and disturbed, and
//! connections break. Then the faults end, all waiting claims must be served, and the journals are compared: no
//! overlap, no fence repeated or falling, no write under an old fence by a hold that is still good, and nothing left
//! on the server.
//!
//! `TENURE_ACQUISITIONS` and `TENURE_FAULTS` set the size; `TENURE_SEED` repeats the order of faults and requests, as
//! far as processes can be made to repeat: `TENURE_SEED=42 cargo test -p tenure-testkit --test server_torture --
//! --nocapture`. `TENURE_JOURNALS` names a folder that keeps the journals.
#![allow(clippy::print_stdout, reason = "what the run met is worth reading")]

#[path = "torture/journal.rs"]
mod journal;
#[path = "torture/liveness.rs"]
mod liveness;
#[path = "server_torture/nemesis.rs"]
mod nemesis;
#[path = "server_torture/play.rs"]
mod play;
#[path = "torture/queued.rs"]
mod queued;
#[path = "torture/requests.rs"]
mod requests;
#[path = "torture/resource.rs"]
mod resource;
#[path = "server_torture/target.rs"]
mod target;
#[path = "torture/verdict.rs"]
mod verdict;
#[path = "torture/worker.rs"]
mod worker;
#[path = "torture/workers.rs"]
mod workers;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use play::Plan;
use target::{Memory, OnPostgres, OnRedis};
use tenure::Tenure;
use tenure_testkit::servers::PostgresVersion;

/// What a run without variables must reach.
const ACQUISITIONS: u64 = 10_000;
const FAULTS: u64 = 50;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// One in `part` of the requested size.
fn plan(part: u64) -> Plan {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let faults = number("TENURE_FAULTS").unwrap_or(FAULTS).div_ceil(part);
    Plan {
        acquisitions: number("TENURE_ACQUISITIONS").unwrap_or(ACQUISITIONS).div_ceil(part),
        faults,
        seed: number("TENURE_SEED").unwrap_or(since.as_micros() as u64),
        // Far more than needed: about two faults come in a second.
        bound: Duration::from_secs(120).max(Duration::from_secs(4) * faults as u32),
    }
}

#[test]
fn nobody_holds_twice_on_a_redis_that_keeps_its_memory() {
    play::run(&OnRedis::start(Memory::Kept), plan(1));
}

#[test]
fn nobody_holds_twice_on_a_redis_that_loses_its_memory() {
    play::run(&OnRedis::start(Memory::Lost), plan(2));
}

#[test]
fn nobody_is_passed_over_on_redis_while_nothing_fails() {
    play::run(&OnRedis::start(Memory::Kept), Plan { faults: 0, ..plan(1) });
}

#[test]
fn nobody_holds_twice_on_postgres() {
    play::run(&OnPostgres::start(PostgresVersion::Debian), plan(2));
}

/// The newest version available.
#[test]
fn nobody_holds_twice_on_postgres_18() {
    play::run(&OnPostgres::start(PostgresVersion::Postgres18), plan(4));
}

/// Not a test: the process that the other tests start.
#[test]
fn worker() {
    if let Some(orders) = worker::Orders::from_env() {
        worker::run(orders, |url, _| Box::pin(async move { Tenure::connect(&url).await }));
    }
}
