//! `tenure explain`: explains a code or a topic.

use std::io::Write;

use crate::codes::{CODES, Code, FENCING};
use crate::failure::{EXIT_CODES, Exit, Failure, OK, Stop, USAGE};
use crate::output::json::Object;
use crate::output::quoted;
use crate::settings::Settings;

/// Explains a topic, or lists what there is to explain.
pub(crate) fn run(
    topic: Option<&str>,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let json = settings.json.value;
    let Some(topic) = topic else {
        if json {
            for topic in ["fencing", "exit-codes"] {
                writeln!(out, "{}", Object::versioned().text("topic", topic).end())?;
            }
            CODES.iter().try_for_each(|code| writeln!(out, "{}", object(code).end()))?;
            return Ok(OK);
        }
        writeln!(out, "fencing     what a lock cannot do, and what a fence can")?;
        writeln!(out, "exit-codes  what the exit codes mean")?;
        for Code { code, title, .. } in CODES {
            writeln!(out, "{code:<10}  {title}")?;
        }
        return Ok(OK);
    };
    if let Some(known) = CODES.iter().find(|known| known.code.eq_ignore_ascii_case(topic)) {
        if json {
            writeln!(out, "{}", object(known).end())?;
            return Ok(OK);
        }
        let Code { code, title, why, next } = known;
        writeln!(out, "{code}: {title}\n\n{why}\n\n{next}")?;
        return Ok(OK);
    }
    match topic {
        "exit-codes" if json => {
            for (code, meaning) in EXIT_CODES {
                let object = Object::versioned().text("exit", code).text("meaning", meaning);
                writeln!(out, "{}", object.end())?;
            }
        }
        "fencing" if json => {
            let object = Object::versioned().text("topic", "fencing").text("text", FENCING);
            writeln!(out, "{}", object.end())?;
        }
        "exit-codes" => write!(out, "{}", exit_codes())?,
        "fencing" => write!(out, "{FENCING}")?,
        other => {
            let codes: Vec<_> = CODES.iter().map(|known| known.code).collect();
            let what = format!("unknown code or topic {}", quoted(other));
            let known = format!("available: fencing, exit-codes, {}", codes.join(", "));
            let help = "`tenure explain` lists them all; `tenure --help` lists the commands";
            return Err(Failure::new(USAGE, what, known, help).into());
        }
    }
    Ok(OK)
}

fn object(code: &Code) -> Object {
    let Code { code, title, why, next } = code;
    let in_a_line = |text: &str| text.replace('\n', " ");
    Object::versioned()
        .text("code", code)
        .text("title", title)
        .text("why", &in_a_line(why))
        .text("next", &in_a_line(next))
}

/// The table of exit codes.
pub(crate) fn exit_codes() -> String {
    EXIT_CODES.iter().map(|(code, meaning)| format!("{code:>6}  {meaning}\n")).collect()
}
