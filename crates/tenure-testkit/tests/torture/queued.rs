//! A note in the worker's journal whenever a claim stands in line, at the engine or in its process.

use std::fmt::Debug;
use std::sync::Arc;

use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::set_global_default;
use tracing::{Metadata, Subscriber};

use crate::journal::{Event, Journal, now};

/// Hears the events of this process.
struct Listener(Arc<Journal>);

/// What an event is about.
#[derive(Default)]
struct Queued {
    is_it: bool,
    /// The worker's number of the request, which it gives as the owner.
    serial: Option<u64>,
}

/// Keeps notes from now on.
pub(crate) fn record(journal: Arc<Journal>) {
    set_global_default(Listener(journal)).expect("the only listener");
}

impl Subscriber for Listener {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event() && metadata.target().starts_with("tenure")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut queued = Queued::default();
        event.record(&mut queued);
        if let Queued { is_it: true, serial: Some(serial) } = queued {
            self.0.write(serial, &Event::Stood { at: now() });
        }
    }

    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

impl Visit for Queued {
    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "event" => self.is_it = value == "lock.queued",
            "owner" => self.serial = value.parse().ok(),
            _ => {}
        }
    }
}
