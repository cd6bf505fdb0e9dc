//! Parses the values of the command line and of variables.
//!
//! The command line wins. An invalid value is refused with its origin: exit code 64 for the command line, 78 for a
//! variable.

use std::ffi::{OsStr, OsString};
use std::ops::RangeInclusive;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{Arg, ArgMatches, Command as Words};

use super::define::variable_of;
use crate::failure::{CONFIGURATION, Failure, USAGE};
use crate::output::{discreet, quoted};

/// Looks up a variable.
pub(crate) type Variables = dyn Fn(&str) -> Option<OsString>;

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Source {
    /// The command line.
    Flag,
    /// A variable.
    Variable,
    /// Neither.
    Default,
}

/// A value and where it comes from.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Found<T> {
    /// The value.
    pub(crate) value: T,
    /// Where it comes from.
    pub(crate) source: Source,
}

impl<T> Found<T> {
    /// A default value.
    pub(crate) fn default(value: T) -> Found<T> {
        Found { value, source: Source::Default }
    }
}

/// The values that were given to one command.
pub(crate) struct Given<'a> {
    /// The definition of the command.
    words: &'a Words,
    matches: &'a ArgMatches,
    variables: Option<&'a Variables>,
}

impl<'a> Given<'a> {
    pub(crate) fn new(
        words: &'a Words,
        matches: &'a ArgMatches,
        variables: &'a Variables,
    ) -> Given<'a> {
        Given { words, matches, variables: Some(variables) }
    }

    /// The same without variables, for what must be given on purpose.
    pub(crate) fn without_variables(&self) -> Given<'a> {
        Given { variables: None, ..*self }
    }

    /// Whether the command line has this flag or option, if the command has it at all.
    pub(crate) fn is_on_command_line(&self, name: &str) -> bool {
        let is_known = self.matches.try_contains_id(name).is_ok();
        is_known && self.matches.value_source(name) == Some(ValueSource::CommandLine)
    }

    /// A flag.
    pub(crate) fn flag(&self, name: &'static str) -> Result<Found<bool>, Failure> {
        if self.is_on_command_line(name) {
            return Ok(Found { value: true, source: Source::Flag });
        }
        let Some(value) = self.variable(name) else {
            return Ok(Found::default(false));
        };
        let value = match value.to_str() {
            Some("1" | "true" | "yes" | "on") => true,
            Some("0" | "false" | "no" | "off") => false,
            _ => return Err(self.unreadable(name, &value, "expected yes or no", "1")),
        };
        Ok(Found { value, source: Source::Variable })
    }

    /// How often a flag was given; as a variable, it is a number.
    pub(crate) fn times(&self, name: &'static str) -> Result<u8, Failure> {
        if self.is_on_command_line(name) {
            return Ok(self.matches.get_count(name));
        }
        let times = self.number(name, 0..=9)?;
        Ok(times.and_then(|times| u8::try_from(times).ok()).unwrap_or(0))
    }

    /// The value as it is, any bytes.
    pub(crate) fn bytes(&self, name: &'static str) -> Option<Found<OsString>> {
        if self.is_on_command_line(name) {
            let value = self.matches.get_one::<OsString>(name)?.clone();
            return Some(Found { value, source: Source::Flag });
        }
        Some(Found { value: self.variable(name)?, source: Source::Variable })
    }

    /// All values as they are, of an option that may be repeated or of positional arguments.
    pub(crate) fn all(&self, name: &'static str) -> Vec<OsString> {
        self.matches.get_many::<OsString>(name).unwrap_or_default().cloned().collect()
    }

    /// Text. An error does not quote the value, because it may be a secret.
    pub(crate) fn text(&self, name: &'static str) -> Result<Option<Found<String>>, Failure> {
        let Some(Found { value, source }) = self.bytes(name) else { return Ok(None) };
        match value.into_string() {
            Ok(value) => Ok(Some(Found { value, source })),
            Err(_) => Err(Failure::new(
                self.exit_of(name),
                format!("{} is not valid UTF-8", self.said(name)),
                "only UTF-8 text is accepted here",
                "encode it in UTF-8",
            )),
        }
    }

    /// A value that only a variable can have: a secret, which the command line would show to others.
    #[cfg(feature = "relay")]
    pub(crate) fn secret(&self, name: &str) -> Option<OsString> {
        self.variable(name)
    }

    /// A positional argument, which must be text. It has no variable.
    pub(crate) fn word(&self, name: &'static str) -> Result<Option<String>, Failure> {
        if !self.is_on_command_line(name) {
            return Ok(None);
        }
        Ok(self.text(name)?.map(|found| found.value))
    }

    /// The name to hold, which must not be empty.
    pub(crate) fn name(&self) -> Result<String, Failure> {
        let name = self.word("name")?.unwrap_or_default();
        if name.is_empty() {
            let help = "is a variable in your script unset?";
            return Err(Failure::new(USAGE, "the name is empty", "a name is required", help));
        }
        Ok(name)
    }

    /// A duration. On the command line a bare number is in seconds, as for flock, sleep and timeout. A variable
    /// may be read far from where it was set, so it needs a unit.
    pub(crate) fn duration(&self, name: &'static str) -> Result<Option<Duration>, Failure> {
        let Some(Found { value, source }) = self.text(name)? else { return Ok(None) };
        let read = match (is_bare(&value), source) {
            (true, Source::Flag) => humantime::parse_duration(&in_seconds(&value)).ok(),
            (true, _) => return Err(no_unit(&self.said(name), &value)),
            (false, _) => humantime::parse_duration(&value).ok(),
        };
        let why = match source {
            Source::Flag => "expected seconds, or a number with a unit: ms, s, m, h or d",
            _ => "expected a number with a unit: ms, s, m, h or d",
        };
        read.map(Some).ok_or_else(|| self.unreadable(name, OsStr::new(&value), why, example(name)))
    }

    /// A duration that is not zero.
    pub(crate) fn some_time(&self, name: &'static str) -> Result<Option<Duration>, Failure> {
        match self.duration(name)? {
            Some(Duration::ZERO) => {
                let value = self.bytes(name).map(|found| found.value).unwrap_or_default();
                Err(self.unreadable(name, &value, "it must be greater than zero", example(name)))
            }
            time => Ok(time),
        }
    }

    /// A whole number within a range.
    pub(crate) fn number(
        &self,
        name: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, Failure> {
        let Some(Found { value, .. }) = self.text(name)? else { return Ok(None) };
        match value.parse() {
            Ok(number) if is_digits(&value) && range.contains(&number) => Ok(Some(number)),
            _ => {
                let (least, most) = (range.start(), range.end());
                let why = format!("expected a whole number from {least} to {most}");
                let example = (*range.start()).max(1).min(*range.end()).to_string();
                Err(self.unreadable(name, OsStr::new(&value), &why, &example))
            }
        }
    }

    /// One of some words.
    pub(crate) fn choice<T: Copy>(
        &self,
        name: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<Found<T>>, Failure> {
        let Some(Found { value, source }) = self.text(name)? else { return Ok(None) };
        match choices.iter().find(|(word, _)| *word == value) {
            Some((_, choice)) => Ok(Some(Found { value: *choice, source })),
            None => {
                let known: Vec<_> = choices.iter().map(|(word, _)| *word).collect();
                let why = format!("possible values: {}", known.join(", "));
                let example = known.first().copied().unwrap_or_default();
                Err(self.unreadable(name, OsStr::new(&value), &why, example))
            }
        }
    }

    /// The error for a value, with an example of a valid one.
    pub(crate) fn unreadable(
        &self,
        name: &'static str,
        value: &OsStr,
        why: &str,
        example: &str,
    ) -> Failure {
        let (said, shown) = (self.said(name), quoted(&discreet(&value.to_string_lossy())));
        let help = match self.is_on_command_line(name) {
            true => format!("try `{said} {example}`"),
            false => format!("set {said}={example}, or unset it"),
        };
        Failure::new(self.exit_of(name), format!("invalid value {shown} for {said}"), why, help)
    }

    /// The flag or the variable, wherever the value came from; a positional argument is called as in the help.
    pub(crate) fn said(&self, name: &str) -> String {
        if !self.is_on_command_line(name) && self.variable(name).is_some() {
            return variable_of(name);
        }
        let arg = self.words.get_arguments().find(|arg| arg.get_id() == name);
        let word = arg.filter(|arg| arg.is_positional()).and_then(Arg::get_value_names);
        match word {
            Some([word, ..]) => word.to_string(),
            _ => format!("--{name}"),
        }
    }

    /// The exit code for an invalid value.
    pub(crate) fn exit_of(&self, name: &str) -> u8 {
        if self.is_on_command_line(name) { USAGE } else { CONFIGURATION }
    }

    fn variable(&self, name: &str) -> Option<OsString> {
        (self.variables?)(&variable_of(name))
    }
}

/// An example of a duration for this option.
fn example(name: &str) -> &'static str {
    match name {
        "interval" => "250ms",
        "kill-after" | "renew-every" => "5s",
        _ => "30s",
    }
}

/// The error for a bare number where a unit is needed.
pub(crate) fn no_unit(said: &str, value: &str) -> Failure {
    Failure::new(
        CONFIGURATION,
        format!("duration {} in {said} has no unit", quoted(value)),
        "variables and URLs need a unit; only on the command line does a bare number mean seconds",
        format!("write {said}={}", in_seconds(value)),
    )
    .code("T002")
}

/// Whether it is just a number, maybe with a fraction.
pub(crate) fn is_bare(value: &str) -> bool {
    match value.split_once('.') {
        Some((whole, fraction)) => (whole.is_empty() || is_digits(whole)) && is_digits(fraction),
        None => is_digits(value),
    }
}

/// A bare number with the unit of seconds.
fn in_seconds(bare: &str) -> String {
    let zero = if bare.starts_with('.') { "0" } else { "" };
    format!("{zero}{bare}s")
}

fn is_digits(value: &str) -> bool {
    !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit())
}
