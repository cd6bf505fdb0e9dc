//! `tenure` on the command line.
//!
//! # Layout
//!
//! - `args` turns the words of the command line into a [`Command`] and its [`Settings`], or says what
//!   is wrong with them.
//! - `failure` is how every command ends that does not succeed: one form, one table of exit codes.
//! - `settings` is what holds for every command; `engine` is the way to the engine and what its
//!   errors mean; `output` is how things are shown; `logs` is what the library says about itself.
//! - `asking` makes a claim of what was asked for, `claimed` is one of another process; `waiting` is
//!   what is said while it waits, `within` refuses a wait that cannot end; `names` finds a name, `facts` is what is known about one; `codes` are
//!   the errors and topics that `explain` explains.
//! - `commands` has one file a command; `run` (with `elect` and `once`) and `demo` have rooms of their
//!   own.
//!
//! Nothing here uses `println!`: it panics when the reader of a pipe has left. Commands write to the
//! writer that they are given, and hand on what becomes of that.

mod args;
mod asking;
mod claimed;
mod codes;
mod commands;
mod demo;
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

use args::{Ask, Asked, Command, Here};
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
    logs::start(settings, default_level(&command));
    let out = || BufWriter::new(io::stdout().lock());
    match command {
        // It forks, so nothing here may have started a thread or have taken standard output.
        Command::Run(asked) => run::run(&asked, settings),
        Command::Here(here) => finish(&mut out(), |out| do_here(here, settings, out)),
        Command::Ask(asked) => {
            let runtime = engine::runtime()?;
            finish(&mut out(), |out| runtime.block_on(ask(asked, settings, out)))
        }
        #[cfg(feature = "relay")]
        Command::Relay(asked) => {
            let runtime = engine::runtime_on_all_cores()?;
            finish(&mut out(), |out| runtime.block_on(commands::relay::run(*asked, settings, out)))
        }
    }
}

/// How much is logged if nobody says: what a command tells anyway is not said twice.
fn default_level(command: &Command) -> LevelFilter {
    match command {
        // The proofs lose holds on purpose, and what `run` has to say it says in its own words.
        Command::Here(Here::Demo(_)) | Command::Run(_) => LevelFilter::OFF,
        Command::Ask(Ask::Break(_) | Ask::Forget(_) | Ask::Doctor { .. }) => LevelFilter::ERROR,
        // It would be written over the picture.
        #[cfg(feature = "top")]
        Command::Ask(Ask::Top(_)) => LevelFilter::OFF,
        #[cfg(feature = "relay")]
        Command::Relay(_) => LevelFilter::INFO,
        _ => LevelFilter::WARN,
    }
}

/// What cannot be written must be noticed before success is reported.
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

fn do_here(here: Here, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    match here {
        Here::Demo(demo) => demo::run(&demo, settings, out),
        Here::Bench(bench) => commands::bench::run(&bench, settings, out),
        Here::Config => commands::config::run(settings, out),
        Here::Completions(shell) => commands::completions::run(shell, out),
        Here::Man(command) => commands::man::run(command.as_deref(), out),
        Here::Explain(topic) => commands::explain::run(topic.as_deref(), settings, out),
    }
}

async fn ask(asked: Ask, settings: &Settings, out: &mut dyn Write) -> Result<Exit, Stop> {
    match asked {
        Ask::Acquire(asked) => commands::acquire::run(&asked, settings, out).await,
        Ask::Renew(claimed, ttl) => commands::renew::run(&claimed, ttl, settings, out).await,
        Ask::Release(claimed) => commands::release::run(&claimed, settings, out).await,
        Ask::Check(claimed) => commands::check::run(&claimed, settings, out).await,
        Ask::Ls(prefix) => commands::ls::run(&prefix, settings, out).await,
        Ask::Show(named) => commands::show::run(&named, settings, out).await,
        Ask::Leader { name, watch } => commands::leader::run(&name, watch, settings, out).await,
        Ask::Watch(prefix, interval) => {
            commands::watch::run(&prefix, interval, settings, out).await
        }
        #[cfg(feature = "top")]
        Ask::Top(asked) => commands::top::run(&asked, settings, out).await,
        Ask::Wait(named, wait) => commands::wait::run(&named, wait, settings, out).await,
        Ask::Break(asked) => commands::break_hold::run(&asked, settings, out).await,
        Ask::Forget(asked) => commands::forget::run(&asked, settings, out).await,
        Ask::Doctor { brief } => commands::doctor::run(brief, settings, out).await,
    }
}
