//! Failures around a file that processes of one machine share, with real processes.
//!
//! Tests carry the number of their scenario. Each has a file of its own.

mod asking;
mod crowd;
mod full;
mod holding;
mod inherited;
mod killed;
mod machine;
mod namespaces;
mod places;
mod replaced;
mod stopped;
