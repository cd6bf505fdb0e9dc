//! What this server has seen lately. It is not the whole truth: other servers have seen other things.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

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
    events: VecDeque<Observed>,
    last: u64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(crate) struct Observed {
    pub(crate) id: u64,
    at: Moment,
    what: &'static str,
    name: Name,
    owner: String,
    fence: Option<Fence>,
    note: Option<String>,
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
        ring.events.push_back(Observed {
            id,
            at: SystemWorld.now(),
            what,
            name: name.clone(),
            owner,
            fence,
            note,
        });
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
    ) -> (Vec<Observed>, bool, u64) {
        let ring = self.ring();
        let first = ring.events.front().map_or(ring.last + 1, |event| event.id);
        let is_gap = id.saturating_add(1) < first || id > ring.last;
        let from = if id > ring.last { 0 } else { id };
        let events: Vec<_> = ring
            .events
            .iter()
            .filter(|event| event.id > from && fits(event))
            .take(most)
            .cloned()
            .collect();
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
    pub(crate) fn of(&self, name: &Name, most: usize) -> Vec<Observed> {
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
        let mut fields = Map::new();
        for (field, value) in [
            ("id", json!(self.id)),
            ("ago_ms", json!(self.at.until(now).as_millis() as u64)),
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
        Value::Object(fields)
    }

    pub(crate) fn what(&self) -> &'static str {
        self.what
    }
}
