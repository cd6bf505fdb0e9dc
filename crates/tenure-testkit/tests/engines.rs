//! The engines and the primitives under faults, in one program, because one links faster than twenty.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(
    clippy::duplicate_mod,
    reason = "two engines play the same scripts, each in its own environment"
)]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod examples;
mod failovers;
mod fences;
mod file_faults;
mod file_site;
mod fixtures;
mod http_client;
mod idempotency;
mod leaders;
mod node;
mod onces;
mod postgres_examine;
mod postgres_faults;
mod postgres_ledger;
mod postgres_site;
mod redis_examine;
mod redis_faults;
mod redis_ledger;
mod redis_site;
mod redis_topologies;
mod runtimes;
mod scenarios;
mod servers;
mod worker;
#[path = "../../tenure/tests/working/mod.rs"]
mod working;

/// Not a test: the process that other tests start.
#[test]
fn child_process() {
    let has = |sign| std::env::var_os(sign).is_some();
    if has(fences::paused::SIGN) {
        fences::paused::play();
    } else if has(fences::stopping::SIGN) {
        fences::stopping::play();
    } else if has(fixtures::child_main::SIGN) {
        fixtures::child_main::run();
    }
}
