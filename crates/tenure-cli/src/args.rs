//! Parses the command line into a [`Command`] and its [`Settings`], in one step.
//!
//! The result is valid: commands check nothing again. An error becomes a [`Failure`], in the one form that all
//! errors have, so clap's own texts and exit codes never reach the user.
//! `define` makes flags, `given` reads their values, and `refusal` replaces clap's errors. Commands that belong
//! together share a file.

mod bench;
pub(crate) mod claim;
mod define;
mod demo;
mod elect;
mod given;
#[cfg(any(feature = "relay", feature = "serve"))]
mod listening;
mod look;
mod once;
mod refusal;
#[cfg(feature = "relay")]
mod relay;
pub(crate) mod run;
mod script;
#[cfg(feature = "serve")]
mod serve;
#[cfg(feature = "top")]
mod top;

use std::ffi::OsString;
use std::time::Duration;

use clap::{Arg, ArgAction, Command as Words};
use clap_complete::Shell;
use tenure::engine::Space;

pub(crate) use bench::{Bench, Part, WORKER};
pub(crate) use define::variable_of;
pub(crate) use demo::{Demo, Proof, name_of, proof_named};
pub(crate) use given::{Found, Given, Source, Variables, is_bare, no_unit};
#[cfg(any(feature = "relay", feature = "serve"))]
pub(crate) use listening::Listening;
#[cfg(feature = "relay")]
pub(crate) use relay::{Relay, TOKEN_LINES};
pub(crate) use run::Run;
#[cfg(feature = "serve")]
pub(crate) use serve::{NewToken, SERVE_TOKEN_LINES, Serve, TokenAction};
#[cfg(feature = "top")]
pub(crate) use top::Top;

use crate::commands::break_hold::Break;
use crate::commands::forget::Forget;
use crate::detached_claim::DetachedClaim;
use crate::failure::{CONFIGURATION, Failure, INTERNAL, USAGE};
use crate::output::quoted;
use crate::settings::Settings;
use claim::{ClaimArgs, Wait};
use define::{flag, option, word};

/// What the user asked for.
#[derive(Debug)]
pub(crate) enum Invocation {
    /// Print this text: the help or the version.
    Print(String),
    /// Run this command.
    Run(Box<Settings>, Command),
}

/// The command, by what it needs.
#[derive(Debug)]
pub(crate) enum Command {
    /// Run a command while holding a lock, while leading, or once. Needs a process without threads.
    Run(Box<Run>),
    /// A command that needs no engine, or connects to it itself.
    Local(LocalCommand),
    /// A command that uses the engine.
    Engine(EngineCommand),
    /// Run the relay. Needs all cores.
    #[cfg(feature = "relay")]
    Relay(Box<Relay>),
    /// Serve the locks over HTTP. Needs all cores.
    #[cfg(feature = "serve")]
    Serve(Box<Serve>),
}

/// Commands that need no engine.
#[derive(Debug)]
pub(crate) enum LocalCommand {
    /// Play the proofs.
    Demo(Demo),
    /// Measure the engine.
    Bench(Bench),
    /// Explain a code or a topic, or list them all.
    Explain(Option<String>),
    /// Show the settings.
    Config,
    /// Print the completions for a shell.
    Completions(Shell),
    /// Print the manual of one command, or of all.
    Man(Option<String>),
    /// Make, list or revoke tokens of clients of `serve`.
    #[cfg(feature = "serve")]
    Token(TokenAction),
}

/// A name, and its space.
#[derive(Debug)]
pub(crate) struct Named {
    /// The name as the user typed it.
    pub(crate) name: String,
    /// Its space, if the user said so.
    pub(crate) space: Option<Space>,
}

/// Commands that use the engine. Names are as the user typed them.
#[derive(Debug)]
pub(crate) enum EngineCommand {
    /// Acquire for a script.
    Acquire(Box<ClaimArgs>),
    /// Extend a lock that a script acquired, to this time from now or to its ttl.
    Renew(DetachedClaim, Option<Duration>),
    /// Release a lock that a script acquired.
    Release(DetachedClaim),
    /// Check whether a lock that a script acquired is still held.
    Check(DetachedClaim),
    /// Show the names with this prefix.
    Ls(String),
    /// Show everything about a name.
    Show(Named),
    /// Show who leads, or watch every change.
    Leader { name: String, watch: bool },
    /// Print what happens to the names with this prefix, checked at this interval.
    Watch(String, Duration),
    /// Show it live.
    #[cfg(feature = "top")]
    Top(Top),
    /// Wait until a name is free.
    Wait(Named, Wait),
    /// End a hold by force, or show what that would do.
    Break(Break),
    /// Forget the record of a once, or show what that would do.
    Forget(Forget),
    /// Check whether the engine is fit for locks; `brief` prints one line.
    Doctor { brief: bool },
    /// Make what the engine needs; `print` only prints it.
    Setup { print: bool },
}

const MORE: &str = "\
To get started, run `tenure run hello -- sleep 60` in two terminals: no server and no configuration needed.
To lock across machines, set TENURE_URL to a server, such as redis://host:6379. `tenure demo` shows what locks
prevent.

