//! `tenure leader`: who leads, now or at every change.

use std::io::{self, Write};
use std::time::SystemTime;

use tenure::{ErrorKind, Leader};

use crate::engine;
use crate::facts;
use crate::failure::{Exit, NO, OK, Stop};
use crate::output::json::Object;
use crate::output::{clean, quoted, span};
use crate::settings::Settings;

/// Prints who leads. If nobody does, the exit code is 1.
pub(crate) async fn run(
    name: &str,
    watch: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let election = tenure.election(settings.full_name(name));
    if !watch {
        let leader = election.leader().await.map_err(|error| engine::failure(&error, settings))?;
        print(name, leader.as_ref(), false, settings, out)?;
        return Ok(if leader.is_some() { OK } else { Exit(NO) });
    }
    let mut observer = election.observe();
    let (mut seen, mut reachable) = (false, true);
    loop {
        match observer.next().await {
            Ok(leader) => {
                if !reachable {
                    settings.notes().say("the engine is reachable again");
                }
                (seen, reachable) = (true, true);
                print(name, leader.as_ref(), true, settings, out)?;
                out.flush()?;
            }
            // An engine that was reachable will be reachable again.
            Err(error) if error.kind() == ErrorKind::Unavailable && seen => {
                if std::mem::replace(&mut reachable, false) {
                    let said = engine::reason(&error);
                    settings.notes().say(&format!("cannot reach the engine, retrying: {said}"));
                }
            }
            Err(error) => return Err(engine::failure(&error, settings).into()),
        }
    }
}

fn print(
    name: &str,
    leader: Option<&Leader>,
    timed: bool,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    let now = SystemTime::now();
    if settings.json.value {
        let object = Object::versioned();
        let object = match timed {
            true => object.text("ts", &humantime::format_rfc3339_millis(now).to_string()),
            false => object,
        };
        let object = object.text("name", name);
        let object = match leader {
            Some(leader) => object.object("leader", object_of(leader)),
            None => object.null("leader"),
        };
        return writeln!(out, "{}", object.end());
    }
    let time = if timed { facts::time_of_day_millis(now) + "  " } else { String::new() };
    let Some(Leader { term, value, owner, leads_for, .. }) = leader else {
        return writeln!(out, "{time}nobody leads {}", quoted(name));
    };
    let (who, owner) = match value {
        Some(value) => (clean(value), format!(" owner {},", clean(owner))),
        None => (clean(owner), String::new()),
    };
    let since = humantime::format_rfc3339_seconds(facts::since(*leads_for));
    let (name, lasted) = (quoted(name), span(*leads_for));
    writeln!(out, "{time}{who} leads {name}:{owner} term {term}, for {lasted} (since {since})")
}

fn object_of(leader: &Leader) -> Object {
    let since = humantime::format_rfc3339_millis(facts::since(leader.leads_for)).to_string();
    Object::new()
        .maybe_text("value", leader.value.as_deref())
        .text("owner", &leader.owner)
        .number("term", leader.term.get())
        .text("since", &since)
        .millis("leads_ms", leader.leads_for)
}
