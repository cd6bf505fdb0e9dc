//! Closes what this process inherited, so that nobody who waits for the command waits for us.

use std::fs::File;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::system;

/// Closes standard input and output, which the command has. Its readers and writers see the end as if we did not
/// exist.
pub(super) fn let_go_of_input_and_output() {
    if let Some(nothing) = nothing() {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
    }
}

/// Closes everything: for a process that stays after the command has exited and its caller has gone on.
pub(super) fn let_go_of_everything() {
    let_go_of_input_and_output();
    if let Some(nothing) = nothing() {
        let _ = dup2_stderr(&nothing);
    }
    system::close_inherited();
}

/// `/dev/null`. If it cannot be opened, nothing is closed.
fn nothing() -> Option<File> {
    File::options().read(true).write(true).open("/dev/null").ok()
}
