//! What clap found wrong with the command line, in our own words.

use std::ffi::OsString;

use clap::Command as Words;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Asked;
use crate::failure::{Failure, USAGE};
use crate::output::{clean, quoted};

/// Says what is wrong; the help and the version are not.
pub(super) fn explain(
    error: &clap::Error,
    words: &Words,
    args: &[OsString],
) -> Result<Asked, Failure> {
    let said = |kind| error.get(kind).map(text_of).unwrap_or_default();
    let (argument, value) = (said(ContextKind::InvalidArg), said(ContextKind::InvalidValue));
    // Clap says `--count <N>`; the name alone is clearer.
    let argument = argument.split(" <").next().unwrap_or_default();
    let command =
        args.iter().skip(1).find(|arg| words.get_subcommands().any(|c| c.get_name() == **arg));
    let help = match command {
        Some(command) => format!("see `tenure {} --help`", command.to_string_lossy()),
        None => "see `tenure --help`".to_owned(),
    };
    Err(match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            return Ok(Asked::Say(error.render().to_string()));
        }
        ErrorKind::InvalidSubcommand => {
            let what =
                format!("there is no command {}", quoted(&said(ContextKind::InvalidSubcommand)));
            let help = match said(ContextKind::SuggestedSubcommand).split(", ").next() {
                Some(close) if !close.is_empty() => format!("did you mean `tenure {close}`?"),
                _ => help,
            };
            Failure::new(USAGE, what, known(words), help)
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            no_command(words)
        }
        ErrorKind::InvalidValue if value.is_empty() => Failure::new(
            USAGE,
            format!("{} needs a value", clean(argument)),
            "nothing follows it",
            help,
        ),
        ErrorKind::UnknownArgument => {
            let what = format!("{} is not expected here", quoted(argument));
            let help = match &*said(ContextKind::SuggestedArg) {
                "" => help,
                close => format!("did you mean `{}`?", clean(close)),
            };
            Failure::new(USAGE, what, "nothing here is called that", help)
        }
        ErrorKind::ArgumentConflict => {
            let other = said(ContextKind::PriorArg);
            let other = other.split(" <").next().unwrap_or_default();
            let what = match other == argument {
                true => format!("{} is there twice", clean(argument)),
                false => format!("{} and {} are both there", clean(argument), clean(other)),
            };
            Failure::new(
                USAGE,
                what,
                "only one of them can be meant",
                format!("leave one out; {help}"),
            )
        }
        ErrorKind::MissingRequiredArgument => {
            let missing = argument.trim_matches(['<', '>', '[', ']', '.']);
            Failure::new(USAGE, format!("{missing} is missing"), "the command needs it", help)
        }
        ErrorKind::InvalidUtf8 => Failure::new(
            USAGE,
            "an argument is not valid UTF-8",
            "every name and every number here is plain text",
            help,
        ),
        _ => Failure::new(USAGE, first_line(error), "the arguments do not fit together", help),
    })
}

/// No command was given.
pub(super) fn no_command(words: &Words) -> Failure {
    let begin = "begin with `tenure demo`; `tenure --help` has the rest";
    Failure::new(USAGE, "no command was given", known(words), begin)
}

fn known(words: &Words) -> String {
    let commands: Vec<_> = words.get_subcommands().map(Words::get_name).collect();
    format!("known: {}", commands.join(", "))
}

fn text_of(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(several) => several.join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        one => one.to_string(),
    }
}

/// What clap says itself, for what we have no better words for.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    clean(line.strip_prefix("error: ").unwrap_or(line))
}
