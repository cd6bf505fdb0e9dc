//! `tenure watch`: prints what happens, as it happens.
//!
//! It looks repeatedly and prints what has changed between two looks. What begins and ends
//! between them is not seen.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tenure::{Details, ErrorKind, View};
use tokio::time::sleep;

use crate::engine;
use crate::facts;
use crate::failure::{Exit, Stop};
use crate::output::clean;
use crate::output::json::Object;
use crate::settings::Settings;

/// Prints changes, until the reader leaves or the process is ended.
pub(crate) async fn run(
    prefix: &str,
    interval: Duration,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let mut before: Option<Look> = None;
    let mut reachable = true;
    loop {
        match tenure.list(settings.full_name(prefix)).await {
            Ok(views) => {
                if !reachable {
                    settings.notes().say("the engine is reachable again");
                    reachable = true;
                }
                let now = look(&views);
                for event in changes(before.as_ref(), &now) {
                    event.print(settings, out)?;
                }
                out.flush()?;
                before = Some(now);
            }
            // An engine that was reachable will be reachable again, and then the changes show.
            Err(error) if error.kind() == ErrorKind::Unavailable && before.is_some() => {
                if reachable {
                    let said = engine::reason(&error);
                    settings.notes().say(&format!("cannot reach the engine, retrying: {said}"));
                    reachable = false;
                }
            }
            Err(error) => return Err(engine::failure(&error, settings).into()),
        }
        sleep(interval).await;
    }
}

/// All holds and places, by name and by number: the fence of a hold, the ticket of a place.
type Look = BTreeMap<Key, Arc<Details>>;

/// Identifies a hold or a place.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Key {
    name: String,
    kind: &'static str,
    part: Part,
    number: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Part {
    Held,
    Waiting,
}

fn look(views: &[View]) -> Look {
    let mut look = Look::new();
    for view in views {
        let (name, kind) = (view.name.as_str(), facts::kind(view));
        let key = |part, number| Key { name: name.to_owned(), kind, part, number };
        for holder in &view.holders {
            look.insert(key(Part::Held, holder.fence.get()), holder.details.clone());
        }
        for waiter in &view.waiters {
            look.insert(key(Part::Waiting, waiter.ticket.get()), waiter.details.clone());
        }
    }
    look
}

/// An event, or the state at the first look.
#[derive(Debug)]
struct Event<'a> {
    what: &'static str,
    key: &'a Key,
    details: &'a Details,
}

impl<'a> Event<'a> {
    fn new(what: &'static str, (key, details): (&'a Key, &'a Arc<Details>)) -> Event<'a> {
        Event { what, key, details }
    }
}

/// The differences, ends before beginnings, as they must have happened.
fn changes<'a>(before: Option<&'a Look>, now: &'a Look) -> Vec<Event<'a>> {
    let Some(was) = before else {
        let word = |part| if part == Part::Held { "held" } else { "waiting" };
        return now.iter().map(|entry| Event::new(word(entry.0.part), entry)).collect();
    };
    let come: Vec<_> = now.iter().filter(|(key, _)| !was.contains_key(*key)).collect();
    // A claim that waited and now holds has not left; its details are the same as before.
    let mut moved_up: Vec<_> = come.iter().filter(|(key, _)| key.part == Part::Held).collect();
    let mut events = Vec::new();
    for (key, details) in was.iter().filter(|(key, _)| !now.contains_key(*key)) {
        let same = |(other, theirs): &&(&Key, &Arc<Details>)| {
            (&other.name, other.kind) == (&key.name, key.kind) && *theirs == details
        };
        match key.part {
            Part::Held => events.push(Event::new("released", (key, details))),
            Part::Waiting => match moved_up.iter().position(same) {
                Some(at) => drop(moved_up.swap_remove(at)),
                None => events.push(Event::new("left", (key, details))),
            },
        }
    }
    let word = |part| if part == Part::Held { "granted" } else { "queued" };
    events.extend(come.iter().map(|entry| Event::new(word(entry.0.part), *entry)));
    events
}

impl Event<'_> {
    fn print(&self, settings: &Settings, out: &mut dyn Write) -> io::Result<()> {
        let Event { what, key: Key { name, kind, part, number }, details } = self;
        let name = settings.short_name(name);
        if settings.json.value {
            let now = humantime::format_rfc3339_millis(SystemTime::now()).to_string();
            let object =
                Object::versioned().text("ts", &now).text("event", what).text("name", name);
            let object = object.text("kind", kind);
            let object = match part {
                Part::Held => object.number("fence", *number),
                Part::Waiting => object.number("ticket", *number),
            };
            return writeln!(out, "{}", facts::described(object, details).end());
        }
        let now = facts::time_of_day_millis(SystemTime::now());
        let fence = match part {
            Part::Held => format!("  fence {number}"),
            Part::Waiting => String::new(),
        };
        // A lock is the default.
        let kind = if *kind == "lock" { String::new() } else { format!(" ({kind})") };
        writeln!(out, "{now}  {what:<8}  {}{kind}  {}{fence}", clean(name), facts::who(details))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(entries: &[(&str, Part, u64, &str)]) -> Look {
        let details = |owner: &str| {
            let mut details = Details::default();
            details.owner = owner.to_owned();
            Arc::new(details)
        };
        let entry = |(name, part, number, owner): &(&str, Part, u64, &str)| {
            let key = Key { name: (*name).to_owned(), kind: "lock", part: *part, number: *number };
            (key, details(owner))
        };
        entries.iter().map(entry).collect()
    }

    fn told(before: Option<&Look>, now: &Look) -> Vec<String> {
        let say =
            |event: Event<'_>| format!("{} {} {}", event.what, event.key.name, event.details.owner);
        changes(before, now).into_iter().map(say).collect()
    }

    #[test]
    fn a_hand_over_is_a_release_and_a_grant_and_nobody_left() {
        use Part::{Held, Waiting};
        let before = seen(&[("a", Held, 1, "x"), ("a", Waiting, 2, "y"), ("a", Waiting, 3, "z")]);
        assert_eq!(told(None, &before), ["held a x", "waiting a y", "waiting a z"]);
        assert_eq!(told(Some(&before), &before), [""; 0]);
        let now = seen(&[("a", Held, 4, "y"), ("b", Waiting, 5, "w")]);
        let events = ["released a x", "left a z", "granted a y", "queued b w"];
        assert_eq!(told(Some(&before), &now), events);
    }

    #[test]
    fn of_two_that_look_the_same_one_moves_up_and_one_leaves() {
        use Part::{Held, Waiting};
        let before = seen(&[("a", Waiting, 2, "y"), ("a", Waiting, 3, "y")]);
        let now = seen(&[("a", Held, 4, "y")]);
        assert_eq!(told(Some(&before), &now), ["left a y", "granted a y"]);
    }
}
