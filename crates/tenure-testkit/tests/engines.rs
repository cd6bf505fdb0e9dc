//! The engines and the primitives under faults, in one program: one is linked faster than twenty.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod examples;
mod failovers;
mod fences;
mod file_faults;
mod idempotency;
mod leaders;
mod node;
mod onces;
mod probe;
mod probe_file;
mod probe_http;
mod probe_redis;
mod redis_examine;
mod redis_faults;
mod redis_ledger;
mod redis_topologies;
mod runtimes;
mod scenarios;
mod servers;
mod worker;
#[path = "../../tenure/tests/working/mod.rs"]
mod working;

/// Not a test: what others start as a process of its own.
#[test]
fn puppet() {
    let has = |sign| std::env::var_os(sign).is_some();
    if has(fences::paused::SIGN) {
        fences::paused::play();
    } else if has(probe::puppet::SIGN) {
        probe::puppet::play();
    }
}
