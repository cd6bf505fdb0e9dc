//! What this server has seen lately. It is not the whole truth: other servers have seen other things.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use serde_json::{Map, Value, json};
use tenure::engine::{Fence, Moment, Name, Space, SystemWorld, World};
use tokio::sync::watch;

use crate::wire::Kind;

/// How many events are remembered.
const MOST: usize = 10_000;

/// A ring of events.
pub(crate) struct Events {
    ring: Mutex<Ring>,
    /// The number of the last event, for those who wait for the next.
    last: watch::Sender<u64>,
}

#[derive(Default)]
struct Ring {
    /// Their numbers follow each other.
    events: VecDeque<Arc<Observed>>,
    last: u64,
}

/// Something that happened.
#[derive(Debug)]
pub(crate) struct Observed {
    pub(crate) id: u64,
    at: Moment,
    what: &'static str,
    name: Name,
    owner: String,
    fence: Option<Fence>,
    note: Option<String>,
    /// What all readers are told of it alike, made for the first of them.
    text: OnceLock<String>,
}

impl Default for Events {
    fn default() -> Events {
        // Numbers of another run must not look like those of this one.
        let began = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        let last = began.map_or(0, |since| since.as_millis() as u64) << 8 & ((1 << 53) - 1);
        Events {
            ring: Mutex::new(Ring { events: VecDeque::new(), last }),
            last: watch::Sender::new(last),
        }
    }
}

impl Events {
    fn ring(&self) -> MutexGuard<'_, Ring> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn add(
        &self,
        what: &'static str,
        name: &Name,
        owner: &str,
        fence: Option<Fence>,
        note: Option<&str>,
    ) {
        let mut ring = self.ring();
        ring.last += 1;
        let id = ring.last;
        let (owner, note) = (owner.to_owned(), note.map(str::to_owned));
        ring.events.push_back(Arc::new(Observed {
            id,
            at: SystemWorld.now(),
            what,
            name: name.clone(),
            owner,
            fence,
            note,
            text: OnceLock::new(),
        }));
        if ring.events.len() > MOST {
            ring.events.pop_front();
        }
        drop(ring);
        if self.last.receiver_count() > 0 {
            self.last.send_replace(id);
        }
    }

    /// The events after `id`, and whether some before them are missing.
    pub(crate) fn after(
        &self,
        id: u64,
        fits: impl Fn(&Observed) -> bool,
        most: usize,
    ) -> (Vec<Arc<Observed>>, bool, u64) {
        let ring = self.ring();
        let first = ring.events.front().map_or(ring.last + 1, |event| event.id);
        let is_gap = id.saturating_add(1) < first || id > ring.last;
        let known = if id > ring.last { 0 } else { (id + 1).saturating_sub(first) };
        let unknown = ring.events.iter().skip(known as usize);
        let events: Vec<_> = unknown.filter(|event| fits(event)).take(most).cloned().collect();
        let seen =
            if events.len() == most { events.last().map_or(id, |last| last.id) } else { ring.last };
        (events, is_gap, seen)
    }

    pub(crate) fn last(&self) -> u64 {
        self.ring().last
    }

    pub(crate) fn watch(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    /// What is remembered of one name, the latest last.
    pub(crate) fn of(&self, name: &Name, most: usize) -> Vec<Arc<Observed>> {
        let ring = self.ring();
        let mut events: Vec<_> = ring
            .events
            .iter()
            .rev()
            .filter(|event| event.name == *name)
            .take(most)
            .cloned()
            .collect();
        events.reverse();
        events
    }
}

impl Observed {
    pub(crate) fn is_in(&self, space: Option<Space>, prefix: &str) -> bool {
        space.is_none_or(|space| self.name.space() == space)
            && self.name.as_str().starts_with(prefix)
    }

    pub(crate) fn to_json(&self, now: Moment) -> Value {
        let mut fields = self.fields();
        fields.insert("id".to_owned(), json!(self.id));
        fields.insert("ago_ms".to_owned(), json!(self.ago(now)));
        Value::Object(fields)
    }

    /// The same as text, for one of many readers.
    pub(crate) fn to_text(&self, now: Moment) -> String {
        let fields = || Value::Object(self.fields()).to_string().split_off(1);
        let text = self.text.get_or_init(fields);
        format!(r#"{{"id":{},"ago_ms":{},{text}"#, self.id, self.ago(now))
    }

    fn ago(&self, now: Moment) -> u64 {
        self.at.until(now).as_millis() as u64
    }

    /// All but the number and the time.
    fn fields(&self) -> Map<String, Value> {
        let mut fields = Map::new();
        for (field, value) in [
            ("event", json!(self.what)),
            ("name", json!(self.name.as_str())),
            ("kind", json!(Kind::of(&self.name).as_str())),
            ("owner", json!(self.owner)),
        ] {
            fields.insert(field.to_owned(), value);
        }
        if let Some(fence) = self.fence {
            fields.insert("fence".to_owned(), json!(fence.get()));
        }
        if let Some(note) = &self.note {
            fields.insert("note".to_owned(), json!(note));
        }
        fields
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(events: &Events, owner: &str) -> u64 {
        let name = Name::new(Space::Lock, "x").unwrap();
        events.add("granted", &name, owner, Some(Fence::new(7)), Some("because"));
        events.last()
    }

    #[test]
    fn a_reader_gets_what_came_after_the_event_that_it_knows() {
        let events = Events::default();
        let before = events.last();
        let all: Vec<_> = (0..MOST + 10).map(|at| add(&events, &at.to_string())).collect();
        let last = events.last();
        let ids = |(found, is_gap, seen): (Vec<Arc<Observed>>, bool, u64)| {
            (found.iter().map(|event| event.id).collect::<Vec<_>>(), is_gap, seen)
        };
        let everyone = |_: &Observed| true;
        assert_eq!(ids(events.after(last, everyone, 5)), (vec![], false, last));
        assert_eq!(ids(events.after(last - 2, everyone, 5)), (vec![last - 1, last], false, last));
        assert_eq!(ids(events.after(all[9], everyone, 1)), (vec![all[10]], false, all[10]));
        let one = |event: &Observed| event.owner == "10005";
        assert_eq!(ids(events.after(all[9], one, 5)), (vec![all[10_005]], false, last));
        // The first ones are forgotten; nobody knows a number of another run.
        for unknown in [before, all[8], last + 1, u64::MAX] {
            assert_eq!(ids(events.after(unknown, everyone, 1)), (vec![all[10]], true, all[10]));
        }
    }

    #[test]
    fn readers_of_the_text_and_of_the_fields_are_told_the_same() {
        let events = Events::default();
        let id = add(&events, "web-\"3\"");
        let (found, ..) = events.after(id - 1, |_| true, 1);
        let now = SystemWorld.now();
        let text: Value = serde_json::from_str(&found[0].to_text(now)).unwrap();
        assert_eq!(text, found[0].to_json(now));
        assert_eq!(text["owner"], "web-\"3\"");
    }
}
