//! `tenure relay` as it is installed: it prints its address, serves, keeps secrets and stops.
#![cfg(feature = "relay")]

use crate::sandbox;

mod access;
mod board;
mod limits;
mod numbers;
mod outage;

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use sandbox::{Running, Sandbox};
use tenure_testkit::node::{Conduct, Decoder, ScriptedNode, Sent};

/// The first payment of anvil's first account, for the chain 31337.
const RAW: &str = "0x02f86d827a6980843b9aca008504a817c8008252089477777777777777777777777777777777777777770180c080a051da181abd5aeb3b088c631b0b83692bf8185aabddfa0a15040571e104e81ffba01028b830b3c036d252fad0567f557d3326c415dadeab629df9f20d2ecaf0afb9";
const HASH: &str = "0x620c6869bd643eba5730ab511f6c8253fba1c734fbba71e2acdb3d0d5c97599e";
const SENDER: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";

fn node() -> ScriptedNode {
    let known = Sent { sender: SENDER.to_owned(), nonce: 0, hash: HASH.to_owned() };
    ScriptedNode::start(31337, Decoder::new(move |raw| (raw == RAW).then(|| known.clone())))
        .unwrap()
}

/// Starts a relay; where it listens.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Running, String) {
    let args = [&["relay", "--listen", "127.0.0.1:0"], args].concat();
    let mut relay = sandbox.start(&args);
    let address = listens(&mut relay);
    (relay, address)
}

/// Where it listens.
fn listens(relay: &mut Running) -> String {
    let line = first_line(relay);
    let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
    address.unwrap_or_else(|| panic!("where does it listen? {line:?}")).to_owned()
}

fn first_line(relay: &mut Running) -> String {
    let mut line = String::new();
    // Byte by byte, so that nothing of what follows is taken away.
    let output = relay.stdout.as_mut().unwrap();
    BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
    line.trim_end().to_owned()
}

fn exchange(address: &str, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    answer
}

fn get(address: &str, path: &str) -> String {
    exchange(
        address,
        &format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n"),
    )
}

fn call(address: &str, method: &str, params: &str) -> String {
    call_with(address, "", method, params)
}

/// The same with lines of the head, each with its end.
fn call_with(address: &str, head: &str, method: &str, params: &str) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let length = body.len();
    let host = if head.contains("host: ") { String::new() } else { format!("host: {address}\r\n") };
    exchange(
        address,
        &format!(
            "POST / HTTP/1.1\r\n{host}{head}connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
        ),
    )
}

fn send(address: &str) -> String {
    send_with(address, "")
}

