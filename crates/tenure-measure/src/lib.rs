//! Measuring tools that `tenure bench` and the benchmarks in `bench/` share.
//!
//! - [`clock`]: a clock that all processes of a host share, and CPU time.
//! - [`figures`]: computes percentiles, medians and fairness from the moments of acquisitions.
//! - [`process`]: child processes that get orders and report, line by line.

pub mod clock;
pub mod figures;
pub mod process;
