//! The tests of the public API in one program, because one links faster than twenty.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod blocking;
mod cancellation;
mod closing;
mod detach;
mod explorer;
mod fixtures;
mod holding;
mod ledger_explorer;
mod ledger_scripts;
mod lifecycle;
mod operating;
mod outage;
mod races;
mod sharing;
mod waiting;
mod worker;
mod working;
