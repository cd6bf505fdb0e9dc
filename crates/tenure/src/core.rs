//! Everything that happens to a claim in its own process: sending, waiting, renewing, losing, leaving.

pub(crate) mod acquire;
pub(crate) mod claim_state;
pub(crate) mod claim_table;
pub(crate) mod guard;
pub(crate) mod handle;
pub(crate) mod handover;
pub(crate) mod live_claim;
pub(crate) mod local_line;
pub(crate) mod outage;
pub(crate) mod reach;
pub(crate) mod request_builder;
pub(crate) mod trace_source;
pub(crate) mod watchdog;
