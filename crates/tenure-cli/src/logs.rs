//! The library's log on standard error: one line of text, or one JSON object, per event.
//!
//! Values are made harmless here as everywhere: owners, reasons and names are other people's text.

use std::fmt::{self, Debug, Write as _};
use std::io;
use std::time::SystemTime;

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::args::Source;
use crate::output::{clean, json::Object};
use crate::settings::{LogFormat, Settings};

/// Starts logging, at the given level or the command's default. Called once, before the first thread.
pub(crate) fn start(settings: &Settings, default: LevelFilter) {
    let level = match settings.log_level.source {
        Source::Default => default,
        _ => settings.log_level.value,
    };
    let logger = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(io::stderr)
        // Otherwise it would report on standard error that standard error is gone, and panic.
        .log_internal_errors(false)
        .event_format(Lines(settings.log_format.value))
        .finish();
    // It only fails if there is a subscriber already, which there is not.
    let _ = tracing::subscriber::set_global_default(logger);
}

struct Lines(LogFormat);

impl<S, N> FormatEvent<S, N> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        // Events of other libraries are not for operators, and may contain secrets.
        if !event.metadata().target().starts_with("tenure") {
            return Ok(());
        }
        let now = humantime::format_rfc3339_millis(SystemTime::now());
        let level = event.metadata().level();
        match self.0 {
            LogFormat::Text => {
                let mut line = Text::default();
                event.record(&mut line);
                let Text { event, fields, message } = line;
                let colon = if message.is_empty() { "" } else { ": " };
                writeln!(writer, "{now} {level:>5} {event}{fields}{colon}{message}")
            }
            LogFormat::Json => {
                let begun = Object::new()
                    .text("ts", &now.to_string())
                    .text("level", &level.as_str().to_lowercase());
                let mut line = Json(Some(begun));
                event.record(&mut line);
                writeln!(writer, "{}", line.0.map(Object::end).unwrap_or_default())
            }
        }
    }
}

/// A line that is being built: the event, then its fields, then the message.
#[derive(Default)]
struct Text {
    event: String,
    fields: String,
    message: String,
}

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record_str(field, &format!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        let value = clean(value);
        match field.name() {
            "event" => self.event = value,
            "message" => self.message = value,
            key => {
                let bare = !value.is_empty() && !value.contains([' ', '"', '=']);
                let value = if bare { value } else { format!("{value:?}") };
                // Writing to a string cannot fail.
                let _ = write!(self.fields, " {key}={value}");
            }
        }
    }
}

/// An object that is being built.
struct Json(Option<Object>);

impl Json {
    fn add(&mut self, add: impl FnOnce(Object) -> Object) {
        self.0 = self.0.take().map(add);
    }
}

impl Visit for Json {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        let text = format!("{value:?}");
        match field.name() {
            // The library writes the pairs as an object.
            "meta" if text.starts_with('{') => self.add(|object| object.json("meta", &text)),
            key => self.add(|object| object.text(key, &text)),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.add(|object| object.text(field.name(), value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.add(|object| object.number(field.name(), value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.add(|object| object.json(field.name(), &value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        self.add(|object| object.decimal(field.name(), value, 3));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.add(|object| object.flag(field.name(), value));
    }
}
