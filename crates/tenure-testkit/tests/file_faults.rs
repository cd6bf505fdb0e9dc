//! What can go wrong around a file that processes of one machine share, with real processes.
//!
//! Tests carry the number of their scenario. Each has a file of its own.
#![allow(clippy::print_stdout, reason = "how fast and how idle it was is worth reading")]
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "file_faults/asking.rs"]
mod asking;
#[path = "file_faults/crowd.rs"]
mod crowd;
#[path = "file_faults/full.rs"]
mod full;
#[path = "file_faults/holding.rs"]
mod holding;
#[path = "file_faults/inherited.rs"]
mod inherited;
#[path = "file_faults/killed.rs"]
mod killed;
#[path = "file_faults/machine.rs"]
mod machine;
#[path = "file_faults/namespaces.rs"]
mod namespaces;
#[path = "file_faults/places.rs"]
mod places;
mod probe_file;
#[path = "file_faults/replaced.rs"]
mod replaced;
#[path = "file_faults/stopped.rs"]
mod stopped;

/// Not a test: what the others start as a process of its own.
#[test]
fn puppet() {
    if std::env::var_os(probe_file::puppet::SIGN).is_some() {
        probe_file::puppet::play();
    }
}
