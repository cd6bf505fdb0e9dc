//! `tenure explain`: what a code or a topic means.

use std::io::Write;

use crate::failure::{EXIT_CODES, Exit, Failure, OK, Stop, USAGE};
use crate::output::quoted;

/// Explains a topic, or lists what there is to explain.
pub(crate) fn run(topic: Option<&str>, out: &mut dyn Write) -> Result<Exit, Stop> {
    match topic {
        Some("exit-codes") => {
            for (code, meaning) in EXIT_CODES {
                writeln!(out, "{code:>6}  {meaning}")?;
            }
            Ok(OK)
        }
        Some(other) => {
            let what = format!("there is nothing to explain about {}", quoted(other));
            Err(Failure::new(USAGE, what, "known: exit-codes", "see `tenure --help`").into())
        }
        None => {
            writeln!(out, "exit-codes")?;
            Ok(OK)
        }
    }
}
