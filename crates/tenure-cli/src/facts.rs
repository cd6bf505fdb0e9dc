//! What is known about a name, its holders and its waiters, as commands show it.
//!
//! `run` and `acquire` add to the meta of their claim what the engine does not know: the command, the
//! host, the process, the ttl. Other users of the library need not, so all of that may be missing.

use std::time::{Duration, SystemTime};

use tenure::engine::Space;
use tenure::{Details, Holder, OnceRecord, View, Waiter};

use crate::output::json::Object;
use crate::output::{clean, span};
use crate::run;
use crate::settings::Settings;

/// The capacity of a read-write lock. No semaphore can have it.
const RWLOCK: u32 = 1 << 20;

/// The kind of a name, as far as its space and capacity reveal it.
pub(crate) fn kind(view: &View) -> &'static str {
    match (view.name.space(), view.capacity) {
        (Space::Election, _) => "leader",
        (Space::Once, _) => "once",
        (_, 1) => "lock",
        (_, RWLOCK) => "rwlock",
        _ => "sem",
    }
}

/// The name's state in a word or two.
pub(crate) fn state(view: &View) -> String {
    let held = weight_held(view);
    match kind(view) {
        _ if view.holders.iter().any(is_late) => "! stale".into(),
        "sem" => format!("{held}/{}", view.capacity),
        _ if held == 0 => idle(view).into(),
        "rwlock" if held < RWLOCK => format!("{held} shared"),
        "leader" => "leads".into(),
        "once" => "runs".into(),
        _ => "held".into(),
    }
}

/// The state of a name that nobody holds.
fn idle(view: &View) -> &'static str {
    match &view.record {
        Some(OnceRecord { outcome: Some(_), .. }) => "done",
        Some(_) => "unsettled",
        None => "free",
    }
}

/// `was done 2m ago (ended with exit code 0, 5 bytes of output), and is remembered for another 23h58m`.
pub(crate) fn remembered(record: &OnceRecord) -> String {
    let (ago, left) = (span(record.age), span(record.remaining));
    let what = match &record.outcome {
        Some(outcome) => {
            let left = match run::remembered(outcome) {
                Some((_, ending, written)) => format!("{ending}, {written} bytes of output"),
                None => format!("an outcome of {} bytes", outcome.len()),
            };
            format!("was done {ago} ago ({left})")
        }
        None => format!("was started {ago} ago and never settled"),
    };
    format!("{what}, and is remembered for another {left}")
}

/// The record of a once, as an object.
fn record_object(record: &OnceRecord) -> Object {
    let object = Object::new()
        .flag("settled", record.outcome.is_some())
        .number("fence", record.fence.get())
        .millis("age_ms", record.age)
        .millis("kept_ms", record.remaining);
    let Some(outcome) = &record.outcome else { return object };
    let object = object.number("outcome_bytes", outcome.len() as u64);
    match run::remembered(outcome) {
        Some((exit, _, written)) => {
            object.number("exit", exit.into()).number("output_bytes", written)
        }
        None => object,
    }
}

/// Whether one more claim could be granted at once.
pub(crate) fn is_free(view: &View) -> bool {
    let held = weight_held(view);
    let room = if kind(view) == "sem" { held < view.capacity } else { held == 0 };
    room && view.waiters.is_empty()
}

fn weight_held(view: &View) -> u32 {
    view.holders.iter().map(|holder| holder.weight).fold(0, u32::saturating_add)
}

/// The hold to show where there is room for one: the oldest.
pub(crate) fn oldest(view: &View) -> Option<&Holder> {
    view.holders.iter().max_by_key(|holder| holder.held_for)
}

/// The value of one of tenure's own keys in the meta.
pub(crate) fn said<'a>(details: &'a Details, key: &str) -> Option<&'a str> {
    details.meta.iter().find(|(known, _)| known == key).map(|(_, value)| &**value)
}

/// The owner, with the command if it is known: `web-3:4121 ./backup.sh`.
pub(crate) fn who(details: &Details) -> String {
    let owner = clean(&details.owner);
    match said(details, "cmd") {
        Some(cmd) => format!("{owner} {}", clean(cmd)),
        None => owner,
    }
}

/// How long a hold lasts without renewal, if its holder says so.
pub(crate) fn ttl(holder: &Holder) -> Option<Duration> {
    let ttl = humantime::parse_duration(said(&holder.details, "ttl")?).ok()?;
    // A value that contradicts the engine's numbers is ignored.
    (ttl >= holder.remaining).then_some(ttl)
}

