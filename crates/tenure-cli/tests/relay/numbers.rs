//! What operators see: numbers that are there from the start, a line a transaction, the state of nodes.

use serde_json::Value;
use tenure_testkit::node::Conduct;

use super::{HASH, SENDER, call, get, metric, node, send, start, stop};
use crate::sandbox::{Sandbox, eventually};

#[test]
fn counters_are_there_from_the_start() {
    let (node, sandbox) = (node(), Sandbox::new("relay-zero"));
    let (_relay, address) = start(&sandbox, &["--upstream", &node.url(), "--ns", "prod"]);
    let metrics = get(&address, "/metrics");
    let engine = metrics.lines().find_map(|line| line.strip_prefix("tenure_engine_up{engine=\""));
    let engine = engine.and_then(|line| line.split('"').next()).unwrap_or_default();
    let lanes = format!(r#"engine="{engine}",kind="lock",group="lane""#);
    let outcomes = ["accepted", "repeated", "collided", "rejected", "refused", "unknown"];
    let mut names: Vec<_> = outcomes
        .iter()
        .map(|outcome| {
            format!(r#"tenure_relay_transactions_total{{chain="31337",outcome="{outcome}"}}"#)
        })
        .collect();
    names.extend([
        r#"tenure_relay_unprotected_total{chain="31337",protection="none"}"#.to_owned(),
        r#"tenure_nonce_gaps_total{chain="31337",end="refused"}"#.to_owned(),
        r#"tenure_nonce_wrong_nonce_total{chain="31337"}"#.to_owned(),
        r#"tenure_relay_calls_total{chain="31337",method="eth_sendRawTransaction"}"#.to_owned(),
        format!(r#"tenure_relay_node_failovers_total{{node="127.0.0.1:{}"}}"#, node.port()),
        "tenure_relay_unauthorized_total".to_owned(),
        format!("tenure_max_hold_releases_total{{{lanes}}}"),
        format!(r#"tenure_lost_total{{{lanes},reason="expired"}}"#),
        format!(r#"tenure_acquisitions_total{{{lanes},outcome="granted"}}"#),
    ]);
    for name in &names {
        assert_eq!(metric(&metrics, name), Some(0.0), "{name}: {metrics}");
    }
    // The same ones count, with a namespace, too.
    assert!(send(&address).contains(HASH));
    let metrics = get(&address, "/metrics");
    assert_eq!(metric(&metrics, names.last().unwrap()), Some(1.0), "{metrics}");
    assert_eq!(metric(&metrics, &names[0]), Some(1.0), "{metrics}");
    assert!(!metrics.contains("prod/"), "{metrics}");
}

/// The lines of a log that have this event.
fn events(log: &str, event: &str) -> Vec<Value> {
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    lines.filter(|line| line["event"] == event).collect()
}

#[test]
fn a_transaction_is_one_line_of_the_log() {
    let (node, sandbox) = (node(), Sandbox::new("relay-lines").with("TENURE_LOG_FORMAT", "json"));
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    assert!(send(&address).contains(HASH));
    let refused = call(&address, "eth_sendRawTransaction", r#"["0xzz"]"#);
    assert!(refused.contains("bad_params"), "{refused}");
    assert!(refused.contains("tenure-outcome: refused\r\n"), "{refused}");
    stop(&relay);
    let ended = relay.ended();
    let lines = events(&ended.stderr, "relay.transaction");
    assert_eq!(lines.len(), 2, "{}", ended.stderr);
    let line = &lines[0];
    assert_eq!(line["sender"].as_str().unwrap().to_lowercase(), SENDER, "{line}");
    assert_eq!((&line["nonce"], &line["hash"]), (&0.into(), &HASH.into()), "{line}");
    assert_eq!((&line["outcome"], &line["client"]), (&"accepted".into(), &"127.0.0.1".into()));
    assert!(line["ms"].is_u64() && line["wait_ms"].is_u64() && line["level"] == "info", "{line}");
    let line = &lines[1];
    assert_eq!((&line["outcome"], &line["reason"]), (&"refused".into(), &"bad_params".into()));
    assert!(!ended.stderr.contains(super::RAW), "the bytes are nobody's business");
}

#[test]
fn nodes_are_counted_and_their_outages_are_logged_once() {
    let (first, second) = (node(), node());
    let sandbox = Sandbox::new("relay-nodes").with("TENURE_LOG_FORMAT", "json");
    let urls = format!("{},{}", first.url(), second.url());
    let (relay, address) = start(&sandbox, &["--upstream", &urls]);
    let up = |of: &str| {
        let name = format!(r#"tenure_relay_node_up{{node="127.0.0.1:{of}"}}"#);
        metric(&get(&address, "/metrics"), &name)
    };
    let (one, two) = (first.port().to_string(), second.port().to_string());
    assert!(call(&address, "eth_blockNumber", "[]").starts_with("HTTP/1.1 200"));
    assert_eq!((up(&one), up(&two)), (Some(1.0), Some(1.0)));
    drop(first);
    for _ in 0..8 {
        let answer = call(&address, "eth_chainId", "[]");
        assert!(answer.contains("0x7a69"), "{answer}");
    }
    assert!(call(&address, "made_up", "[]").starts_with("HTTP/1.1 200"));
    let metrics = get(&address, "/metrics");
    assert_eq!((up(&one), up(&two)), (Some(0.0), Some(1.0)));
    let count = |name: &str, labels: &str| metric(&metrics, &format!("{name}{{{labels}}}"));
    let on = |port: &str| format!(r#"node="127.0.0.1:{port}""#);
    assert!(count("tenure_relay_node_failovers_total", &on(&two)) >= Some(9.0), "{metrics}");
    assert!(count("tenure_relay_node_failures_total", &on(&one)) >= Some(3.0), "{metrics}");
    assert!(count("tenure_relay_node_seconds_count", &on(&two)) >= Some(9.0), "{metrics}");
    for (method, calls) in [("eth_blockNumber", 1.0), ("eth_chainId", 8.0), ("other", 1.0)] {
        let labels = format!(r#"chain="31337",method="{method}""#);
        assert_eq!(count("tenure_relay_calls_total", &labels), Some(calls), "{metrics}");
    }
    stop(&relay);
    let ended = relay.ended();
    let down = events(&ended.stderr, "node.down");
    assert_eq!(down.len(), 1, "{}", ended.stderr);
    assert_eq!(down[0]["node"], format!("127.0.0.1:{one}"), "{down:?}");
    assert!(down[0]["reason"].as_str().unwrap().contains("refused"), "{down:?}");
}

#[test]
fn a_node_that_is_back_is_said_to_be() {
    let (node, sandbox) =
        (node(), Sandbox::new("relay-node-back").with("TENURE_LOG_FORMAT", "json"));
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    for _ in 0..3 {
        node.next("test_echo", Conduct::Html(502));
        call(&address, "test_echo", "[]");
    }
    eventually("it is asked again", || call(&address, "test_echo", "[6]").contains("[6]"));
    stop(&relay);
    let ended = relay.ended();
    let [down, up] = ["node.down", "node.up"].map(|event| events(&ended.stderr, event));
    assert_eq!((down.len(), up.len()), (1, 1), "{}", ended.stderr);
    assert!(down[0]["reason"].as_str().unwrap().contains("502"), "{down:?}");
}

#[test]
fn config_shows_what_the_relay_has_by_default() {
    let ran = Sandbox::new("relay-config").run(&["config"]);
    let row = |name: &str| {
        let row = ran.worked().lines().find(|row| row.starts_with(name));
        let row = row.unwrap_or_else(|| panic!("{name}: {ran:?}"));
        row[name.len()..].split_whitespace().map(String::from).collect::<Vec<_>>()
    };
    assert_eq!(row("relay ttl "), ["10s", "default", "TENURE_TTL"]);
    assert_eq!(row("relay max-hold "), ["30s", "default", "TENURE_MAX_HOLD"]);
    assert_eq!(row("client-within "), ["30s", "default", "TENURE_CLIENT_WITHIN"]);
}
