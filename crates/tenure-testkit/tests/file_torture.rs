//! Many processes on one file, killed, stopped and locked out at random, and their history checked.
//!
//! The same run as `server_torture`, whose modules it shares, with the faults that there are without a server and a
//! network. Because all processes share a clock, waiting claims must be served in order, unless a fault explains that
//! they were not.
//!
//! `TENURE_ACQUISITIONS` and `TENURE_FAULTS` set the size; `TENURE_SEED` repeats the order of faults and requests, as
//! far as processes can be made to repeat: `TENURE_SEED=42 cargo test -p tenure-testkit --test file_torture --
//! --nocapture`. `TENURE_JOURNALS` names a folder that keeps the journals.
#![allow(clippy::print_stdout, reason = "what the run met is worth reading")]

#[path = "torture/journal.rs"]
mod journal;
#[path = "torture/liveness.rs"]
mod liveness;
#[path = "file_torture/nemesis.rs"]
mod nemesis;
#[path = "file_torture/play.rs"]
mod play;
#[path = "torture/queued.rs"]
mod queued;
#[path = "file_torture/recording.rs"]
mod recording;
#[path = "torture/requests.rs"]
mod requests;
#[path = "torture/resource.rs"]
mod resource;
#[path = "torture/verdict.rs"]
mod verdict;
#[path = "torture/worker.rs"]
mod worker;
#[path = "torture/workers.rs"]
mod workers;

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use play::Plan;
use tenure::Tenure;

/// The goals of a run without variables.
const ACQUISITIONS: u64 = 6_000;
const FAULTS: u64 = 36;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

#[test]
fn nobody_holds_twice_and_nobody_is_passed_over() {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let faults = number("TENURE_FAULTS").unwrap_or(FAULTS);
    play::run(Plan {
        acquisitions: number("TENURE_ACQUISITIONS").unwrap_or(ACQUISITIONS),
        faults,
        seed: number("TENURE_SEED").unwrap_or(since.as_micros() as u64),
        // Far more than needed: about two faults come in a second.
        bound: Duration::from_secs(180).max(Duration::from_secs(6) * faults as u32),
    });
}

/// Not a test: the process that the other test starts.
#[test]
fn worker() {
    if let Some(orders) = worker::Orders::from_env() {
        worker::run(orders, |url, journal| {
            Box::pin(async move {
                let engine = recording::Recording::open(&url, journal)?;
                Ok(Tenure::with_engine(Arc::new(engine)))
            })
        });
    }
}
