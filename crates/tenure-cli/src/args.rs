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
use std::time::Duration;

use clap::{Arg, ArgAction, Command as Words};

pub(crate) use define::variable_of;
use define::{flag, option, spoken, word};
pub(crate) use demo::{Demo, Proof, name_of};
pub(crate) use given::{Found, Given, Source, Variables};
pub(crate) use run::Run;

use claim::{Asking, Wait};
use clap_complete::Shell;
use tenure::Fence;

use crate::claimed::Claimed;
use crate::commands::break_hold::Break;
use crate::failure::{Failure, INTERNAL, USAGE};
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
    /// Acquire for a script.
    Acquire(Box<Asking>),
    /// Make what a script acquired last longer.
    Renew {
        /// Which hold.
        claimed: Claimed,
        /// How long it is to last from now, if longer than its ttl.
        ttl: Option<Duration>,
    },
    /// Release what a script acquired.
    Release(Claimed),
    /// Ask whether what a script acquired is still held.
    Check(Claimed),
    /// Show who holds what.
    Ls {
        /// What the names begin with.
        prefix: String,
    },
    /// Show everything about a name.
    Show {
        /// Which, as it was typed.
        name: String,
    },
    /// Tell what happens.
    Watch {
        /// What the names begin with.
        prefix: String,
        /// How long between two looks.
        interval: Duration,
    },
    /// Wait until a name is free.
    Wait {
        /// Which, as it was typed.
        name: String,
        /// How long.
        wait: Wait,
    },
    /// End a hold by force, or say what that would mean.
    Break(Break),
    /// Show the settings.
    Config,
    /// Print what a shell needs to complete.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Print the manual.
    Man {
        /// Of one command, or of everything.
        command: Option<String>,
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

const WATCH: &str = "\
Events: held and waiting at the first look, then granted, released (by whoever held it, by the end of its
ttl, or broken), queued and left. Renewals are none. It looks again and again, so what begins and ends
between two looks is not seen.";

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
            Words::new("show")
                .about("Show who holds a name and who waits for it; exit code 1 if nobody does")
                .arg(word("name", "NAME", "Which name").required(true)),
        )
        .subcommand(
            Words::new("watch")
                .about("Show what happens, as it happens")
                .after_help(WATCH)
                .arg(word("prefix", "PREFIX", "Only names that begin with this"))
                .arg(option("interval", None, "D", "How long between two looks [default: 250ms]")),
        )
        .subcommand(
            Words::new("wait")
                .about("Wait until a name is free; take nothing")
                .arg(word("name", "NAME", "Which name").required(true))
                .arg(
                    flag("no-wait", Some('n'), "Only look: exit code 75 if it is not free")
                        .conflicts_with("wait"),
                )
                .arg(option(
                    "wait",
                    Some('w'),
                    "D",
                    "Wait at most so long, then end with exit code 75",
                )),
        )
        .subcommand(
            Words::new("break")
                .about("End a hold by force; without --fence, say first what that would mean")
                .after_help("Neither is taken from a variable: a break must be meant.")
                .arg(word("name", "NAME", "Which name").required(true))
                .arg(spoken(
                    "fence",
                    "N",
                    "The fence of the hold to break, as `tenure show` has it",
                ))
                .arg(spoken("reason", "TEXT", "Why, for the holder and for the log")),
        )
        .subcommand(
            Words::new("explain")
                .about("Explain an error code such as T010, or a topic such as fencing")
                .arg(word("topic", "CODE", "The code or the topic; without one, all are listed")),
        )
        .subcommand(demo::define())
        .subcommand(
            Words::new("config").about("Show each setting, its value and where that comes from"),
        )
        .subcommand(
            Words::new("completions")
                .about("Print what a shell needs to complete what is typed")
                .arg(
                    word("shell", "SHELL", "bash, elvish, fish, powershell or zsh").required(true),
                ),
        )
        .subcommand(Words::new("man").about("Print the manual, for `man -l -`").arg(word(
            "topic",
            "COMMAND",
            "The command that it is about; all if none is named",
        )))
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
        "acquire" => Command::Acquire(Box::new(Asking::read(given)?)),
        "renew" => {
            let (claimed, ttl) = (claim::read_claimed(given)?, given.some_time("ttl")?);
            Command::Renew { claimed, ttl }
        }
        "release" => Command::Release(claim::read_claimed(given)?),
        "check" => Command::Check(claim::read_claimed(given)?),
        "ls" => Command::Ls { prefix: given.word("prefix")?.unwrap_or_default() },
        "show" => Command::Show { name: given.name()? },
        "watch" => Command::Watch {
            prefix: given.word("prefix")?.unwrap_or_default(),
            interval: given.some_time("interval")?.unwrap_or(Duration::from_millis(250)),
        },
        "wait" => Command::Wait { name: given.name()?, wait: Wait::read(given)? },
        "break" => Command::Break(read_break(given)?),
        "config" => Command::Config,
        "completions" => Command::Completions { shell: read_shell(given)? },
        "man" => Command::Man { command: given.word("topic")? },
        "explain" | "help" => Command::Explain { topic: given.word("topic")? },
        "demo" => Command::Demo(Demo::read(given)?),
        other => {
            // Clap knows the commands, so this is a definition without a reading.
            let what = format!("{} is defined and cannot be read", quoted(other));
            return Err(Failure::new(INTERNAL, what, "a fault in tenure", "report it"));
        }
    })
}

fn read_break(given: &Given<'_>) -> Result<Break, Failure> {
    let given = given.spoken_only();
    let name = given.name()?;
    let reason = given.text("reason")?.map(|found| found.value);
    let reason = reason.filter(|reason| !reason.trim().is_empty());
    let meant = match (given.number("fence", 1..=(1 << 53))?, reason) {
        (Some(fence), Some(reason)) => Some((Fence::new(fence), reason)),
        (Some(_), None) => {
            return Err(Failure::new(
                USAGE,
                "a break needs a reason",
                "the holder and the log are told why",
                "add `--reason \"…\"`",
            ));
        }
        (None, _) => None,
    };
    Ok(Break { name, meant })
}

fn read_shell(given: &Given<'_>) -> Result<Shell, Failure> {
    let name = given.word("shell")?.unwrap_or_default();
    name.parse().map_err(|_| {
        Failure::new(
            USAGE,
            format!("there are no completions for {}", quoted(&name)),
            "known: bash, elvish, fish, powershell, zsh",
            "such as `tenure completions bash`",
        )
    })
}

/// The help of everything or of one command; `None` if it is no command but perhaps a topic.
fn help(topic: Option<String>, words: &mut Words) -> Result<Option<String>, Failure> {
    let Some(topic) = topic else { return Ok(Some(words.render_long_help().to_string())) };
    words.build();
    Ok(words.find_subcommand_mut(&topic).map(|words| words.render_long_help().to_string()))
}
