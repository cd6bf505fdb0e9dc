//! Keeps everything that the process says through `tracing`: events and spans, with their fields.
//!
//! The watchdog speaks from a thread of its own, so the keeper is the process's; tests tell their
//! lines apart by the name of the lock.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::until;

struct Keeper;

/// An event, or a span with all that was recorded on it.
#[derive(Clone, Debug)]
pub(crate) struct Line {
    pub(crate) level: Level,
    pub(crate) target: &'static str,
    /// The name of a span; empty for an event.
    pub(crate) span: &'static str,
    /// The span that an event was said in.
    pub(crate) within: Option<usize>,
    pub(crate) fields: BTreeMap<&'static str, String>,
    /// How many know the span; nobody when it is closed.
    known: usize,
}

static LINES: Mutex<Vec<Line>> = Mutex::new(Vec::new());

thread_local! {
    static ENTERED: RefCell<Vec<usize>> = const { RefCell::new(Vec::new()) };
}

/// From now on everything is kept.
pub(crate) fn keep() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| tracing::subscriber::set_global_default(Keeper).expect("the only one"));
}

pub(crate) fn lines() -> MutexGuard<'static, Vec<Line>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The event of that name, as soon as it was said.
pub(crate) fn written(name: &str, event: &str) -> Line {
    let is_it = |line: &&Line| line.is("name", name) && line.is("event", event);
    found(&format!("{event} of {name}"), || lines().iter().find(is_it).cloned())
}

/// The span of that name, as soon as it is closed.
pub(crate) fn closed(name: &str, span: &str) -> Line {
    let is_it = |line: &&Line| line.span == span && line.is("tenure.name", name) && line.known == 0;
    found(&format!("the closed span {span} of {name}"), || lines().iter().find(is_it).cloned())
}

fn found(what: &str, find: impl Fn() -> Option<Line>) -> Line {
    until(&format!("{what} in {:#?}", *lines()), || find().is_some());
    find().expect("it was there")
}

impl Line {
    pub(crate) fn is(&self, field: &str, value: &str) -> bool {
        self.fields.get(field).is_some_and(|known| known == value)
    }

    fn new(metadata: &Metadata<'static>) -> Line {
        let span = if metadata.is_span() { metadata.name() } else { "" };
        let (level, target) = (*metadata.level(), metadata.target());
        let within = ENTERED.with_borrow(|entered| entered.last().copied());
        Line { level, target, span, within, fields: BTreeMap::new(), known: 1 }
    }
}

#[track_caller]
pub(crate) fn expect(line: &Line, level: Level, fields: &[(&str, &str)]) {
    assert_eq!(line.level, level, "{line:?}");
    for (field, value) in fields {
        assert_eq!(line.fields.get(field).map(String::as_str), Some(*value), "{field}: {line:?}");
    }
}

fn index(id: &Id) -> usize {
    id.into_u64() as usize - 1
}

impl Subscriber for Keeper {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("tenure")
    }

    fn new_span(&self, span: &Attributes<'_>) -> Id {
        let mut line = Line::new(span.metadata());
        span.record(&mut line);
        let mut lines = lines();
        lines.push(line);
        Id::from_u64(lines.len() as u64)
    }

    fn record(&self, id: &Id, values: &Record<'_>) {
        values.record(&mut lines()[index(id)]);
    }

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut line = Line::new(event.metadata());
        event.record(&mut line);
        lines().push(line);
    }

    fn enter(&self, id: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.push(index(id)));
    }

    fn exit(&self, _: &Id) {
        ENTERED.with_borrow_mut(|entered| entered.truncate(entered.len() - 1));
    }

    fn clone_span(&self, id: &Id) -> Id {
        lines()[index(id)].known += 1;
        id.clone()
    }

    fn try_close(&self, id: Id) -> bool {
        let span = &mut lines()[index(&id)];
        span.known -= 1;
        span.known == 0
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.fields.insert(field.name(), format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name(), value.to_owned());
    }
}