fn send_with(address: &str, head: &str) -> String {
    call_with(address, head, "eth_sendRawTransaction", &format!(r#"["{RAW}"]"#))
}

/// The value of a metric, by its name and labels as they are written.
fn metric(metrics: &str, name: &str) -> Option<f64> {
    let line = metrics.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.map(|value| value.parse().unwrap())
}

fn stop(relay: &Running) {
    let pid = rustix::process::Pid::from_child(relay);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
}

#[test]
fn it_serves_and_stops_when_told() {
    let (node, sandbox) = (node(), Sandbox::new("relay-serves"));
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(&address, "/readyz").contains(r#""ready":true"#));
    let sent = send(&address);
    assert!(sent.contains(&format!(r#""result":"{HASH}""#)), "{sent}");
    let count = call(&address, "eth_getTransactionCount", &format!(r#"["{SENDER}","latest"]"#));
    assert!(count.contains(r#""result":"0x1""#), "{count}");
    let metrics = get(&address, "/metrics");
    assert!(metrics.contains("tenure_relay_transactions_total"), "{metrics}");
    stop(&relay);
    let ended = relay.ended();
    assert_eq!(ended.exit, Some(0), "{ended:?}");
}

/// Otherwise every transaction would be refused, one by one.
#[test]
fn settings_that_do_not_fit_are_refused_at_the_start() {
    let (node, sandbox) = (node(), Sandbox::new("relay-settings"));
    let url = node.url();
    let relay = ["relay", "--listen", "127.0.0.1:0", "--upstream", &url];
    let ended = sandbox.start(&[&relay[..], &["--max-hold", "5s"]].concat()).ended();
    assert_eq!(ended.exit, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("shorter than the ttl (10s)"), "{ended:?}");
    let ended = sandbox.start(&[&relay[..], &["--chain-id", "1"]].concat()).ended();
    assert_eq!(ended.exit, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("the node is on chain 31337, not 1"), "{ended:?}");
}

/// If it may continue without the engine, it may also start without it.
#[test]
fn without_the_engine_it_starts_if_it_may_work_without_it() {
    // Nobody listens there.
    let gone = "redis://127.0.0.1:1?connect_timeout=200ms";
    for on_outage in ["local", "open"] {
        let (node, sandbox) = (node(), Sandbox::new(&format!("relay-starts-{on_outage}")));
        let sandbox = sandbox.with("TENURE_URL", gone);
        let (relay, address) =
            start(&sandbox, &["--upstream", &node.url(), "--on-outage", on_outage]);
        let sent = send(&address);
        assert!(sent.contains(&format!(r#""result":"{HASH}""#)), "{sent}");
        let ready = get(&address, "/readyz");
        assert!(ready.contains(r#""ready":true"#) && ready.contains(r#""up":false"#), "{ready}");
        stop(&relay);
        let ended = relay.ended();
        assert_eq!(ended.exit, Some(0), "{ended:?}");
    }
    let (node, sandbox) = (node(), Sandbox::new("relay-starts-closed").with("TENURE_URL", gone));
    let ended = sandbox.run(&["relay", "--listen", "127.0.0.1:0", "--upstream", &node.url()]);
    assert!(ended.exit != Some(0) && ended.stderr.contains("unreachable"), "{ended:?}");
}

#[test]
fn what_was_begun_is_finished_before_it_stops() {
    let (node, sandbox) = (node(), Sandbox::new("relay-stops"));
    node.next("eth_sendRawTransaction", Conduct::Hang);
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    let client = std::thread::spawn({
        let address = address.clone();
        move || send(&address)
    });
    sandbox::eventually("the node has it", || node.hanging() == 1);
    stop(&relay);
    sandbox::eventually("nobody else is let in", || TcpStream::connect(&address).is_err());
    node.let_go();
    let sent = client.join().unwrap();
    assert!(sent.contains(HASH), "{sent}");
    assert_eq!(relay.ended().exit, Some(0));
    assert_eq!(node.sent().len(), 1);
}

#[test]
fn told_twice_it_stops_at_once() {
    let (node, sandbox) = (node(), Sandbox::new("relay-stops-twice"));
    node.next("eth_sendRawTransaction", Conduct::Hang);
    // Longer than the test may take: only the second signal can be what ends it.
    let long = ["--max-hold", "10m", "--upstream-within", "10m"];
    let (mut relay, address) = start(&sandbox, &[&["--upstream", &node.url()], &long[..]].concat());
    let client = std::thread::spawn({
        let address = address.clone();
        move || send(&address)
    });
    sandbox::eventually("the node has it", || node.hanging() == 1);
    stop(&relay);
    sandbox::eventually("nobody else is let in", || TcpStream::connect(&address).is_err());
    stop(&relay);
    sandbox::eventually("it ends", || relay.try_wait().unwrap().is_some());
    let ended = relay.ended();
    assert!(ended.stderr.contains("stopped before all transactions were finished"), "{ended:?}");
    assert_eq!(client.join().unwrap(), "", "there was no answer to give");
}

/// The URL of the node is a secret except for host and port: in output, logs and answers.
#[test]
fn a_secret_in_the_url_of_the_node_stays_secret() {
    for format in ["text", "json"] {
        let node = node();
        let url = format!(
            "http://planted-user:planted-word@127.0.0.1:{}/v2/planted-key?k=planted-query",
            node.port()
        );
        let sandbox = Sandbox::new(&format!("relay-secrets-{format}"))
            .with("TENURE_UPSTREAM", &url)
            .with("TENURE_LOG_LEVEL", "trace")
            .with("TENURE_LOG_FORMAT", format);
        let (relay, address) =
            start(&sandbox, &["--upstream-within", "200ms", "--max-hold", "10s"]);
        let mut seen = vec![send(&address), get(&address, "/readyz"), get(&address, "/metrics")];
        let asked = node.arrivals().pop().unwrap();
        assert_eq!(asked.path, "/v2/planted-key?k=planted-query", "it is used");
        assert!(asked.head.to_lowercase().contains("authorization: basic "), "{}", asked.head);
        for conduct in [
            Conduct::Html(502),
            Conduct::Redirect(url.clone()),
            Conduct::Close,
            Conduct::Hang,
            Conduct::Short,
            Conduct::TooMany(1),
        ] {
            node.next("test_echo", conduct.clone());
            seen.push(call(&address, "test_echo", "[]"));
            node.next("eth_getTransactionCount", conduct);
            seen.push(send(&address));
        }
        drop(node);
        seen.extend([send(&address), call(&address, "test_echo", "[]"), get(&address, "/readyz")]);
        seen.push(get(&address, "/metrics"));
        assert!(seen.iter().any(|it| it.contains("-32002")), "{seen:?}");
        stop(&relay);
        let ended = relay.ended();
        assert_eq!(ended.exit, Some(0), "{ended:?}");
        assert!(ended.stderr.contains("lock.granted"), "the log is on: {ended:?}");
        // What cannot be started says it no more than what runs.
        let refused = sandbox.run(&["relay", "--listen", "127.0.0.1:0"]);
        assert_ne!(refused.exit, Some(0), "{refused:?}");
        seen.extend([ended.stdout, ended.stderr, refused.stdout, refused.stderr]);
        seen.push(sandbox.run(&["ls", "--json"]).stdout);
        seen.push(sandbox.run(&["config"]).stdout);
        for text in seen {
            // As it is, and as it is encoded on the wire.
            for secret in ["planted", "cGxhbnRlZC11c2Vy"] {
                assert!(!text.contains(secret), "{text}");
            }
        }
    }
}
