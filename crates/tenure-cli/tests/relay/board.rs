//! The Grafana board shows what the relay really reports: every metric, and every label that it uses.

use std::collections::{BTreeMap, BTreeSet};

use regex_lite::Regex;
use serde_json::Value;
use tenure_testkit::node::Conduct;

use super::{call, call_with, get, node, send, start};
use crate::sandbox::{Sandbox, eventually};

const BOARD: &str = include_str!("../../../../contrib/grafana/tenure-relay.json");

/// Every query of the board.
fn queries(value: &Value, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(query)) = members.get("expr") {
                found.push(query.clone());
            }
            members.values().for_each(|member| queries(member, found));
        }
        Value::Array(items) => items.iter().for_each(|item| queries(item, found)),
        _ => {}
    }
}

/// The metrics that are told, each with its labels.
fn told(metrics: &str) -> BTreeMap<String, BTreeSet<String>> {
    let label = Regex::new(r#"([a-z_]+)=""#).unwrap();
    let mut told: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for line in metrics.lines().filter(|line| line.starts_with("tenure_")) {
        let name = line.split(['{', ' ']).next().unwrap();
        let labels = label.captures_iter(line).map(|label| label[1].to_owned());
        told.entry(name.to_owned()).or_default().extend(labels);
    }
    told
}

#[test]
fn the_board_shows_what_the_relay_tells() {
    let (node, sandbox) = (node(), Sandbox::new("relay-board"));
    let token = "4f7d0a1e9b6c4c1f8a52d3e6b7f80911";
    // So that each stands in the lane by itself.
    let (_relay, address) = start(&sandbox, &["--upstream", &node.url(), "--gap", "refuse"]);
    let sandbox = sandbox.with("TENURE_TOKENS", &format!("shop {token} rate=1"));
    let (_limited, limited) = start(&sandbox, &["--upstream", &node.url()]);
    // One event of each kind, so that metrics appear which are reported only after an event.
    node.next("eth_sendRawTransaction", Conduct::Hang);
    let sends = || {
        let address = address.clone();
        std::thread::spawn(move || send(&address))
    };
    let first = sends();
    eventually("the first is with the node", || node.hanging() == 1);
    let second = sends();
    let waits = r#"tenure_waiters{"#;
    eventually("the second waits", || get(&address, "/metrics").contains(waits));
    node.let_go();
    first.join().unwrap();
    second.join().unwrap();
    node.next("test_echo", Conduct::Html(502));
    call(&address, "test_echo", "[]");
    let head = format!("authorization: Bearer {token}\r\n");
    let is_refused = |_| call_with(&limited, &head, "test_echo", "[]").starts_with("HTTP/1.1 429");
    assert!((0..20).any(is_refused), "beyond its rate a client is refused");
    let of_limited = format!("GET /metrics HTTP/1.1\r\n{head}connection: close\r\n\r\n");
    let metrics = get(&address, "/metrics") + &super::exchange(&limited, &of_limited);
    let told = told(&metrics);

    let board: Value = serde_json::from_str(BOARD).unwrap();
    let mut found = Vec::new();
    queries(&board, &mut found);
    assert!(found.len() >= 10, "{found:?}");
    let name = Regex::new(r"tenure_[a-z_]+").unwrap();
    let selected = Regex::new(r#"([a-z_]+)\s*(?:=~|!=|!~|=)\s*""#).unwrap();
    let grouped = Regex::new(r"by \(([a-z_, ]+)\)").unwrap();
    for query in &found {
        let names: Vec<_> = name.find_iter(query).map(|name| name.as_str()).collect();
        assert!(!names.is_empty(), "{query}");
        let labels: BTreeSet<_> = names
            .iter()
            .flat_map(|name| {
                told.get(*name).unwrap_or_else(|| panic!("{name} is not told: {query}"))
            })
            .map(String::as_str)
            .collect();
        let selected = selected.captures_iter(query).map(|label| label[1].to_owned());
        let grouped = grouped.captures_iter(query).flat_map(|labels| {
            labels[1].split(',').map(|label| label.trim().to_owned()).collect::<Vec<_>>()
        });
        // Prometheus itself adds the labels of the scrape.
        let own = ["instance", "job"];
        for label in selected.chain(grouped).filter(|label| !own.contains(&&**label)) {
            assert!(labels.contains(&*label), "{label} is no label in {query}: {labels:?}");
        }
    }
}
