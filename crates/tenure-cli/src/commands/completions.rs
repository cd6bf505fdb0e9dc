//! `tenure completions`: the completions for a shell.

use std::io::Write;

use clap_complete::Shell;

use crate::args;
use crate::failure::{Exit, OK, Stop};

/// Prints the script for a shell.
pub(crate) fn run(shell: Shell, out: &mut dyn Write) -> Result<Exit, Stop> {
    // The generators panic if they cannot write, so they write to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut args::define(), "tenure", &mut script);
    out.write_all(&script)?;
    Ok(OK)
}