/// How long ago it was renewed, or granted.
pub(crate) fn renewed_ago(holder: &Holder) -> Option<Duration> {
    // A pushed turn has a short first life, which looks like a renewal long ago; but that cannot be older than
    // the hold.
    ttl(holder).map(|ttl| ttl.saturating_sub(holder.remaining).min(holder.held_for))
}

/// Whether a renewal is overdue. It is due after a third of the ttl, so two thirds mean trouble.
pub(crate) fn is_late(holder: &Holder) -> bool {
    let late = |ago: Duration| ttl(holder).is_some_and(|ttl| ago > ttl.saturating_mul(2) / 3);
    renewed_ago(holder).is_some_and(late)
}

/// When something began that has lasted this long, by this host's clock.
pub(crate) fn since(lasted: Duration) -> SystemTime {
    SystemTime::now().checked_sub(lasted).unwrap_or(SystemTime::UNIX_EPOCH)
}

/// `12:00:01Z`: the time of day, in UTC.
pub(crate) fn time_of_day(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_seconds(time).to_string();
    text.split_once('T').map_or_else(String::new, |(_, time)| time.to_owned())
}

/// `12:00:01.371Z`.
pub(crate) fn time_of_day_millis(time: SystemTime) -> String {
    let text = humantime::format_rfc3339_millis(time).to_string();
    text.split_once('T').map_or_else(String::new, |(_, time)| time.to_owned())
}

/// `held by web-3:4121 (./backup.sh, "nightly dump") for 3m12s`, and how many others hold it.
pub(crate) fn held_by(view: &View) -> Option<String> {
    let holder = oldest(view)?;
    let details = &holder.details;
    let reason = details.reason.as_deref().filter(|reason| !reason.is_empty());
    let about: Vec<_> = said(details, "cmd")
        .map(clean)
        .into_iter()
        .chain(reason.map(crate::output::quoted))
        .collect();
    let about = if about.is_empty() { String::new() } else { format!(" ({})", about.join(", ")) };
    let others = match view.holders.len() - 1 {
        0 => String::new(),
        1 => " and one other".into(),
        many => format!(" and {many} others"),
    };
    let held = match kind(view) {
        "leader" => "led",
        "once" => "run",
        _ => "held",
    };
    let (owner, lasted) = (clean(&details.owner), span(holder.held_for));
    Some(format!("{held} by {owner}{about}{others} for {lasted}"))
}

/// One name as an object.
pub(crate) fn object(view: &View, settings: &Settings) -> Object {
    let name = settings.short_name(view.name.as_str());
    let mut object = Object::versioned()
        .text("name", name)
        .text("kind", kind(view))
        .text("state", state_word(view))
        .number("capacity", u64::from(view.capacity));
    if let Some(holder) = oldest(view) {
        let fence = view.holders.iter().map(|holder| holder.fence).max().unwrap_or(holder.fence);
        let left = view.holders.iter().map(|holder| holder.remaining).min().unwrap_or_default();
        object = object.number("fence", fence.get());
        if kind(view) == "leader" {
            let value = holder.details.value.as_deref();
            object = object.number("term", fence.get()).maybe_text("value", value);
        }
        object = object.millis("held_ms", holder.held_for).millis("left_ms", left);
        object = times(object, holder);
    }
    if let Some(record) = &view.record {
        object = object.object("record", record_object(record));
    }
    let oldest_wait = view.waiters.iter().map(|waiter| waiter.waited).max().unwrap_or_default();
    object
        .list("holders", view.holders.iter().map(holder_object))
        .number("waiters", view.waiters.len() as u64)
        .millis("oldest_wait_ms", oldest_wait)
}

/// The note for a name: the leader's value, and the reason.
pub(crate) fn note(view: &View) -> String {
    let Some(Holder { details, .. }) = oldest(view) else { return String::new() };
    let said = details.value.as_deref().into_iter().chain(details.reason.as_deref());
    said.map(clean).collect::<Vec<_>>().join(", ")
}

/// The state for programs: one of a few words.
fn state_word(view: &View) -> &'static str {
    match (view.holders.is_empty(), view.holders.iter().any(is_late)) {
        (true, _) => idle(view),
        (false, true) => "stale",
        (false, false) => "held",
    }
}

fn times(object: Object, holder: &Holder) -> Object {
    match (renewed_ago(holder), ttl(holder)) {
        (Some(ago), Some(ttl)) => object.millis("renewed_ms_ago", ago).millis("ttl_ms", ttl),
        _ => object,
    }
}

fn holder_object(holder: &Holder) -> Object {
    let since = humantime::format_rfc3339_millis(since(holder.held_for)).to_string();
    let object = described(Object::new(), &holder.details)
        .text("since", &since)
        .number("fence", holder.fence.get())
        .number("weight", u64::from(holder.weight))
        .millis("held_ms", holder.held_for)
        .millis("left_ms", holder.remaining);
    with_meta(times(object, holder), &holder.details)
}

