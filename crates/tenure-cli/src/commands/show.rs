//! `tenure show`: everything about one name.

use std::io::{self, Write};

use tenure::{Details, Holder, View};

use crate::args::Named;
use crate::args::claim::RESERVED;
use crate::engine;
use crate::facts;
use crate::failure::{Exit, NO, OK, Stop};
use crate::names;
use crate::output::json::Object;
use crate::output::{clean, quoted, span};
use crate::settings::Settings;

/// Prints who holds a name and who waits for it, or the record of a once. If nothing is known, the exit code is
/// 1.
pub(crate) async fn run(
    named: &Named,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let name = &*named.name;
    match names::find_known(named, &tenure, settings).await? {
        None if settings.json.value => {
            let free = Object::versioned().text("name", name).text("state", "free");
            writeln!(out, "{}", free.end())?;
            Ok(Exit(NO))
        }
        None => {
            writeln!(out, "{} is free: nobody holds it, and nobody waits for it", quoted(name))?;
            Ok(Exit(NO))
        }
        Some(view) if settings.json.value => {
            let line = view.waiters.iter().enumerate();
            let line = line.map(|(ahead, waiter)| facts::waiter_object(ahead + 1, waiter));
            writeln!(out, "{}", facts::object(&view, settings).list("line", line).end())?;
            Ok(OK)
        }
        Some(view) => {
            show(&view, settings, out)?;
            Ok(OK)
        }
    }
}

/// Everything about a name of which something is known.
pub(crate) fn show(view: &View, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
    let name = quoted(settings.short_name(view.name.as_str()));
    writeln!(out, "{name}: {}, {}", facts::kind(view), facts::state(view))?;
    for holder in &view.holders {
        show_holder(holder, view, out)?;
    }
    if let Some(record) = view.record.as_ref().filter(|_| !view.is_used()) {
        writeln!(out, "              {}, fence {}", facts::remembered(record), record.fence)?;
    }
    for (ahead, waiter) in view.waiters.iter().enumerate() {
        let (who, waited) = (facts::who(&waiter.details), span(waiter.waited));
        let place = ahead + 1;
        writeln!(out, "  {place}. in line  {who}, for {waited}{}", reason(&waiter.details))?;
        meta(&waiter.details, out)?;
    }
    Ok(())
}

fn show_holder(holder: &Holder, view: &View, out: &mut dyn Write) -> io::Result<()> {
    let Holder { fence, weight, held_for, remaining, details } = holder;
    let since = humantime::format_rfc3339_seconds(facts::since(*held_for));
    let units = match (*weight, view.capacity) {
        (1, _) => String::new(),
        (weight, capacity) if weight == capacity => String::new(),
        (weight, capacity) => format!(", {weight} of {capacity}"),
    };
    let value = details.value.as_deref().map(|value| format!(", {}", quoted(value)));
    let (role, number) = match facts::kind(view) {
        "leader" => ("leader", "term"),
        _ => ("holder", "fence"),
    };
    let (value, why) = (value.unwrap_or_default(), reason(details));
    writeln!(out, "  {role}      {}{units}{value}{why}", facts::who(details))?;
    writeln!(out, "              held {} (since {since}), {number} {fence}", span(*held_for))?;
    let renewed = match facts::renewed_ago(holder) {
        Some(ago) if facts::is_late(holder) => {
            format!("; renewed {} ago, which is late", span(ago))
        }
        Some(ago) => format!("; renewed {} ago", span(ago)),
        None => String::new(),
    };
    if remaining.is_zero() {
        writeln!(out, "              overdue, and kept by a transaction that guards it{renewed}")?;
    } else {
        writeln!(out, "              {} left unless renewed{renewed}", span(*remaining))?;
    }
    meta(details, out)
}

fn reason(details: &Details) -> String {
    details.reason.as_deref().map(|reason| format!(", {}", quoted(reason))).unwrap_or_default()
}

fn meta(details: &Details, out: &mut dyn Write) -> io::Result<()> {
    let own = details.meta.iter().filter(|(key, _)| !RESERVED.contains(&&**key));
    own.into_iter()
        .try_for_each(|(key, value)| writeln!(out, "              {}={}", clean(key), clean(value)))
}
