//! A log for people, shared by the examples: one line per event, on standard output.
//!
//! The events of locks are an audit trail: ACQUIRED, REJECTED, RELEASED, RENEWED, WAITING, and WARN with its
//! reason. Other events are shown unchanged.

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::io::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;
use tracing_subscriber::prelude::*;

/// Shows everything from now on. Events of locks have the level debug.
pub(crate) fn start() {
    let shown = Targets::new().with_default(Level::INFO).with_target("tenure", Level::DEBUG);
    tracing_subscriber::registry().with(Lines.with_filter(shown)).init();
}

struct Lines;

impl<S: Subscriber> Layer<S> for Lines {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut line = Line::default();
        event.record(&mut line);
        let Line { event: what, name, rest, message } = line;
        let word = match what.as_str() {
            "lock.granted" => "ACQUIRED",
            "lock.busy" => "REJECTED",
            "lock.released" => "RELEASED",
            "lock.renewed" => "RENEWED",
            "lock.queued" => "WAITING",
            _ => event.metadata().level().as_str(),
        };
        // Leaves out a word that repeats another.
        let what = if word == event.metadata().level().as_str() { what } else { String::new() };
        let words = [word, &what, &name, &message, &rest];
        let words: Vec<_> = words.into_iter().filter(|word| !word.is_empty()).collect();
        // A closed pipe must not end the program.
        let _ = writeln!(std::io::stdout(), "{} {}", time(), words.join(" "));
    }
}

#[derive(Default)]
struct Line {
    event: String,
    name: String,
    message: String,
    rest: String,
}

impl Line {
    fn take(&mut self, field: &Field, value: String) {
        match field.name() {
            "event" => self.event = value,
            "name" => self.name = value,
            "message" => self.message = value,
            // The same on every line of a process, or part of the name.
            "engine" | "group" | "kind" | "owner" | "trace" => {}
            "meta" => {
                let pairs: BTreeMap<String, String> =
                    serde_json::from_str(&value).unwrap_or_default();
                pairs.iter().for_each(|(key, value)| self.add(format!("{key}={value}")));
            }
            name => self.add(format!("{name}={value}")),
        }
    }

    fn add(&mut self, words: String) {
        if !words.is_empty() {
            let between = if self.rest.is_empty() { "" } else { " " };
            let _ = write!(self.rest, "{between}{words}");
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, value.to_owned());
    }
}

/// The time of day, in UTC.
fn time() -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let (seconds, millis) = (now.as_secs() % 86_400, now.subsec_millis());
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    format!("{hours:02}:{minutes:02}:{seconds:02}.{millis:03}")
}
