//! docs/observability.md lists what there is, and only that.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use tenure::metrics::{BUCKETS, METRICS, MetricKind, SHARES};

fn read(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(root.join(path)).unwrap()
}

/// The cells of all table rows of a page, without code marks.
fn rows(page: &str) -> Vec<Vec<String>> {
    let cells =
        |line: &str| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect();
    page.lines().filter(|line| line.starts_with("| `")).map(cells).collect()
}

#[test]
fn the_table_of_metrics_matches_the_code() {
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

/// The names in the sources are exactly those on the page.
#[test]
fn the_table_of_events_matches_the_code() {
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
    // Quotation marks that neither begin nor end a text.
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

/// The names of metrics in a query, with the labels that it selects or groups by.
fn metrics_of(query: &str) -> (BTreeSet<&str>, BTreeSet<&str>) {
    let is_word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let names = query.split(|letter| !is_word(letter)).filter(|word| word.starts_with("tenure_"));
    let selected = query.match_indices(['=', '!']).filter_map(|(at, _)| {
        let label = query[..at].rsplit(|letter| !is_word(letter)).next()?;
        (!label.is_empty()).then_some(label)
    });
    let grouped = query
        .split("by (")
        .skip(1)
        .flat_map(|rest| rest.split(')').next().unwrap_or_default().split(',').map(str::trim));
    (names.collect(), selected.chain(grouped).collect())
}

/// Every metric and every label that is asked for is reported.
fn is_reported(query: &str) {
    let (names, labels) = metrics_of(query);
    assert!(!names.is_empty(), "{query}");
    let find = |name: &str| {
        let name = name.strip_suffix("_bucket").unwrap_or(name);
        METRICS.iter().find(|metric| metric.name == name)
    };
    let known = names.iter().map(|name| find(name).unwrap_or_else(|| panic!("{name}: {query}")));
    let known: BTreeSet<_> = known.flat_map(|metric| metric.labels).copied().collect();
    // Prometheus adds these itself.
    let own = BTreeSet::from(["instance", "job", "le"]);
    let unknown: Vec<_> =
        labels.iter().filter(|it| !known.contains(*it) && !own.contains(*it)).collect();
    assert!(unknown.is_empty(), "{unknown:?}: {query}");
}

#[test]
fn the_board_shows_what_is_reported() {
    fn visit(value: &serde_json::Value, count: &mut usize) {
        if let Some(query) = value.get("expr").and_then(|query| query.as_str()) {
            is_reported(query);
            *count += 1;
        }
        let members = value.as_object().into_iter().flat_map(|members| members.values());
        let items = value.as_array().into_iter().flatten();
        members.chain(items).for_each(|inner| visit(inner, count));
    }
    let board = serde_json::from_str(&read("../../contrib/grafana/tenure.json")).unwrap();
    let mut count = 0;
    visit(&board, &mut count);
    assert!(count > 15, "{count} queries");
}

#[test]
fn each_alert_uses_what_is_reported_and_has_a_section() {
    let rules = read("../../contrib/prometheus/tenure.rules.yml");
    let page = read("../../docs/alerts.md");
    let sections: Vec<_> = page.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    let alerts: Vec<_> = rules.split("- alert: ").skip(1).collect();
    let names = alerts.iter().map(|alert| alert.lines().next().unwrap());
    assert_eq!(names.collect::<Vec<_>>(), sections);
    for (alert, section) in alerts.iter().zip(sections) {
        let query = alert.split("expr:").nth(1).unwrap();
        // What follows is at the same depth, or deeper by less than a folded line.
        let ends = ["\n        for:", "\n        labels:"].map(|end| query.find(end));
        is_reported(&query[..ends.into_iter().flatten().min().unwrap()]);
        let link = format!("runbook: docs/alerts.md#{}", section.to_lowercase());
        assert!(alert.contains(&link), "{alert}");
    }
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
