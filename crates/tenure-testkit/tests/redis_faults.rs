//! What can go wrong between a client and one Redis, on real servers behind a real, bad network.
//!
//! Tests carry the number of their scenario. Each has a server of its own.
#![allow(clippy::print_stdout, reason = "how long it took is worth reading")]
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "redis_faults/amnesia.rs"]
mod amnesia;
#[path = "redis_faults/asking.rs"]
mod asking;
#[path = "redis_faults/clocks.rs"]
mod clocks;
#[path = "redis_faults/dropping.rs"]
mod dropping;
#[path = "redis_faults/holding.rs"]
mod holding;
#[path = "redis_faults/losing.rs"]
mod losing;
#[path = "redis_faults/outages.rs"]
mod outages;
#[path = "redis_faults/passing.rs"]
mod passing;
mod probe_redis;
#[path = "redis_faults/processes.rs"]
mod processes;
#[path = "redis_faults/rights.rs"]
mod rights;
#[path = "redis_faults/states.rs"]
mod states;
#[path = "redis_faults/waiting.rs"]
mod waiting;
