//! `tenure` on the command line.
//!
//! # Layout
//!
//! - `args` parses the command line into an [`Invocation`]: a command with valid arguments
//!   and its settings, or an error.
//! - `failure` is how a command fails: one form for all errors, one table of exit codes. `codes` has the error
//!   codes and topics that `explain` explains.
//! - `settings` applies to every command; `engine` connects to the engine and translates its errors; `output`
//!   formats text and JSON; `logs` writes the log.
//! - `claim` takes a place in line, `detached_claim` reads the claim of another process, `waiting` prints notes
//!   while it waits, `within` refuses a wait that would never end. `names` finds a name of any kind, `facts`
//!   describes it.
//! - `commands` has one file per command; `run` (with `elect` and `once`) and `demo` are larger and have folders.
//!
//! Nothing here uses `println!`, because it panics when the reader of a pipe has gone. Commands write to the
//! writer that they are given, and return its errors.

mod args;
mod claim;
mod codes;
mod commands;
mod demo;
mod detached_claim;
mod engine;
mod facts;
mod failure;
mod logs;
mod names;
mod output;
mod run;
mod settings;
mod signals;
mod system;
mod waiting;
mod within;

use std::io::{self, BufWriter, Write};
use std::process::ExitCode;

use args::{Command, EngineCommand, Invocation, LocalCommand};
use failure::{Exit, OK, Stop};
use output::{Color, Paint};
use settings::Settings;
use tracing_subscriber::filter::LevelFilter;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().collect();
    if let Some(exit) = demo::take_part(&args) {
        return exit;
    }
    let asked = args::parse(args, &|name| std::env::var_os(name));
    let (paint, ended) = match asked {
        Ok(Invocation::Print(text)) => (Paint::for_stderr(Color::Auto), say(&text)),
        Ok(Invocation::Run(settings, command)) => {
            (settings.error_paint(), carry_out(command, &settings))
        }
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
    logs::start(settings, default_level(&command));
    let out = || BufWriter::new(io::stdout().lock());
    match command {
        // It forks, so no thread may have been started, and standard output must not be locked.
        Command::Run(asked) => run::run(&asked, settings),
        Command::Local(here) => finish(&mut out(), |out| do_here(here, settings, out)),
        Command::Engine(asked) => {
            let runtime = engine::runtime()?;
            finish(&mut out(), |out| runtime.block_on(ask(asked, settings, out)))
        }
        #[cfg(feature = "relay")]
        Command::Relay(asked) => {
            let runtime = engine::runtime_on_all_cores()?;
            finish(&mut out(), |out| runtime.block_on(commands::relay::run(*asked, settings, out)))
        }
        #[cfg(feature = "serve")]
        Command::Serve(asked) => {
            let runtime = engine::runtime_on_all_cores()?;
            finish(&mut out(), |out| runtime.block_on(commands::serve::run(*asked, settings, out)))
        }
    }
}

/// The default log level of a command. What the command prints anyway is not logged as well.
fn default_level(command: &Command) -> LevelFilter {
    match command {
        // The proofs lose holds on purpose, and `run` reports in its own words.
        Command::Local(LocalCommand::Demo(_)) | Command::Run(_) => LevelFilter::OFF,
        Command::Engine(
            EngineCommand::Break(_) | EngineCommand::Forget(_) | EngineCommand::Doctor { .. },
        ) => LevelFilter::ERROR,
        // The log would be written over the picture.
        #[cfg(feature = "top")]
        Command::Engine(EngineCommand::Top(_)) => LevelFilter::OFF,
        #[cfg(feature = "relay")]
        Command::Relay(_) => LevelFilter::INFO,
        #[cfg(feature = "serve")]
        Command::Serve(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    }
}

/// A write error must be noticed before success is reported.
fn finish(
    out: &mut dyn Write,
    work: impl FnOnce(&mut dyn Write) -> Result<Exit, Stop>,
) -> Result<Exit, Stop> {
    let exit = work(out);
    let flushed = out.flush();
    let exit = exit?;
    flushed?;
    Ok(exit)
}

fn do_here(here: LocalCommand, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    match here {
        LocalCommand::Demo(demo) => demo::run(&demo, settings, out),
        LocalCommand::Bench(bench) => commands::bench::run(&bench, settings, out),
        LocalCommand::Config => commands::config::run(settings, out),
        LocalCommand::Completions(shell) => commands::completions::run(shell, out),
        LocalCommand::Man(command) => commands::man::run(command.as_deref(), out),
        #[cfg(feature = "serve")]
        LocalCommand::Token(asked) => commands::token::run(&asked, settings, out),
        LocalCommand::Explain(topic) => commands::explain::run(topic.as_deref(), settings, out),
    }
}

async fn ask(asked: EngineCommand, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    match asked {
        EngineCommand::Acquire(asked) => commands::acquire::run(&asked, settings, out).await,
        EngineCommand::Renew(claimed, ttl) => {
            commands::renew::run(&claimed, ttl, settings, out).await
        }
        EngineCommand::Release(claimed) => commands::release::run(&claimed, settings, out).await,
        EngineCommand::Check(claimed) => commands::check::run(&claimed, settings, out).await,
        EngineCommand::Ls(prefix) => commands::ls::run(&prefix, settings, out).await,
        EngineCommand::Show(named) => commands::show::run(&named, settings, out).await,
        EngineCommand::Leader { name, watch } => {
            commands::leader::run(&name, watch, settings, out).await
        }
        EngineCommand::Watch(prefix, interval) => {
            commands::watch::run(&prefix, interval, settings, out).await
        }
        #[cfg(feature = "top")]
        EngineCommand::Top(asked) => commands::top::run(&asked, settings, out).await,
        EngineCommand::Wait(named, wait) => commands::wait::run(&named, wait, settings, out).await,
        EngineCommand::Break(asked) => commands::break_hold::run(&asked, settings, out).await,
        EngineCommand::Forget(asked) => commands::forget::run(&asked, settings, out).await,
        EngineCommand::Doctor { brief } => commands::doctor::run(brief, settings, out).await,
        EngineCommand::Setup { print } => commands::setup::run(print, settings, out).await,
    }
}
