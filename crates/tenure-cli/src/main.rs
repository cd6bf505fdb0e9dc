//! `tenure` on the command line.
//!
//! # Layout
//!
//! - `args` turns the words of the command line into a [`Command`], or says what is wrong with them.
//! - `failure` is how every command ends that does not succeed: one form, one table of exit codes.
//! - `demo` plays proofs of what tenure does, within this process.
//!
//! Nothing here uses `println!`: it panics when the reader of a pipe has left. Commands write to the
//! writer that they are given, and hand on what becomes of that.

mod args;
mod demo;
mod failure;

use std::io::{self, Write};
use std::process::ExitCode;

use args::Command;
use failure::Stop;

fn main() -> ExitCode {
    match run(&mut io::stdout().lock()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(stop) => stop.report(),
    }
}

fn run(out: &mut dyn Write) -> Result<(), Stop> {
    match args::parse(std::env::args_os())? {
        Command::Say(text) => write!(out, "{text}")?,
        Command::Demo(demo) => demo::run(&demo, out)?,
    }
    // What cannot be written must be noticed before success is reported.
    out.flush()?;
    Ok(())
}
