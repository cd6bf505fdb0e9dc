//! The tests that notice a mutant, as arguments of `cargo test --workspace`.

/// The simulation notices most things.
pub(super) const SIMULATION: &[&str] = &["--test", "simulation"];
/// The conformance suite notices violations of the contract of a single call.
pub(super) const CONFORMANCE: &[&str] =
    &["--test", "conformance", "memory::memory_conforms_on_virtual_time"];
/// For changes between two steps.
pub(super) const RACES: &[&str] = &["--test", "api", "races::"];
/// For one claim as its own process sees it.
pub(super) const CLAIM_STATES: &[&str] = &["--lib", "claim_state::"];
/// For logs, spans and metrics.
pub(super) const LISTENERS: &[&str] = &["--test", "listeners", "a_listener_that_blocks"];
/// For the times at which the watchdog looks.
pub(super) const TIMERS: &[&str] = &["--lib", "claim_table::"];
/// For the pushes of a Redis, without a server.
pub(super) const PUSHES: &[&str] = &["--lib", "redis::turns::"];
/// For several runtimes that share a connection.
pub(super) const RUNTIMES: &[&str] = &["--test", "engines", "runtimes::"];
/// For outages, on virtual time.
pub(super) const OUTAGES: &[&str] = &["--test", "outage", "seeds"];
/// For this process's own line.
pub(super) const OWN_LINE: &[&str] =
    &["--test", "api", "--", "does_not_involve_the_engine", "nobody_takes_passes_on"];

/// The scripts against the ledger, step by step, on a real server.
pub(super) const SCRIPTS: &[&str] =
    &["--test", "engines", "redis_ledger::every_script_behaves_like_the_ledger"];

/// The functions of Postgres against the ledger, step by step, on a real server.
pub(super) const FUNCTIONS: &[&str] =
    &["--test", "engines", "postgres_ledger::every_script_behaves_like_the_ledger"];

/// Exact fencing, on a real server.
pub(super) const GUARDS: &[&str] = &["--test", "engines", "postgres_faults::fencing::"];

/// The rule, step by step.
pub(super) const RULE: &[&str] = &["--test", "api", "ledger_scripts::"];

/// Steps that travel in groups, on a real server.
pub(super) const GROUPS: &[&str] = &["--test", "engines", "redis_faults::groups::"];
