//! Every task of CI, by name.
//!
//! `main` turns arguments into a [`Command`] and runs it; each command has its own file. A command never prints
//! its own failure: it returns a [`Failure`] that says what failed and what to do next.

#![allow(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "this is a command line: what it prints is its result"
)]

mod api;
mod args;
mod chart;
mod failure;
mod mutants;
mod setup;
mod syntax;
mod test;
mod tidy;
mod torture;
mod workspace;

use std::process::ExitCode;

use args::Command;
use failure::Failure;

/// The exit status for invalid arguments, from `sysexits.h`.
const USAGE: u8 = 64;

fn main() -> ExitCode {
    let command = match args::parse(std::env::args().skip(1)) {
        Ok(command) => command,
        Err(problem) => {
            eprintln!("{problem}\n\n{}", args::HELP);
            return ExitCode::from(USAGE);
        }
    };
    match run(command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("\n{failure}");
            ExitCode::FAILURE
        }
    }
}

fn run(command: Command) -> Result<(), Failure> {
    match command {
        Command::Help => println!("{}", args::HELP),
        Command::SetUp => setup::run()?,
        Command::Test { all, only } => test::run(all, &only)?,
        Command::Tidy => tidy::run()?,
        Command::Api { write } => api::run(write)?,
        Command::Chart { write } => chart::run(write)?,
        Command::Mutants(which) => mutants::run(&which)?,
        Command::Torture(torture) => torture::run(torture)?,
    }
    Ok(())
}
