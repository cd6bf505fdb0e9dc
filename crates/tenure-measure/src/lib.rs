//! What `tenure bench` and the benchmarks in `bench/` measure with.
//!
//! - [`clock`]: a clock that all processes of a host share, and CPU time.
//! - [`figures`]: from the moments of acquisitions to percentiles, medians and fairness.
//! - [`process`]: child processes that are told what to do, and say what they saw, line by line.

pub mod clock;
pub mod figures;
pub mod process;
