//! `tenure ls`: who holds what.

use std::io::{self, Write};
use std::time::{Duration, SystemTime};

use tenure::View;

use crate::engine;
use crate::facts;
use crate::failure::{Exit, OK, Stop};
use crate::output::{clean, span, table};
use crate::settings::Settings;

/// The largest width of the column of owners, in characters.
const WIDEST: usize = 40;
const HEADING: [&str; 10] =
    ["NAME", "KIND", "STATE", "OWNER", "HELD", "LEFT", "FENCE", "WAIT", "OLDEST", "NOTE"];

/// Lists the names that are in use.
pub(crate) async fn run(
    prefix: &str,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let listed = tenure.list(settings.full_name(prefix)).await;
    let views = listed.map_err(|error| engine::failure(&error, settings))?;
    if settings.json.value {
        for view in &views {
            writeln!(out, "{}", facts::object(view, settings).end())?;
        }
        return Ok(OK);
    }
    if !views.is_empty() {
        let heading = HEADING.map(str::to_owned);
        let rows: Vec<_> =
            std::iter::once(heading).chain(views.iter().map(|view| row(view, settings))).collect();
        table::print(&rows, settings.paint(), out)?;
    }
    if !settings.quiet.value {
        let trip = tenure.health().await.map_err(|error| engine::failure(&error, settings))?;
        summary(&views, &tenure.profile().label, trip, out)?;
    }
    Ok(OK)
}

fn row(view: &View, settings: &Settings) -> [String; 10] {
    let dash = || "-".to_owned();
    let oldest = facts::oldest(view);
    let left = view.holders.iter().map(|holder| holder.remaining).min();
    let fence = view.holders.iter().map(|holder| holder.fence).max();
    let waited = view.waiters.iter().map(|waiter| waiter.waited).max();
    [
        clean(settings.short_name(view.name.as_str())),
        facts::kind(view).to_owned(),
        facts::state(view),
        owners(view),
        oldest.map_or_else(dash, |holder| span(holder.held_for)),
        left.map_or_else(dash, |left| if left.is_zero() { "overdue".into() } else { span(left) }),
        fence.map_or_else(dash, |fence| fence.to_string()),
        view.waiters.len().to_string(),
        waited.map_or_else(dash, span),
        facts::note(view),
    ]
}

/// The owners: one with its command, or several by their names.
pub(crate) fn owners(view: &View) -> String {
    let text = match &*view.holders {
        [] => "-".to_owned(),
        [one] => match facts::renewed_ago(one).filter(|_| facts::is_late(one)) {
            Some(ago) => format!("{} (renewed {} ago)", clean(&one.details.owner), span(ago)),
            None => facts::who(&one.details),
        },
        several => {
            let owners: Vec<_> = several.iter().map(|one| clean(&one.details.owner)).collect();
            owners.join(" ")
        }
    };
    match text.char_indices().nth(WIDEST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

fn summary(views: &[View], engine: &str, trip: Duration, out: &mut dyn Write) -> io::Result<()> {
    let held: usize = views.iter().map(|view| view.holders.len()).sum();
    let waiting: usize = views.iter().map(|view| view.waiters.len()).sum();
    let names = match views.len() {
        1 => "1 name".to_owned(),
        many => format!("{many} names"),
    };
    let (trip, now) = (trip.as_secs_f64() * 1e3, facts::time_of_day_millis(SystemTime::now()));
    let engine = clean(engine);
    writeln!(
        out,
        "{names}, {held} held, {waiting} waiting, engine {engine} ({trip:.2} ms), as of {now}"
    )
}
