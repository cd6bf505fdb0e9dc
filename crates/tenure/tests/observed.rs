//! What the library reports. A program of its own, because its subscriber and its recorder hear everything that
//! happens in their process.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]
#![allow(clippy::print_stdout, reason = "figures are for whoever runs it")]

mod advice;
#[cfg(feature = "metrics")]
mod documented;
mod fixtures;
mod incident;
mod logs;
#[cfg(feature = "metrics")]
#[path = "fixtures/metrics_recorder.rs"]
mod meters;
#[cfg(feature = "metrics")]
mod metrics;
mod options;
mod spans;