/// A waiter, as an object.
pub(crate) fn waiter_object(place: usize, waiter: &Waiter) -> Object {
    let object = Object::new().number("place", place as u64);
    let object = described(object, &waiter.details)
        .number("weight", u64::from(waiter.weight))
        .millis("waited_ms", waiter.waited);
    with_meta(object, &waiter.details)
}

/// Adds the fields that describe an owner.
pub(crate) fn described(object: Object, details: &Details) -> Object {
    let object = object.text("owner", &details.owner).maybe_text("host", said(details, "host"));
    let object = match said(details, "pid").and_then(|pid| pid.parse().ok()) {
        Some(pid) => object.number("pid", pid),
        None => object,
    };
    object
        .maybe_text("cmd", said(details, "cmd"))
        .maybe_text("value", details.value.as_deref())
        .maybe_text("reason", details.reason.as_deref())
}

fn with_meta(object: Object, details: &Details) -> Object {
    let own = |key: &str| !crate::args::claim::RESERVED.contains(&key);
    let mut meta = details.meta.iter().filter(|(key, _)| own(key)).peekable();
    if meta.peek().is_none() {
        return object;
    }
    object.object("meta", meta.fold(Object::new(), |all, (key, value)| all.text(key, value)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use tenure::Fence;
    use tenure::engine::Name;

    fn holder(ttl: Option<&str>, held_for: u64, remaining: u64, weight: u32) -> Holder {
        let mut details = Details::default();
        details.owner = "web-3:4121".into();
        details.meta.extend(ttl.map(|ttl| ("ttl".to_owned(), ttl.to_owned())));
        Holder {
            fence: Fence::new(7),
            weight,
            held_for: Duration::from_secs(held_for),
            remaining: Duration::from_secs(remaining),
            details: Arc::new(details),
        }
    }

    fn view(capacity: u32, holders: Vec<Holder>) -> View {
        let name = Name::new(Space::Lock, "backup").unwrap();
        View { name, capacity, holders, waiters: Vec::new(), record: None }
    }

    #[test]
    fn a_renewal_is_late_when_two_thirds_of_the_ttl_have_gone() {
        for (ttl, held_for, remaining, ago, late) in [
            (Some("30s"), 100, 28, Some(2), false),
            (Some("30s"), 100, 10, Some(20), false),
            (Some("30s"), 100, 9, Some(21), true),
            // A turn in its first life.
            (Some("30s"), 1, 2, Some(1), false),
            // A value that contradicts the engine, or cannot be parsed, is ignored.
            (Some("5s"), 100, 20, None, false),
            (Some("soon"), 100, 1, None, false),
            (None, 100, 1, None, false),
        ] {
            let holder = holder(ttl, held_for, remaining, 1);
            let said = renewed_ago(&holder).map(|ago| ago.as_secs());
            assert_eq!((said, is_late(&holder)), (ago, late), "{holder:?}");
            let state = if late { "! stale" } else { "held" };
            assert_eq!(super::state(&view(1, vec![holder])), state);
        }
    }

    #[test]
    fn states_say_what_is_left_of_a_name() {
        let of = |capacity, weights: &[u32]| {
            let holders = weights.iter().map(|weight| holder(None, 1, 20, *weight)).collect();
            let view = view(capacity, holders);
            (kind(&view), state(&view), is_free(&view))
        };
        assert_eq!(of(1, &[1]), ("lock", "held".into(), false));
        assert_eq!(of(1, &[]), ("lock", "free".into(), true));
        assert_eq!(of(5, &[2, 1]), ("sem", "3/5".into(), true));
        assert_eq!(of(5, &[4, 1]), ("sem", "5/5".into(), false));
        assert_eq!(of(RWLOCK, &[1, 1]), ("rwlock", "2 shared".into(), false));
        assert_eq!(of(RWLOCK, &[RWLOCK]), ("rwlock", "held".into(), false));
    }

    #[test]
    fn leaders_and_onces_are_not_taken_for_locks() {
        for (space, word, held, does) in
            [(Space::Election, "leader", "led", "leads"), (Space::Once, "once", "run", "runs")]
        {
            let mut view = view(1, vec![holder(None, 5, 20, 1)]);
            view.name = Name::new(space, "cron").unwrap();
            assert_eq!((kind(&view), &*state(&view)), (word, does));
            assert_eq!(held_by(&view).unwrap(), format!("{held} by web-3:4121 for 5s"));
            view.holders.clear();
            assert_eq!(state(&view), "free");
        }
    }
}
