//! Closes what this process inherited, so that nobody who waits for the command waits for us.

use std::fs::File;

use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};

use crate::system;

/// Standard input and output: the command has them. Whoever reads what it writes, or writes what it
/// reads, sees its end as if we were not there.
pub(super) fn let_go_of_input_and_output() {
    if let Some(nothing) = nothing() {
        let _ = dup2_stdin(&nothing);
        let _ = dup2_stdout(&nothing);
    }
}

/// Everything: for a process that stays when the command has ended and its caller has gone on.
pub(super) fn let_go_of_everything() {
    let_go_of_input_and_output();
    if let Some(nothing) = nothing() {
        let _ = dup2_stderr(&nothing);
    }
    system::close_inherited();
}

/// Where what is written is gone and nothing can be read. Without it, all stays as it is.
fn nothing() -> Option<File> {
    File::options().read(true).write(true).open("/dev/null").ok()
}