Exit codes: `tenure help exit-codes`. What a lock cannot do: `tenure explain fencing`.";

/// The complete definition of the command line.
pub(crate) fn define() -> Words {
    Words::new("tenure")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Locks, leader election and run-once jobs across tasks, processes and machines.")
        .after_help(MORE)
        .subcommand_required(true)
        .disable_help_subcommand(true)
        .args(define_settings())
        .subcommand(run::define())
        .subcommands(elect::define())
        .subcommand(once::define())
        .subcommands(script::define_commands())
        .subcommands(look::define_commands())
        .subcommands(define_live())
        .subcommands(define_serve())
        .subcommand(define_relay())
        .subcommand(demo::define())
        .subcommand(bench::define())
        .subcommands(define_local())
}

/// The live view, if it was built in.
fn define_live() -> Vec<Words> {
    vec![
        #[cfg(feature = "top")]
        top::define(),
    ]
}

/// The server, if it was built in.
fn define_serve() -> Vec<Words> {
    #[cfg(feature = "serve")]
    return serve::define_commands().into();
    #[cfg(not(feature = "serve"))]
    Vec::new()
}

/// The relay.
#[cfg(feature = "relay")]
fn define_relay() -> Words {
    relay::define()
}

/// A build without the relay has the command as well: it says how to get the relay.
#[cfg(not(feature = "relay"))]
fn define_relay() -> Words {
    let rest = Arg::new("rest").num_args(..).trailing_var_arg(true).allow_hyphen_values(true);
    Words::new("relay")
        .about("Keep each Ethereum sender's transactions in order (not in this build)")
        .arg(rest.value_parser(define::as_is()).hide(true))
}

#[cfg(not(feature = "relay"))]
fn no_relay() -> Failure {
    Failure::new(
        USAGE,
        "this tenure was built without the relay",
        "the relay is an optional feature, because a build with it takes half as long again",
        "`cargo install --path crates/tenure-cli --features relay`",
    )
}

/// The flags that every command takes.
fn define_settings() -> Vec<Arg> {
    let all = [
        option(
            "url",
            Some('u'),
            "URL",
            "URL of the engine. Other users can see a password in it in the process list; use the \
             variable instead [default: a file on this host]",
        ),
        option("ns", None, "WORD", "Namespace of all names"),
        flag("json", None, "Print data as JSON, one object per line"),
        flag(
            "quiet",
            Some('q'),
            "Do not print notes, such as who holds the lock that you wait for",
        ),
        flag("verbose", Some('v'), "Log more; may be repeated").action(ArgAction::Count),
        option("color", None, "WHEN", "When to use color: auto, always or never [default: auto]"),
        option(
            "log-level",
            None,
            "LEVEL",
            "Log level: off, error, warn, info, debug or trace [default: warn]",
        ),
        option("log-format", None, "FORM", "Log format: text or json [default: text]"),
    ];
    all.into_iter().map(|arg| arg.global(true).help_heading("Global options")).collect()
}

fn define_local() -> [Words; 5] {
    [
        Words::new("explain")
            .about("Explain an error code such as T010, or a topic such as fencing")
            .arg(word("topic", "CODE", "Code or topic; all of them are listed if omitted")),
        Words::new("config").about("Show every setting, its value and where the value comes from"),
        Words::new("completions")
            .about("Print shell completions")
            .arg(word("shell", "SHELL", "bash, elvish, fish, powershell or zsh").required(true)),
        Words::new("man").about("Print the manual page, for `man -l -`").arg(word(
            "topic",
            "COMMAND",
            "Command to document; the whole program if omitted",
        )),
        Words::new("help")
            .about("Show help for a command, or explain a topic such as exit-codes")
            .arg(word("topic", "COMMAND", "Command or topic")),
    ]
}

/// Parses the arguments, of which the first is the name of the program.
pub(crate) fn parse(args: Vec<OsString>, variables: &Variables) -> Result<Invocation, Failure> {
    let mut words = define();
    let matches = match words.try_get_matches_from_mut(&args) {
        Ok(matches) => matches,
        Err(error) => return refusal::explain(&error, &words, &args),
    };
    let Some((name, matches)) = matches.subcommand() else {
        return Err(refusal::no_command(&words));
    };
    let command = words.find_subcommand(name).unwrap_or(&words).clone();
    let given = Given::new(&command, matches, variables);
    if name == "help"
        && let Some(help) = help(given.word("topic")?, &mut words)
    {
        return Ok(Invocation::Print(help));
    }
    let settings = Settings::read(&given, variables)?;
    Ok(Invocation::Run(Box::new(settings), read(name, &given, &args)?))
}

/// Reads all variables as the commands that take them would. Returns the first error.
pub(crate) fn check(variables: &Variables) -> Result<(), Failure> {
    for command in define().get_subcommands() {
        let mut line = vec!["tenure", command.get_name()];
        if command.get_name() == "relay" && variables(&variable_of("upstream")).is_none() {
            line.extend(["--upstream", "http://127.0.0.1:8545"]);
        }
        line.extend(command.get_positionals().filter(|word| word.is_required_set()).map(|_| "x"));
        if command.get_arguments().any(|arg| arg.get_id() == "command") {
            line.extend(["--", "x"]);
        }
        match parse(line.into_iter().map(OsString::from).collect(), variables) {
            Err(failure) if failure.exit == CONFIGURATION => return Err(failure),
            _ => {}
        }
    }
    Ok(())
}

