//! What docs/observability.md says there is, is there; and what there is, it says.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tenure::metrics::{BUCKETS, METRICS, MetricKind, SHARES};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The cells of the rows of all tables of a page, without the marks of code.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    page.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

#[test]
fn the_table_of_metrics_is_that_of_the_code() {
    let page = read("../../docs/observability.md");
    let mut written = BTreeMap::new();
    for row in rows(&page).iter().filter(|row| row[0].starts_with("`tenure_")) {
        let labels: Vec<_> = row[2].split_whitespace().map(str::to_owned).collect();
        let twice = written.insert(row[0].trim_matches('`').to_owned(), (row[1].clone(), labels));
        assert_eq!(twice, None, "{row:?}");
    }
    let known = METRICS.iter().map(|metric| {
        let kind = match metric.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
            MetricKind::Histogram => "histogram",
        };
        let labels = metric.labels.iter().map(|label| (*label).to_owned()).collect();
        (metric.name.to_owned(), (kind.to_owned(), labels))
    });
    assert_eq!(written, known.collect());
}

/// The names that the sources say are exactly those of the page.
#[test]
fn the_table_of_events_is_that_of_the_code() {
    let page = read("../../docs/observability.md");
    let events = |cell: &str| {
        let names = cell.split('`').skip(1).step_by(2);
        names.filter(|name| name.contains('.')).map(str::to_owned).collect::<Vec<_>>()
    };
    let levels = ["trace", "debug", "info", "warn", "error"];
    let is_level = |cell: &str| cell.split(", ").all(|level| levels.contains(&level));
    let written: BTreeSet<_> = rows(&page)
        .iter()
        .filter(|row| is_level(&row[1]))
        .flat_map(|row| events(&row[0]))
        .collect();
    let sources = [
        "observe.rs",
        "observe/general.rs",
        "observe/queue.rs",
        "observe/waiting.rs",
        "observe/worker.rs",
    ];
    let sources = sources.map(|source| read(&format!("src/{source}"))).join("\n");
    // Marks that begin or end no text.
    let sources = sources.replace(r#"'"'"#, "").replace(r#"\""#, "");
    let families = [
        "lock.",
        "leader.",
        "once.",
        "ttl.",
        "engine.",
        "fence.",
        "worker.",
        "connection.",
        "push.",
        "reports.",
        "watchdog.",
    ];
    let said: BTreeSet<_> = sources
        .split('"')
        .skip(1)
        .step_by(2)
        .filter(|text| families.iter().any(|family| text.starts_with(family)))
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_lowercase() || b"._".contains(&byte)))
        .map(str::to_owned)
        .collect();
    assert_eq!(written, said);
}

#[test]
fn buckets_rise() {
    assert!(BUCKETS.is_sorted() && SHARES.is_sorted());
    let ratios = METRICS.iter().filter(|metric| metric.name.ends_with("_ratio"));
    assert_eq!(ratios.count(), 1);
    for metric in METRICS.iter().filter(|metric| metric.name.ends_with("_seconds")) {
        assert!(metric.in_seconds, "{}", metric.name);
    }
}
