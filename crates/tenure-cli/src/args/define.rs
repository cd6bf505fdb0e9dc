//! Defines flags and options, so that all of them look and behave the same.
//!
//! Each has a variable, `TENURE_` and its long name, which its help names. Values are taken as
//! they are and parsed by [`Given`](super::given::Given), which knows whether they come from the command line or
//! from a variable.

use clap::builder::{OsStringValueParser, ValueParser};
use clap::{Arg, ArgAction};

/// The variable for a flag.
pub(crate) fn variable_of(long: &str) -> String {
    format!("TENURE_{}", long.to_uppercase().replace('-', "_"))
}

/// A flag without a value.
pub(super) fn flag(long: &'static str, short: Option<char>, help: &str) -> Arg {
    let arg = Arg::new(long).long(long).action(ArgAction::SetTrue);
    with(arg, short, format!("{help} [env: {}]", variable_of(long)))
}

/// An option with a value.
pub(super) fn option(
    long: &'static str,
    short: Option<char>,
    value: &'static str,
    help: &str,
) -> Arg {
    let help = format!("{help} [env: {}]", variable_of(long));
    with(valued(long, value), short, help)
}

/// An option without a variable: it must be given on purpose.
pub(super) fn only_on_command_line(long: &'static str, value: &'static str, help: &str) -> Arg {
    with(valued(long, value), None, help.to_owned())
}

/// A positional argument.
pub(super) fn word(name: &'static str, value: &'static str, help: &str) -> Arg {
    Arg::new(name).value_name(value).value_parser(as_is()).help(help.to_owned())
}

/// Accepts any bytes as a value, to be parsed later.
pub(super) fn as_is() -> ValueParser {
    ValueParser::new(OsStringValueParser::new())
}

fn valued(long: &'static str, value: &'static str) -> Arg {
    // A negative number is refused when the value is parsed, with a better error than "unknown flag".
    Arg::new(long).long(long).value_name(value).value_parser(as_is()).allow_negative_numbers(true)
}

fn with(arg: Arg, short: Option<char>, help: String) -> Arg {
    let arg = arg.help(help);
    match short {
        Some(short) => arg.short(short),
        None => arg,
    }
}