fn read(name: &str, given: &Given<'_>, args: &[OsString]) -> Result<Command, Failure> {
    let prefix = || given.word("prefix").map(Option::unwrap_or_default);
    let ask = match name {
        "run" => return Ok(Command::Run(Box::new(Run::read(given, args)?))),
        "elect" => return Ok(Command::Run(Box::new(elect::read(given, args)?))),
        "once" => return Ok(Command::Run(Box::new(once::read(given, args)?))),
        #[cfg(feature = "relay")]
        "relay" => return Ok(Command::Relay(Box::new(Relay::read(given)?))),
        #[cfg(not(feature = "relay"))]
        "relay" => return Err(no_relay()),
        #[cfg(feature = "serve")]
        "serve" => return Ok(Command::Serve(Box::new(Serve::read(given)?))),
        "leader" => {
            EngineCommand::Leader { name: given.name()?, watch: given.flag("watch")?.value }
        }
        "acquire" => EngineCommand::Acquire(Box::new(ClaimArgs::read(given)?)),
        "renew" => EngineCommand::Renew(script::read_claim(given)?, given.some_time("ttl")?),
        "release" => EngineCommand::Release(script::read_claim(given)?),
        "check" => EngineCommand::Check(script::read_claim(given)?),
        "ls" => EngineCommand::Ls(prefix()?),
        "show" => EngineCommand::Show(look::read_named(given)?),
        "watch" => {
            let interval = given.some_time("interval")?;
            EngineCommand::Watch(prefix()?, interval.unwrap_or(Duration::from_millis(250)))
        }
        #[cfg(feature = "top")]
        "top" => EngineCommand::Top(Top::read(given)?),
        "wait" => EngineCommand::Wait(look::read_named(given)?, Wait::read(given)?),
        "break" => EngineCommand::Break(look::read_break(given)?),
        "forget" => EngineCommand::Forget(look::read_forget(given)?),
        "doctor" => EngineCommand::Doctor { brief: given.flag("brief")?.value },
        "setup" => EngineCommand::Setup { print: given.flag("print")?.value },
        _ => return read_local(name, given).map(Command::Local),
    };
    Ok(Command::Engine(ask))
}

fn read_local(name: &str, given: &Given<'_>) -> Result<LocalCommand, Failure> {
    Ok(match name {
        "demo" => LocalCommand::Demo(Demo::read(given)?),
        "bench" => LocalCommand::Bench(Bench::read(given)?),
        "explain" | "help" => LocalCommand::Explain(given.word("topic")?),
        "config" => LocalCommand::Config,
        "completions" => LocalCommand::Completions(read_shell(given)?),
        "man" => LocalCommand::Man(given.word("topic")?),
        #[cfg(feature = "serve")]
        "token" => LocalCommand::Token(TokenAction::read(given)?),
        other => {
            // Clap only accepts known commands, so this one is defined but not read.
            let what = format!("the command {} is defined but not handled", quoted(other));
            return Err(Failure::new(
                INTERNAL,
                what,
                "this is a bug in tenure",
                "please report it",
            ));
        }
    })
}

fn read_shell(given: &Given<'_>) -> Result<Shell, Failure> {
    let name = given.word("shell")?.unwrap_or_default();
    name.parse().map_err(|_| {
        Failure::new(
            USAGE,
            format!("no completions for {}", quoted(&name)),
            "available: bash, elvish, fish, powershell, zsh",
            "for example, `tenure completions bash`",
        )
    })
}

/// The help, of all or of one command; `None` if there is no such command, but maybe a topic.
fn help(topic: Option<String>, words: &mut Words) -> Option<String> {
    let Some(topic) = topic else { return Some(words.render_help().to_string()) };
    words.build();
    words.find_subcommand_mut(&topic).map(|words| words.render_help().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(not(feature = "relay"))]
    #[test]
    fn a_build_without_the_relay_says_how_to_get_it() {
        let words = ["tenure", "relay", "--upstream", "http://127.0.0.1:8545", "-t", "5s"];
        let refused = parse(words.map(OsString::from).into(), &|_| None).unwrap_err();
        assert_eq!((refused.exit, &*refused.what), (64, "this tenure was built without the relay"));
        assert!(refused.help.contains("--features relay"), "{refused}");
        assert!(define().render_help().to_string().contains("(not in this build)"));
    }

    #[cfg(feature = "relay")]
    #[test]
    fn a_build_with_the_relay_reads_its_arguments() {
        let words = ["tenure", "relay", "--upstream", "http://127.0.0.1:8545", "-t", "5s"];
        let asked = parse(words.map(OsString::from).into(), &|_| None);
        assert!(matches!(asked, Ok(Invocation::Run(_, Command::Relay(_)))), "{asked:?}");
    }
}
