//! `tenure` on the command line.
//!
//! # Layout
//!
//! - `args` turns the words of the command line into a [`Command`] and its [`Settings`], or says what
//!   is wrong with them.
//! - `failure` is how every command ends that does not succeed: one form, one table of exit codes.
//! - `settings` is what holds for every command; `engine` is the way to the engine and what its
//!   errors mean; `output` is how things are shown; `logs` is what the library says about itself.
//! - `commands` has one file a command; `run` and `demo` have rooms of their own.
//!
//! Nothing here uses `println!`: it panics when the reader of a pipe has left. Commands write to the
//! writer that they are given, and hand on what becomes of that.

mod args;
mod commands;
mod demo;
mod engine;
mod failure;
mod logs;
mod output;
mod run;
mod settings;
mod system;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use args::{Asked, Command};
use failure::{Exit, OK, Stop};
use output::{Color, Paint};
use settings::Settings;

fn main() -> ExitCode {
    let asked = args::parse(std::env::args_os().collect(), &|name| std::env::var_os(name));
    let (paint, ended) = match asked {
        Ok(Asked::Say(text)) => (Paint::for_stderr(Color::Auto), say(&text)),
        Ok(Asked::Do(settings, command)) => (settings.error_paint(), carry_out(command, &settings)),
        Err(failure) => (Paint::for_stderr(Color::Auto), Err(failure.into())),
    };
    match ended {
        Ok(exit) => exit.into(),
        Err(stop) => stop.report(paint),
    }
}

fn say(text: &str) -> Result<Exit, Stop> {
    let mut out = io::stdout().lock();
    out.write_all(text.as_bytes())?;
    out.flush()?;
    Ok(OK)
}

fn carry_out(command: Command, settings: &Settings) -> Result<Exit, Stop> {
    logs::start(settings);
    // It forks, so it comes before anything that could start a thread or lock standard output.
    if let Command::Run(asked) = command {
        return run::run(&asked, settings);
    }
    let out = &mut BufWriter::new(io::stdout().lock());
    let exit = match command {
        Command::Run(_) => unreachable!("it has been run"),
        Command::Demo(demo) => demo::run(&demo, out).map(|()| OK),
        Command::Explain { topic } => commands::explain::run(topic.as_deref(), out),
        Command::Ls { prefix } => {
            engine::runtime()?.block_on(commands::ls::run(&prefix, settings, out))
        }
    }?;
    // What cannot be written must be noticed before success is reported.
    out.flush()?;
    Ok(exit)
}
