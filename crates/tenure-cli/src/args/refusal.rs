//! Replaces clap's errors by our own.

use std::ffi::OsString;

use clap::Command as Words;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use super::Invocation;
use crate::failure::{Failure, USAGE};
use crate::output::{clean, discreet, quoted};

/// The failure for an error of clap. The help and the version are not errors.
pub(super) fn explain(
    error: &clap::Error,
    words: &Words,
    args: &[OsString],
) -> Result<Invocation, Failure> {
    let refusal = Refusal { error, words, args };
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            Ok(Invocation::Print(error.render().to_string()))
        }
        ErrorKind::MissingSubcommand | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            Err(no_command(words))
        }
        ErrorKind::InvalidSubcommand => Err(refusal.unknown_command()),
        ErrorKind::UnknownArgument => Err(refusal.unknown_argument()),
        ErrorKind::ArgumentConflict => Err(refusal.conflict()),
        kind => {
            let (what, why) = refusal.other(kind);
            Err(Failure::new(USAGE, what, why, refusal.help()))
        }
    }
}

struct Refusal<'a> {
    error: &'a clap::Error,
    words: &'a Words,
    args: &'a [OsString],
}

impl Refusal<'_> {
    fn said(&self, kind: ContextKind) -> String {
        self.error.get(kind).map(text_of).unwrap_or_default()
    }

    /// The argument that it is about. Clap says `--count <N>`; the name alone is clearer.
    fn argument(&self, kind: ContextKind) -> String {
        let argument = self.said(kind);
        discreet(argument.split(" <").next().unwrap_or_default())
    }

    /// Where to read more.
    fn help(&self) -> String {
        let is_command = |word: &&OsString| {
            self.words.get_subcommands().any(|command| command.get_name() == **word)
        };
        match self.args.iter().skip(1).find(is_command) {
            Some(command) => format!("see `tenure {} --help`", command.to_string_lossy()),
            None => "see `tenure --help`".to_owned(),
        }
    }

    fn unknown_command(&self) -> Failure {
        let command = discreet(&self.said(ContextKind::InvalidSubcommand));
        let help = match self.said(ContextKind::SuggestedSubcommand).split(", ").next() {
            Some(close) if !close.is_empty() => format!("did you mean `tenure {close}`?"),
            _ => self.help(),
        };
        let what = format!("unknown command {}", quoted(&command));
        Failure::new(USAGE, what, known(self.words), help)
    }

    fn unknown_argument(&self) -> Failure {
        let help = match &*self.said(ContextKind::SuggestedArg) {
            "" => self.help(),
            close => format!("did you mean `{}`?", clean(close)),
        };
        let argument = quoted(&self.argument(ContextKind::InvalidArg));
        let what = format!("unexpected argument {argument}");
        Failure::new(USAGE, what, "no option or argument here matches it", help)
    }

    fn conflict(&self) -> Failure {
        let one = clean(&self.argument(ContextKind::InvalidArg));
        let other = clean(&self.argument(ContextKind::PriorArg));
        let what = match one == other {
            true => format!("{one} was given twice"),
            false => format!("{one} cannot be used together with {other}"),
        };
        let help = format!("remove one of them; {}", self.help());
        Failure::new(USAGE, what, "only one of them can apply", help)
    }

    /// What is wrong and why, for errors that need no more than that.
    fn other(&self, kind: ErrorKind) -> (String, &'static str) {
        let argument = clean(&self.argument(ContextKind::InvalidArg));
        match kind {
            ErrorKind::InvalidValue if self.said(ContextKind::InvalidValue).is_empty() => {
                (format!("{argument} needs a value"), "no value follows it")
            }
            ErrorKind::MissingRequiredArgument => {
                let missing = argument.trim_matches(['<', '>', '[', ']', '.']);
                (format!("{missing} is missing"), "this command requires it")
            }
            ErrorKind::InvalidUtf8 => {
                let why = "only UTF-8 text is accepted here";
                ("an argument is not valid UTF-8".to_owned(), why)
            }
            _ => (first_line(self.error), "the arguments are invalid"),
        }
    }
}

/// The failure if no command was given.
pub(super) fn no_command(words: &Words) -> Failure {
    let begin = "try `tenure demo`, or see `tenure --help`";
    Failure::new(USAGE, "no command given", known(words), begin)
}

fn known(words: &Words) -> String {
    let commands: Vec<_> = words.get_subcommands().map(Words::get_name).collect();
    format!("commands: {}", commands.join(", "))
}

fn text_of(value: &ContextValue) -> String {
    match value {
        ContextValue::Strings(several) => several.join(", "),
        ContextValue::StyledStr(text) => text.to_string(),
        one => one.to_string(),
    }
}

/// Clap's own text, if we have no better one.
fn first_line(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let line = text.lines().next().unwrap_or_default();
    clean(line.strip_prefix("error: ").unwrap_or(line))
}
