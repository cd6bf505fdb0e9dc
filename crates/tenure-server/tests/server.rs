//! The server over real connections, on free ports of loopback.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "server/access.rs"]
mod access;
#[path = "server/description.rs"]
mod description;
#[path = "server/holds.rs"]
mod holds;
#[path = "server/hostile.rs"]
mod hostile;
#[path = "server/instances.rs"]
mod instances;
#[path = "server/look.rs"]
mod look;
#[path = "server/probe.rs"]
mod probe;
#[path = "server/requests.rs"]
mod requests;
#[path = "server/rights.rs"]
mod rights;
#[path = "server/streams.rs"]
mod streams;
