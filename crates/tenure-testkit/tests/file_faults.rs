//! What can go wrong around a file that processes of one machine share, with real processes.
//!
//! Tests carry the number of their scenario. Each has a file of its own.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "file_faults/killed.rs"]
mod killed;
#[path = "file_faults/machine.rs"]
mod machine;
#[path = "file_faults/places.rs"]
mod places;
mod probe_file;
#[path = "file_faults/replaced.rs"]
mod replaced;

/// Not a test: what the others start as a process of its own.
#[test]
fn puppet() {
    if std::env::var_os(probe_file::puppet::SIGN).is_some() {
        probe_file::puppet::play();
    }
}
