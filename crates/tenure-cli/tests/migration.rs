//! Coming from another relay: its settings and metrics, and what stands for them here, are a table that is
//! held against the program and against the guide.
#![cfg(feature = "relay")]

use crate::sandbox;

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use sandbox::{Running, Sandbox};
use tenure_testkit::node::{Conduct, Decoder, ScriptedNode};

const TABLE: &str = include_str!("../../../docs/coming-from-relay.tsv");
const GUIDE: &str = include_str!("../../../docs/coming-from.md");

/// Settings without a counterpart here.
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
    let help = Sandbox::new("migration-help").run(&["relay", "--help"]).worked().to_owned();
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

/// Everything that they count happens: a wait, a hold that is renewed, one that ends by max hold, and a waiter
/// that dies.
#[test]
fn every_metric_is_there() {
    let sandbox = Sandbox::new("migration-metrics");
    let node = ScriptedNode::start(31337, Decoder::new(|_| None)).unwrap();
    node.always("eth_sendRawTransaction", Conduct::Hang);
    let (_one, one) = start(&sandbox, &node);
    let (two, other) = start(&sandbox, &node);
    let waits = |address: &str| get(address, "/metrics").contains("tenure_waiters{");
    // One has the lane; the next waits at the other relay, and dies; the one after that waits here.
    let _first = send(&one);
    sandbox::eventually("the node has it", || node.hanging() == 1);
    let _dies = send(&other);
    sandbox::eventually("the other relay waits", || waits(&other));
    let before = get(&other, "/metrics");
    drop(two);
    let _next = send(&one);
    let missing = || -> BTreeSet<&str> {
        let metrics = before.clone() + &get(&one, "/metrics");
        let is_there = |ours: &str| metrics.contains(&format!("# TYPE {ours} "));
        let ours = of_kind("metric").into_iter().map(|row| row.ours).filter(|ours| *ours != NONE);
        ours.filter(|ours| !is_there(ours)).collect()
    };
    let until = Instant::now() + Duration::from_secs(30);
    while !missing().is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(missing(), BTreeSet::new());
}

/// Starts a relay that gives a lane up soon; where it listens. Killed on drop.
fn start(sandbox: &Sandbox, node: &ScriptedNode) -> (Running, String) {
    let url = node.url();
    let times = ["--ttl", "1s", "--max-hold", "8s"];
    let args = ["relay", "--listen", "127.0.0.1:0", "--upstream", &url];
    let mut relay = sandbox.start(&[&args[..], &times[..]].concat());
    let mut line = String::new();
    BufReader::new(relay.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next()).unwrap();
    (relay, address.to_owned())
}

/// Sends a transaction, and does not wait for the answer.
fn send(address: &str) -> TcpStream {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"eth_sendRawTransaction","params":["{RAW}"]}}"#
    );
    let length = body.len();
    let head = format!("POST / HTTP/1.0\r\nhost: {address}\r\ncontent-type: application/json");
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "{head}\r\ncontent-length: {length}\r\n\r\n{body}").unwrap();
    stream
}

fn get(address: &str, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

/// The first payment of anvil's first account, for the chain 31337.
const RAW: &str = "0x02f86d827a6980843b9aca008504a817c8008252089477777777777777777777777777777777777777770180c080a051da181abd5aeb3b088c631b0b83692bf8185aabddfa0a15040571e104e81ffba01028b830b3c036d252fad0567f557d3326c415dadeab629df9f20d2ecaf0afb9";

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
