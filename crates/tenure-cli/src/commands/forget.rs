//! `tenure forget`: lets the work of a once run again, and first explains what that does.

use std::io::{self, Write};

use tenure::engine::Space;
use tenure::{Fence, Forgotten, OnceRecord, View};

use crate::args::Source;
use crate::engine;
use crate::facts;
use crate::failure::{Exit, Failure, NO, OK, Stop};
use crate::names;
use crate::output::json::Object;
use crate::output::{quoted, typed};
use crate::settings::Settings;

/// What to forget.
#[derive(Debug)]
pub(crate) struct Forget {
    /// The key, as the user typed it.
    pub(crate) name: String,
    /// Which record. Without it nothing is forgotten, and the consequences are explained.
    pub(crate) fence: Option<Fence>,
    /// Whether to forget a settled record as well.
    pub(crate) done: bool,
}

/// Forgets, or explains.
pub(crate) async fn run(
    asked: &Forget,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let full = settings.full_name(&asked.name);
    let failed = |error: tenure::Error| engine::failure(&error, settings);
    let view = names::look(&tenure, Space::Once, &full).await.map_err(failed)?;
    let known = view.as_ref().and_then(|view| Some((view, view.record.as_ref()?)));
    let Some(fence) = asked.fence else {
        explain(asked, known, settings, out)?;
        return Ok(Exit(NO));
    };
    let seen = match known {
        None => return Err(nothing(&asked.name).into()),
        Some((view, _)) if view.is_used() => return Err(runs(&asked.name, view).into()),
        Some((_, record)) if record.fence != fence => return Err(moved_on(asked, fence).into()),
        Some((_, record)) if record.outcome.is_some() && !asked.done => {
            return Err(was_done(asked, fence).into());
        }
        Some((_, record)) => record,
    };
    match tenure.once(&full).forget(seen).await.map_err(failed)? {
        Forgotten::MovedOn => Err(moved_on(asked, fence).into()),
        Forgotten::Done => {
            let name = &*asked.name;
            if settings.json.value {
                let object = Object::versioned().text("name", name).number("fence", fence.get());
                writeln!(out, "{}", object.flag("forgotten", true).end())?;
            } else {
                writeln!(out, "Forgot {}: the next caller runs it.", quoted(name))?;
            }
            Ok(OK)
        }
    }
}

/// Prints the record, what forgetting it would do, and how.
fn explain(
    asked: &Forget,
    known: Option<(&View, &OnceRecord)>,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    let name = quoted(&asked.name);
    let Some((view, record)) = known else {
        return writeln!(out, "There is no record of {name}: there is nothing to forget.");
    };
    if view.is_used() {
        let who = facts::held_by(view).unwrap_or_default();
        return writeln!(out, "{name} is still running: {who}. There is nothing to forget.");
    }
    writeln!(out, "{name} {}.", facts::remembered(record))?;
    let meaning = match record.outcome {
        Some(_) => "It was done. If you forget it, the next caller does it a second time.",
        None => {
            "It may have been done, partly done or not done. Forget it if you know that it was not done."
        }
    };
    let mut line = format!("tenure forget {}", typed(&asked.name));
    if let Some(ns) = settings.ns.as_ref().filter(|ns| ns.source == Source::Flag) {
        line.push_str(&format!(" --ns {}", typed(&ns.value)));
    }
    if settings.address.source == Source::Flag {
        line.push_str(" --url …");
    }
    let done = if record.outcome.is_some() { " --done" } else { "" };
    writeln!(out, "{meaning}\nTo forget it: {line} --fence {}{done}", record.fence)
}

fn nothing(name: &str) -> Failure {
    Failure::new(
        NO,
        format!("there is no record of {}", quoted(name)),
        "it was never started, or has already been forgotten",
        "check the key and the namespace (`--ns`)",
    )
}

fn runs(name: &str, view: &View) -> Failure {
    let who = facts::held_by(view).unwrap_or_else(|| "others wait for it".to_owned());
    Failure::new(
        NO,
        format!("{} is still running: {who}", quoted(name)),
        "work that is running cannot be forgotten",
        format!("run `tenure wait {} --kind once`, and look again", typed(name)),
    )
}

fn was_done(asked: &Forget, fence: Fence) -> Failure {
    let name = &asked.name;
    Failure::new(
        NO,
        format!("{} was done", quoted(name)),
        "if it is forgotten, the next caller does it a second time; nothing was forgotten",
        format!("to forget it anyway: `tenure forget {} --fence {fence} --done`", typed(name)),
    )
}

fn moved_on(asked: &Forget, fence: Fence) -> Failure {
    let name = &asked.name;
    Failure::new(
        NO,
        format!("fence {fence} of {} does not match", quoted(name)),
        "it was started or settled since you looked; nothing was forgotten",
        format!("run `tenure show {} --kind once`, and decide again", typed(name)),
    )
    .code("T022")
}
