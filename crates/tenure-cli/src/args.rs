//! From the words of the command line to a [`Command`] and its [`Settings`], in one step.
//!
//! What comes out is valid: commands check nothing again. What is wrong comes out as a [`Failure`] in
//! the one form that all errors have, so clap's own texts and exit codes never reach the user.
//! `define` says how flags are made, `given` how their values are read; a command with many flags has
//! a file of its own.

pub(crate) mod claim;
mod define;
pub(crate) mod demo;
mod given;
mod refusal;
pub(crate) mod run;

use std::ffi::OsString;

use clap::{Arg, ArgAction, Command as Words};

use define::{flag, option, word};
pub(crate) use demo::{Demo, Proof, name_of};
pub(crate) use given::{Found, Given, Source, Variables};
pub(crate) use run::Run;

use crate::failure::{Failure, INTERNAL};
use crate::output::quoted;
use crate::settings::Settings;

/// What was asked of this process.
#[derive(Debug)]
pub(crate) enum Asked {
    /// Show this text: the help or the version.
    Say(String),
    /// Carry this out.
    Do(Box<Settings>, Command),
}

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a command while holding a name.
    Run(Box<Run>),
    /// Show who holds what.
    Ls {
        /// What the names begin with.
        prefix: String,
    },
    /// Explain a code or a topic; without one, list them.
    Explain {
        /// Which.
        topic: Option<String>,
    },
    /// Play proofs.
    Demo(Demo),
}

const MORE: &str = "\
Begin with `tenure run hello -- sleep 60` in two terminals: no server, no configuration. For several
machines set TENURE_URL, such as redis://host:6379. `tenure demo` shows what a lock changes.

Exit codes: `tenure help exit-codes`. What a lock cannot do: `tenure explain fencing`.";

/// The whole definition of the command line.
pub(crate) fn define() -> Words {
    Words::new("tenure")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Locks, semaphores and read-write locks across tasks, processes and machines.")
        .after_help(MORE)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .args(define_settings())
        .subcommand(run::define())
        .subcommand(Words::new("ls").about("Show who holds what, and who waits").arg(word(
            "prefix",
            "PREFIX",
            "Only names that begin with this",
        )))
        .subcommand(
            Words::new("explain")
                .about("Explain an error code such as T010, or a topic such as fencing")
                .arg(word("topic", "CODE", "The code or the topic; without one, all are listed")),
        )
        .subcommand(demo::define())
        .subcommand(
            Words::new("help")
                .about("Show the help of a command, or explain a topic such as exit-codes")
                .arg(word("topic", "COMMAND", "The command or the topic")),
        )
}

/// What every command takes.
fn define_settings() -> Vec<Arg> {
    let all = [
        option(
            "url",
            Some('u'),
            "URL",
            "Where the engine is. A password in it can be seen by others in the list of \
             processes: then set the variable instead [default: a file of this host]",
        ),
        option("ns", None, "WORD", "The namespace that all names are within"),
        flag("json", None, "Print data as JSON, one object a line"),
        flag("quiet", Some('q'), "Leave out remarks, such as who is waited for"),
        flag("verbose", Some('v'), "Log more; twice or three times for still more")
            .action(ArgAction::Count),
        option("color", None, "WHEN", "auto, always or never [default: auto]"),
        option(
            "log-level",
            None,
            "LEVEL",
            "off, error, warn, info, debug or trace [default: warn]",
        ),
        option("log-format", None, "FORM", "text or json [default: text]"),
    ];
    all.into_iter().map(|arg| arg.global(true).help_heading("Options of every command")).collect()
}

/// Reads the arguments, the first of which is the program's own name.
pub(crate) fn parse(args: Vec<OsString>, variables: &Variables) -> Result<Asked, Failure> {
    let mut words = define();
    let matches = match words.try_get_matches_from_mut(&args) {
        Ok(matches) => matches,
        Err(error) => return refusal::explain(&error, &words),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Err(refusal::no_command(&words));
    };
    let given = Given::new(matches, variables);
    if name == "help"
        && let Some(help) = help(given.word("topic")?, &mut words)?
    {
        return Ok(Asked::Say(help));
    }
    let settings = Settings::read(&given, variables)?;
    Ok(Asked::Do(Box::new(settings), read(name, &given, &args)?))
}

fn read(name: &str, given: &Given<'_>, args: &[OsString]) -> Result<Command, Failure> {
    Ok(match name {
        "run" => Command::Run(Box::new(Run::read(given, args)?)),
        "ls" => Command::Ls { prefix: given.word("prefix")?.unwrap_or_default() },
        "explain" | "help" => Command::Explain { topic: given.word("topic")? },
        "demo" => Command::Demo(Demo::read(given)?),
        other => {
            // Clap knows the commands, so this is a definition without a reading.
            let what = format!("{} is defined and cannot be read", quoted(other));
            return Err(Failure::new(INTERNAL, what, "a fault in tenure", "report it"));
        }
    })
}

/// The help of everything or of one command; `None` if it is no command but perhaps a topic.
fn help(topic: Option<String>, words: &mut Words) -> Result<Option<String>, Failure> {
    let Some(topic) = topic else { return Ok(Some(words.render_long_help().to_string())) };
    words.build();
    Ok(words.find_subcommand_mut(&topic).map(|words| words.render_long_help().to_string()))
}
