//! The results, as a table for people and as objects for programs.

use std::io::{self, Write};
use std::time::Duration;

use crate::args::Part;
use crate::output::json::Object;
use crate::output::{Paint, clean, table};

/// One figure.
#[derive(Clone, Debug)]
pub(super) struct Figure {
    key: &'static str,
    label: &'static str,
    value: f64,
    unit: Unit,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Count,
    Rate,
    /// In nanoseconds.
    Time,
    Share,
    Percent,
}

impl Figure {
    pub(super) fn count(key: &'static str, label: &'static str, value: usize) -> Figure {
        Figure { key, label, value: value as f64, unit: Unit::Count }
    }

    /// A count divided by a time in nanoseconds.
    pub(super) fn rate(key: &'static str, label: &'static str, count: usize, nanos: u64) -> Figure {
        let value = if nanos == 0 { 0.0 } else { count as f64 / (nanos as f64 / 1e9) };
        Figure { key, label, value, unit: Unit::Rate }
    }

    /// A time in nanoseconds.
    pub(super) fn time(key: &'static str, label: &'static str, nanos: u64) -> Figure {
        Figure { key, label, value: nanos as f64, unit: Unit::Time }
    }

    pub(super) fn share(key: &'static str, label: &'static str, value: f64) -> Figure {
        Figure { key, label, value, unit: Unit::Share }
    }

    pub(super) fn percent(key: &'static str, label: &'static str, value: f64) -> Figure {
        Figure { key, label, value, unit: Unit::Percent }
    }

    /// Whether it has this key, and is not zero.
    pub(super) fn is_some(&self, key: &str) -> bool {
        self.key == key && self.value > 0.0
    }

    fn shown(&self) -> String {
        let value = self.value;
        match self.unit {
            Unit::Count => thousands(value),
            Unit::Rate if value < 100.0 => format!("{value:.1}"),
            Unit::Rate => thousands(value),
            Unit::Share => format!("{value:.3}"),
            Unit::Percent => format!("{value:.2} %"),
            Unit::Time if value < 1e6 => format!("{:.1} us", value / 1e3),
            Unit::Time if value < 1e8 => format!("{:.2} ms", value / 1e6),
            Unit::Time => format!("{:.0} ms", value / 1e6),
        }
    }

    fn write(&self, object: Object) -> Object {
        match self.unit {
            Unit::Count => object.number(self.key, self.value as u64),
            Unit::Rate => object.decimal(self.key, self.value, 1),
            Unit::Time => object.decimal(self.key, self.value / 1e3, 1),
            Unit::Share | Unit::Percent => object.decimal(self.key, self.value, 3),
        }
    }
}

/// The results of one part, or why there are none.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) part: Part,
    pub(super) tenure: Vec<Figure>,
    pub(super) naive: Option<Vec<Figure>>,
    /// Why something is missing.
    pub(super) left_out: Option<String>,
}

impl Measured {
    /// As an object.
    pub(super) fn object(&self, engine: &str, length: Duration) -> Object {
        let write = |figures: &[Figure]| {
            figures.iter().fold(Object::new(), |object, figure| figure.write(object))
        };
        let mut object = Object::versioned()
            .text("part", self.part.name())
            .text("engine", engine)
            .number("seconds", length.as_secs());
        if !self.tenure.is_empty() {
            object = object.object("tenure", write(&self.tenure));
        }
        if let Some(naive) = &self.naive {
            object = object.object("naive", write(naive));
        }
        object.maybe_text("left_out", self.left_out.as_deref())
    }

    fn rows(&self, with_naive: bool) -> Vec<[String; 4]> {
        let mut rows = Vec::new();
        let dash = || if with_naive { "-".to_owned() } else { String::new() };
        for figure in &self.tenure {
            let naive = self.naive.iter().flatten().find(|naive| naive.key == figure.key);
            let part = if rows.is_empty() { self.part.name() } else { "" };
            rows.push([
                part.to_owned(),
                figure.label.to_owned(),
                figure.shown(),
                naive.map_or_else(dash, Figure::shown),
            ]);
        }
        if rows.is_empty() {
            rows.push([self.part.name().to_owned(), "left out".into(), "-".into(), dash()]);
        }
        rows
    }
}

/// Prints the table, with its notes.
pub(super) fn print(
    all: &[Measured],
    heading: &str,
    paint: Paint,
    out: &mut dyn Write,
) -> io::Result<()> {
    writeln!(out, "{heading}")?;
    let with_naive = all.iter().any(|measured| measured.naive.is_some());
    let naive = if with_naive { "NAIVE" } else { "" };
    let heading = ["PART", "FIGURE", "TENURE", naive].map(str::to_owned);
    let rows = all.iter().flat_map(|measured| measured.rows(with_naive));
    let rows: Vec<_> = std::iter::once(heading).chain(rows).collect();
    table::print(&rows, paint, out)?;
    let mut said: Option<&str> = None;
    for (why, part) in all.iter().filter_map(|one| Some((one.left_out.as_deref()?, one.part))) {
        // A note that applies to all parts is printed once.
        if said != Some(why) {
            writeln!(out, "{}: {}", part.name(), clean(why))?;
        }
        said = Some(why);
    }
    Ok(())
}

/// A whole number with separated thousands.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn measured(naive: Option<Vec<Figure>>) -> Measured {
        let tenure = vec![
            Figure::rate("pairs_per_second", "pairs a second", 12_345, 1_000_000_000),
            Figure::time("p50_us", "a pair, p50", 1_234_567),
            Figure::percent("cpu_percent", "CPU", 0.3),
        ];
        Measured { part: Part::Pairs, tenure, naive, left_out: None }
    }

    #[test]
    fn the_table_has_a_column_for_what_it_is_compared_with_only_where_that_was_measured() {
        let text = |all: &[Measured]| {
            let mut out = Vec::new();
            print(all, "heading", Paint::PLAIN, &mut out).unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(
            text(&[measured(None)]),
            "heading\n\
             PART   FIGURE          TENURE\n\
             pairs  pairs a second  12,345\n       \
                    a pair, p50     1.23 ms\n       \
                    CPU             0.30 %\n"
        );
        let naive = vec![Figure::time("p50_us", "a pair, p50", 50_000)];
        assert!(text(&[measured(Some(naive))]).contains("a pair, p50     1.23 ms  50.0 us\n"));
        let nothing = Measured {
            part: Part::Recovery,
            tenure: Vec::new(),
            naive: None,
            left_out: Some("no processes".into()),
        };
        assert!(text(&[nothing]).ends_with("recovery  left out  -\nrecovery: no processes\n"));
    }

    #[test]
    fn an_object_has_the_figures_of_each_lock_apart() {
        let naive = vec![Figure::count("tasks", "tasks", 1)];
        assert_eq!(
            measured(Some(naive)).object("memory", Duration::from_secs(2)).end(),
            "{\"v\":1,\"part\":\"pairs\",\"engine\":\"memory\",\"seconds\":2,\"tenure\":\
             {\"pairs_per_second\":12345.0,\"p50_us\":1234.6,\"cpu_percent\":0.300},\
             \"naive\":{\"tasks\":1}}"
        );
    }

    #[test]
    fn thousands_are_apart() {
        for (value, text) in [(0.0, "0"), (999.0, "999"), (1000.0, "1,000"), (1e6, "1,000,000")] {
            assert_eq!(thousands(value), text);
        }
    }
}
