//! From the words of the command line to a [`Command`], in one step.
//!
//! What comes out is valid: commands check nothing again. What is wrong comes out as a [`Failure`] in
//! the one form that all errors have, so clap's own texts and exit codes never reach the user.

use std::ffi::OsString;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Parser, Subcommand, ValueEnum, value_parser};

use crate::failure::{Failure, USAGE};

/// What to do.
#[derive(Debug)]
pub(crate) enum Command {
    /// Show this text: the help or the version.
    Say(String),
    /// Play proofs.
    Demo(Demo),
}

/// Which proofs to play, and how.
#[derive(Debug)]
pub(crate) struct Demo {
    /// The proofs, in order.
    pub(crate) proofs: Vec<Proof>,
    /// How often each worker of the race takes a number.
    pub(crate) count: u32,
}

/// The proofs that there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Proof {
    /// Two workers count in one file; none of their updates is lost
    Race,
    /// Ten stand in line and are served first come, first served
    Order,
    /// Twenty want in, and five are inside at once
    Slots,
    /// A holder that comes back too late can do no harm
    Late,
    /// How soon the next in line has what was let go
    Handover,
}

/// How often each worker of the race takes a number unless told otherwise.
const COUNT: u32 = 200;
/// The most that the race counts to: some minutes of work.
const MOST: u32 = 1_000_000;

const MORE: &str = "\
Begin with `tenure demo`: it needs no server and takes a few seconds.

Exit codes: 0 it worked; 1 a proof failed; 64 the arguments make no sense; 70 a fault in tenure or in
the machine under it; 74 the output cannot be written.";

/// Locks, semaphores and read-write locks across tasks, processes and machines.
#[derive(Parser)]
#[command(name = "tenure", version, after_help = MORE)]
struct Words {
    #[command(subcommand)]
    command: Named,
}

#[derive(Subcommand)]
enum Named {
    /// Show what a lock changes: proofs, played in this process, without a server
    Demo {
        /// The one proof to play; all of them if none is named
        #[arg(value_name = "NAME")]
        proof: Option<Proof>,
        /// How often each of the two workers of `race` takes a number [default: 200]
        #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(1..=i64::from(MOST)))]
        count: Option<u32>,
    },
}

/// Reads the arguments, the first of which is the program's own name.
pub(crate) fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Command, Failure> {
    let words = match Words::try_parse_from(args) {
        Ok(words) => words,
        Err(error) => return explain(&error),
    };
    match words.command {
        Named::Demo { proof: Some(proof), count: Some(_) } if proof != Proof::Race => Err(usage(
            format!("{:?} does not count", name_of(proof)),
            "--count says how often the workers of `race` take a number",
            "leave --count out, or play `tenure demo race`",
        )),
        Named::Demo { proof, count } => {
            let proofs = proof.map_or(Proof::value_variants().to_vec(), |proof| vec![proof]);
            Ok(Command::Demo(Demo { proofs, count: count.unwrap_or(COUNT) }))
        }
    }
}

/// The name of a proof, as it is written on the command line.
pub(crate) fn name_of(proof: Proof) -> String {
    proof.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
}

/// Says in our own words what clap found; the help and the version are no errors.
fn explain(error: &clap::Error) -> Result<Command, Failure> {
    let said = |kind| error.get(kind).map(text_of).unwrap_or_default();
    let (argument, value) = (said(ContextKind::InvalidArg), said(ContextKind::InvalidValue));
    // Clap says `--count <N>`; next to the value that was given, the name alone is clearer.
    let argument = argument.split(" <").next().unwrap_or_default();
    let help = "see `tenure --help`";
    Err(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return Ok(Command::Say(error.render().to_string()));
        }
        ErrorKind::InvalidSubcommand => {
            let command = said(ContextKind::InvalidSubcommand);
            usage(format!("there is no command {command:?}"), "known: demo", help)
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let begin = "begin with `tenure demo`; `tenure --help` has the rest";
            usage("no command was given".into(), "known: demo", begin)
        }
        ErrorKind::InvalidValue if value.is_empty() && argument.starts_with("--") => {
            usage(format!("{argument} needs a value"), "nothing follows it", help)
        }
        ErrorKind::InvalidValue => {
            let known = format!("known: {}", said(ContextKind::ValidValue));
            let help = "name one of them, or none to play all";
            usage(format!("there is no proof {value:?}"), &known, help)
        }
        ErrorKind::ValueValidation => {
            let range = format!("it takes a whole number from 1 to {MOST}");
            usage(format!("cannot read {argument} {value:?}"), &range, "try `--count 200`")
        }
        ErrorKind::UnknownArgument => {
            usage(format!("{argument:?} is not expected here"), "nothing here is called that", help)
        }
        ErrorKind::InvalidUtf8 => {
            let why = "every name and every number here is plain text";
            usage("an argument is not valid UTF-8".into(), why, help)
        }
        _ => usage(first_line(error), "the arguments do not fit together", help),
    })
}

fn usage(what: String, why: &str, help: &str) -> Failure {
    Failure { exit: USAGE, what, why: why.into(), help: help.into() }
}

fn text_of(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(several) => several.join(", "),
        one => one.to_string(),
    }
}

/// What clap says itself, for what we have no better words for.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    line.strip_prefix("error: ").unwrap_or(line).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Command, Failure> {
        let words = std::iter::once("tenure").chain(line.split_whitespace());
        parse(words.map(OsString::from))
    }

    fn demo(line: &str) -> Demo {
        match read(line) {
            Ok(Command::Demo(demo)) => demo,
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn demo_alone_plays_every_proof() {
        let all = demo("demo");
        assert_eq!(all.proofs, Proof::value_variants());
        assert_eq!(all.count, 200);
    }

    #[test]
    fn a_name_plays_that_proof_and_count_is_for_the_race() {
        assert_eq!(demo("demo late").proofs, [Proof::Late]);
        assert_eq!(demo("demo race --count 7").count, 7);
        assert_eq!(demo("demo --count 1000000").count, 1_000_000);
        assert_eq!(read("demo late --count 7").unwrap_err().exit, USAGE);
    }

    #[test]
    fn the_definition_of_the_arguments_is_sound() {
        use clap::CommandFactory;
        Words::command().debug_assert();
    }

    #[test]
    fn the_help_says_the_default_that_is_used() {
        let Ok(Command::Say(help)) = read("demo --help") else { panic!("no help") };
        assert!(help.contains(&format!("[default: {COUNT}]")), "{help}");
    }
}
