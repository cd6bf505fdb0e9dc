//! `tenure break`: ends a hold by force, and first explains what that does.

use std::io::{self, Write};

use tenure::engine::{Name, Space};
use tenure::engines::postgres::{Postgres, PostgresConfig};
use tenure::{Broken, Fence, Holder, Tenure, View};

use crate::args::{Named, Source};
use crate::engine;
use crate::facts;
use crate::failure::{Exit, Failure, NO, OK, Stop, USAGE};
use crate::names;
use crate::output::json::Object;
use crate::output::{clean, quoted, span, typed};
use crate::settings::Settings;

/// What to break, and why.
#[derive(Debug)]
pub(crate) struct Break {
    /// The name.
    pub(crate) named: Named,
    /// Which hold and why. Without it nothing is broken, and the consequences are explained.
    pub(crate) meant: Option<(Fence, String)>,
    /// Whether to end the sessions whose transactions keep the hold, too.
    pub(crate) ends_sessions: bool,
}

/// Breaks, or explains.
pub(crate) async fn run(
    asked: &Break,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let Break { named, meant, ends_sessions } = asked;
    let is_postgres = |scheme| PostgresConfig::SCHEMES.contains(&scheme);
    if *ends_sessions && !settings.address.scheme().is_some_and(is_postgres) {
        return Err(Stop::Failed(Failure::new(
            USAGE,
            "--end-sessions is about transactions on postgres://",
            "on other engines no session keeps a hold; nothing was broken",
            "leave it out",
        )));
    }
    let tenure = engine::connect(settings).await?;
    let name = &*named.name;
    let view = names::find(named, &tenure, settings).await?;
    let Some((fence, reason)) = meant else {
        explain(name, view.as_ref(), settings, out)?;
        return Ok(Exit(NO));
    };
    let space = named.space.or(view.as_ref().map(|view| view.name.space())).unwrap_or(Space::Lock);
    carry_out(space, name, *fence, reason, &tenure, settings).await?;
    let ended = match ends_sessions {
        true => Some(end_sessions(space, name, *fence, settings).await?),
        false => None,
    };
    done(name, *fence, view.as_ref(), ended, settings, out)?;
    Ok(OK)
}

/// Ends the sessions whose transactions keep the hold, and returns how many these were.
async fn end_sessions(
    space: Space,
    name: &str,
    fence: Fence,
    settings: &Settings,
) -> Result<u64, Stop> {
    let failed = |error: tenure::Error| engine::failure(&error, settings);
    let (config, _) = PostgresConfig::from_url(settings.address.url()?).map_err(failed)?;
    let name = Name::new(space, &settings.full_name(name)).map_err(failed)?;
    Ok(Postgres::end_guards(config, &name, fence).await.map_err(failed)?)
}

