//! Coming from another relay: its settings and metrics, and what stands for them here, are a table that is
//! held against the program and against the guide.
#![cfg(feature = "relay")]
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

mod stage;

use std::collections::BTreeSet;

use stage::Stage;

const TABLE: &str = include_str!("../../../docs/coming-from-relay.tsv");
const GUIDE: &str = include_str!("../../../docs/coming-from.md");

/// What has no counterpart here.
const NONE: &str = "none";
/// Where there is nothing to compare.
const NOTHING: &str = "-";

struct Row {
    kind: &'static str,
    theirs: &'static str,
    their_default: &'static str,
    ours: &'static str,
    our_default: &'static str,
}

fn rows() -> Vec<Row> {
    let lines = TABLE.lines().filter(|line| !line.starts_with('#'));
    let read = |line: &'static str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [kind, theirs, their_default, ours, our_default] = cells[..] else {
            panic!("not five cells: {line:?}");
        };
        Row { kind, theirs, their_default, ours, our_default }
    };
    lines.map(read).collect()
}

fn of_kind(kind: &str) -> Vec<Row> {
    let rows: Vec<Row> = rows().into_iter().filter(|row| row.kind == kind).collect();
    assert!(rows.len() > 5, "{kind}");
    rows
}

#[test]
fn every_setting_is_there_with_its_default() {
    let help = Stage::new("migration-help").run(&["relay", "--help"]).worked().to_owned();
    for row in of_kind("setting").iter().filter(|row| row.ours != NONE) {
        let is_it = |line: &&str| line.split_whitespace().any(|word| word == row.ours);
        let line = help.lines().filter(|line| line.trim_start().starts_with('-')).find(is_it);
        let line = line.unwrap_or_else(|| panic!("{}: no {}", row.theirs, row.ours));
        let variable = row.ours.trim_start_matches('-').to_uppercase().replace('-', "_");
        assert!(line.contains(&format!("[env: TENURE_{variable}]")), "{line}");
        if row.our_default != NOTHING {
            assert!(line.contains(&format!("[default: {}]", row.our_default)), "{line}");
        }
        // Where both have a time, it is the same one.
        if let Some(seconds) = row.our_default.strip_suffix('s') {
            let theirs: Option<u64> = row.their_default.parse().ok();
            let ours: Option<u64> = seconds.parse().ok();
            assert_eq!(theirs, ours.map(|seconds| seconds * 1000), "{}", row.theirs);
        }
    }
}

#[test]
fn the_guide_says_the_same() {
    let (_, section) = GUIDE.split_once("## A transaction relay").unwrap();
    let section = section.split("\n## ").next().unwrap();
    let lines: Vec<&str> = section.lines().filter(|line| line.starts_with('|')).collect();
    for Row { kind, theirs, ours, .. } in rows() {
        let names = |line: &&&str| {
            let mut words = line.split(|at: char| !at.is_alphanumeric() && at != '_');
            words.any(|word| word == theirs)
        };
        let line = lines.iter().find(names).unwrap_or_else(|| panic!("the guide has no {theirs}"));
        let there = match (kind, ours) {
            (_, NONE) => "none".to_owned(),
            ("setting", "--url") => "TENURE_URL".to_owned(),
            _ => format!("`{ours}"),
        };
        assert!(line.contains(&there), "{theirs} is {ours} in the table, and in the guide: {line}");
    }
    // And it names none that the table does not.
    let known: BTreeSet<&str> = rows().iter().map(|row| row.theirs).collect();
    let is_theirs = |word: &&str| {
        let is_setting = word.len() > 8 && word.contains('_') && !word.starts_with("TENURE_");
        let is_upper = word.chars().all(|at| at.is_ascii_uppercase() || at == '_');
        (is_setting && is_upper) || word.starts_with("rpc_relay_")
    };
    for line in lines {
        let words = line.split(|at: char| !at.is_alphanumeric() && at != '_');
        for word in words.filter(is_theirs) {
            assert!(known.contains(word), "{word} is in the guide and not in the table");
        }
    }
}
