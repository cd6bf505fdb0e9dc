//! `tenure explain`: what a code or a topic means.

use std::io::Write;

use crate::codes::{CODES, Code, FENCING};
use crate::failure::{EXIT_CODES, Exit, Failure, OK, Stop, USAGE};
use crate::output::quoted;

/// Explains a topic, or lists what there is to explain.
pub(crate) fn run(topic: Option<&str>, out: &mut dyn Write) -> Result<Exit, Stop> {
    let Some(topic) = topic else {
        writeln!(out, "fencing     what a lock cannot do, and what can")?;
        writeln!(out, "exit-codes  what the exit codes mean")?;
        for Code { code, title, .. } in CODES {
            writeln!(out, "{code:<10}  {title}")?;
        }
        return Ok(OK);
    };
    if let Some(known) = CODES.iter().find(|known| known.code.eq_ignore_ascii_case(topic)) {
        let Code { code, title, why, next } = known;
        writeln!(out, "{code}: {title}\n\n{why}\n\n{next}")?;
        return Ok(OK);
    }
    match topic {
        "exit-codes" => write!(out, "{}", exit_codes())?,
        "fencing" => write!(out, "{FENCING}")?,
        other => {
            let codes: Vec<_> = CODES.iter().map(|known| known.code).collect();
            let what = format!("there is nothing called {}", quoted(other));
            let known = format!("known: fencing, exit-codes, {}", codes.join(", "));
            let help = "`tenure explain` lists them all; `tenure --help` has the commands";
            return Err(Failure::new(USAGE, what, known, help).into());
        }
    }
    Ok(OK)
}

/// The table of exit codes.
pub(crate) fn exit_codes() -> String {
    EXIT_CODES.iter().map(|(code, meaning)| format!("{code:>6}  {meaning}\n")).collect()
}