/// Ends the hold with this fence, on behalf of the user; fails if someone else holds by now.
pub(crate) async fn carry_out(
    space: Space,
    name: &str,
    fence: Fence,
    reason: &str,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<(), Failure> {
    let mut options = tenure.defaults();
    options.details_mut().owner = operator(&options.details().owner);
    let as_operator = tenure.clone().with_defaults(options);
    let tenure = as_operator.map_err(|error| engine::failure(&error, settings))?;
    let full = settings.full_name(name);
    let broken = names::break_at(&tenure, space, &full, fence, reason).await;
    match broken.map_err(|error| engine::failure(&error, settings))? {
        Broken::Done => Ok(()),
        Broken::MovedOn => {
            let view = names::look(&tenure, space, &full).await;
            let view = view.map_err(|error| engine::failure(&error, settings))?;
            Err(moved_on(name, fence, view.as_ref()))
        }
    }
}

/// Who breaks it, as the holder will read it: a person, if the environment names one.
fn operator(owner: &str) -> String {
    let user = ["SUDO_USER", "USER", "LOGNAME"].iter().find_map(|name| std::env::var(name).ok());
    match user.filter(|user| !user.is_empty()) {
        Some(user) => format!("{}@{owner}", clean(&user)),
        None => owner.to_owned(),
    }
}

/// Prints who holds it, whether the holder seems alive, and what a break would do.
fn explain(
    name: &str,
    view: Option<&View>,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    let Some(view) = view.filter(|view| !view.holders.is_empty()) else {
        return writeln!(out, "{} is not held: there is nothing to break.", quoted(name));
    };
    for line in meaning(name, view) {
        writeln!(out, "{line}")?;
    }
    for holder in &view.holders {
        writeln!(out, "To break it: {}", next_line(name, view, holder.fence, settings))?;
    }
    Ok(())
}

/// Who holds it, whether the holder seems alive, and what a break would do, one line each.
pub(crate) fn meaning(name: &str, view: &View) -> Vec<String> {
    let mut lines = Vec::new();
    for holder in &view.holders {
        let since = facts::time_of_day(facts::since(holder.held_for));
        let (who, held) = (facts::who(&holder.details), span(holder.held_for));
        let (name, fence, looks) = (quoted(name), holder.fence, looks(holder));
        lines.push(format!(
            "{name} has been held by {who} since {since} ({held}), fence {fence}{looks}."
        ));
    }
    let told = match view.holders.iter().filter_map(facts::ttl).max() {
        Some(ttl) => format!("at its next renewal (within {})", span(ttl / 3)),
        None => "by a push or at its next renewal".to_owned(),
    };
    lines.push(format!(
        "Breaking does not stop that process. It is told {told}; until then, two may be running."
    ));
    if let Some(next) = view.waiters.first() {
        lines.push(format!("Next in line: {}.", facts::who(&next.details)));
    }
    lines.push(
        "The next holder gets a higher fence; whatever checks fences rejects the old one."
            .to_owned(),
    );
    if view.name.space() == Space::Once {
        lines.push("The work will be unsettled: nobody runs it again without --rerun.".to_owned());
    }
    if view.holders.iter().any(|holder| holder.remaining.is_zero()) {
        let what = "It is overdue, and kept by a transaction that guards it: a break takes effect when that ends.";
        lines.push(format!("{what} --end-sessions ends it."));
    }
    if let [holder] = &*view.holders
        && let Some((host, pid)) = process(holder)
    {
        lines.push(format!("Safer: ssh {host} kill {pid}"));
    }
    lines
}

fn looks(holder: &Holder) -> String {
    match facts::renewed_ago(holder) {
        Some(ago) if facts::is_late(holder) => {
            format!(", last renewed {} ago, which is late: the holder may be DEAD", span(ago))
        }
        Some(ago) => format!(", last renewed {} ago: the holder looks ALIVE", span(ago)),
        None => format!(", {} left unless renewed", span(holder.remaining)),
    }
}

/// The holder's host and process, if they are safe to type into a shell.
fn process(holder: &Holder) -> Option<(&str, u32)> {
    let host = facts::said(&holder.details, "host")?;
    let plain = |c: char| c.is_ascii_alphanumeric() || "-.".contains(c);
    let is_host = !host.is_empty() && !host.starts_with('-') && host.chars().all(plain);
    let pid = facts::said(&holder.details, "pid")?.parse().ok()?;
    is_host.then_some((host, pid))
}

/// The command that breaks this hold, as it can be typed.
fn next_line(name: &str, view: &View, fence: Fence, settings: &Settings) -> String {
    let mut line = format!("tenure break {}", typed(name));
    if view.name.space() != Space::Lock {
        line.push_str(&format!(" --kind {}", names::word(view.name.space())));
    }
    if let Some(ns) = settings.ns.as_ref().filter(|ns| ns.source == Source::Flag) {
        line.push_str(&format!(" --ns {}", typed(&ns.value)));
    }
    if settings.address.source == Source::Flag {
        line.push_str(" --url …");
    }
    format!("{line} --fence {fence} --reason \"…\"")
}

fn done(
    name: &str,
    fence: Fence,
    before: Option<&View>,
    ended: Option<u64>,
    settings: &Settings,
    out: &mut dyn Write,
) -> io::Result<()> {
    if settings.json.value {
        let object = Object::versioned().text("name", name).number("fence", fence.get());
        let object = object.flag("broken", true);
        let object = match ended {
            Some(ended) => object.number("sessions_ended", ended),
            None => object,
        };
        return writeln!(out, "{}", object.end());
    }
    let holder = before.and_then(|view| view.holders.iter().find(|holder| holder.fence == fence));
    let of = holder.map(|holder| format!(" of {}", facts::who(&holder.details)));
    let next = before.and_then(|view| view.waiters.first());
    let next = next.map(|next| format!(" Next in line was {}.", facts::who(&next.details)));
    let (of, next) = (of.unwrap_or_default(), next.unwrap_or_default());
    writeln!(out, "Broke {}: the hold{of} with fence {fence} has ended.{next}", quoted(name))?;
    match ended {
        Some(1) => writeln!(out, "Ended 1 session that kept it."),
        Some(many) => writeln!(out, "Ended {many} sessions that kept it."),
        None => Ok(()),
    }
}

fn moved_on(name: &str, fence: Fence, view: Option<&View>) -> Failure {
    let now = match view.and_then(|view| Some((view, facts::oldest(view)?))) {
        Some((view, holder)) => {
            let held = facts::held_by(view).unwrap_or_default();
            format!("now {}, {held}", holder.fence)
        }
        None => "now not held".to_owned(),
    };
    Failure::new(
        NO,
        format!("fence {fence} of {} does not match ({now})", quoted(name)),
        "the holder has changed since you looked; nothing was broken",
        format!("run `tenure show {}`, and decide again", typed(name)),
    )
    .code("T022")
}
