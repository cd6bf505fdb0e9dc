//! The node that misbehaves on command: by default it behaves well, and it follows its orders.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::node::{Conduct, Decoder, ScriptedNode};

const SEND: &str = "eth_sendRawTransaction";

fn node() -> ScriptedNode {
    ScriptedNode::start(1337, Decoder::plain()).unwrap()
}

/// A transaction of sender 1; the last digit distinguishes two with the same nonce.
fn raw(nonce: u64, version: u64) -> String {
    format!("0x{:040x}{nonce:016x}{version:02x}", 1)
}

/// The head and the body of everything that arrives until the connection ends.
fn exchange(node: &ScriptedNode, body: &Value) -> (String, Vec<u8>) {
    let (mut stream, body) = (ask(node, body), Vec::new());
    stream.shutdown(std::net::Shutdown::Write).unwrap();
    let mut all = body;
    let _ = stream.read_to_end(&mut all);
    let at = all.windows(4).position(|four| four == b"\r\n\r\n");
    let at = at.unwrap_or(all.len());
    let body = all.get(at + 4..).unwrap_or_default().to_vec();
    (String::from_utf8(all[..at].to_vec()).unwrap(), body)
}

fn ask(node: &ScriptedNode, body: &Value) -> TcpStream {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, node.port())).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let body = body.to_string();
    let length = body.len();
    write!(stream, "POST /path HTTP/1.1\r\nHost: x\r\nContent-Length: {length}\r\n\r\n{body}")
        .unwrap();
    stream
}

fn call(method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": 7, "method": method, "params": params })
}

fn answer(node: &ScriptedNode, method: &str, params: Value) -> Value {
    serde_json::from_slice(&exchange(node, &call(method, params)).1).unwrap()
}

#[test]
fn transactions_are_taken_in_order_kept_when_early_and_refused_when_late() {
    let node = node();
    let send = |nonce, version| answer(&node, SEND, json!([raw(nonce, version)]));
    let count = |at: &str| {
        answer(&node, "eth_getTransactionCount", json!([format!("0x{:040x}", 1), at]))["result"]
            .clone()
    };
    assert_eq!(send(1, 0)["result"], json!(raw(1, 0)));
    assert_eq!(count("pending"), json!("0x0"));
    node.mines(false);
    assert_eq!(send(0, 0)["result"], json!(raw(0, 0)));
    assert_eq!([count("pending"), count("latest")], [json!("0x2"), json!("0x0")]);
    assert_eq!(send(0, 0)["error"]["message"], json!("already known"));
    assert_eq!(send(0, 1)["error"]["message"], json!("replacement transaction underpriced"));
    node.mines(true);
    assert_eq!(count("latest"), json!("0x2"));
    let late = send(0, 1)["error"]["message"].to_string();
    assert!(late.contains("nonce too low"), "{late}");
    node.keeps_gaps(false);
    assert_eq!(send(9, 0)["error"]["message"], json!("nonce too high"));
    let look =
        |hash: String| answer(&node, "eth_getTransactionByHash", json!([hash]))["result"].clone();
    assert_eq!(look(raw(1, 0))["nonce"], json!("0x1"));
    assert_eq!(look(raw(9, 0)), Value::Null);
    let taken: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(taken, [1, 0]);
    let batch = json!([call("eth_chainId", json!([])), call("test_echo", json!(["x"]))]);
    let answers: Value = serde_json::from_slice(&exchange(&node, &batch).1).unwrap();
    assert_eq!([&answers[0]["result"], &answers[1]["result"]], [&json!("0x539"), &json!(["x"])]);
    let last = node.arrivals().pop().unwrap();
    assert_eq!((last.path.as_str(), last.method.as_str()), ("/path", "test_echo"));
}

#[test]
fn requests_that_hang_are_done_or_not_as_told_and_can_be_released() {
    let node = node();
    node.next(SEND, Conduct::DoThenHang);
    node.next(SEND, Conduct::Hang);
    let first = ask(&node, &call(SEND, json!([raw(0, 0)])));
    let mut second = {
        node.wait_for_calls(SEND, 1).unwrap();
        ask(&node, &call(SEND, json!([raw(1, 0)])))
    };
    let hang = |many| move |node: &ScriptedNode| node.hanging() == many;
    let until = |what: &str, holds: &dyn Fn(&ScriptedNode) -> bool| {
        tenure_testkit::servers::eventually(what, Duration::from_secs(20), || holds(&node))
            .unwrap();
    };
    until("both hang", &hang(2));
    assert_eq!(node.sent().len(), 1, "the second has not been done");
    drop(first);
    until("one is given up", &hang(1));
    assert_eq!(node.hung_up(), 1);
    node.let_go();
    let mut head = [0; 12];
    second.read_exact(&mut head).unwrap();
    assert_eq!(&head, b"HTTP/1.1 200");
    assert_eq!(node.sent().len(), 2);
}

#[test]
fn every_kind_of_answer_that_no_real_node_gives() {
    let node = node();
    let told = |conduct| {
        node.next("test_echo", conduct);
        let (head, body) = exchange(&node, &call("test_echo", json!(["hello"])));
        (head, body)
    };
    let whole = br#"{"id":7,"jsonrpc":"2.0","result":["hello"]}"#.as_slice();
    assert_eq!(told(Conduct::Late(Duration::from_millis(5))).1, whole);
    assert_eq!(told(Conduct::AnswerLate(Duration::from_millis(5))).1, whole);
    assert_eq!(told(Conduct::Drip(Duration::from_millis(1))).1, whole);
    assert!(told(Conduct::Close).0.is_empty() && told(Conduct::DoThenClose).0.is_empty());
    let (head, body) = told(Conduct::Html(502));
    assert!(head.starts_with("HTTP/1.1 502") && body.starts_with(b"<!doctype html>"));
    assert!(told(Conduct::TooMany(3)).0.contains("retry-after: 3"));
    assert!(told(Conduct::Redirect("http://x/".to_owned())).0.contains("location: http://x/"));
    let refused: Value =
        serde_json::from_slice(&told(Conduct::Refuse(-5, "no".to_owned())).1).unwrap();
    assert_eq!([&refused["error"]["code"], &refused["id"]], [&json!(-5), &json!(7)]);
    let other: Value = serde_json::from_slice(&told(Conduct::Say(json!("other"))).1).unwrap();
    assert_eq!(other["result"], json!("other"));
    node.next(SEND, Conduct::DoThenRefuse(-6, "no".to_owned()));
    assert_eq!(answer(&node, SEND, json!([raw(0, 0)]))["error"]["code"], json!(-6));
    assert_eq!(node.sent().len(), 1, "it has been done");
    let wrong: Value = serde_json::from_slice(&told(Conduct::WrongId).1).unwrap();
    assert_ne!(wrong["id"], json!(7));
    let (head, body) = told(Conduct::Gzip);
    assert!(head.contains("content-encoding: gzip") && body.starts_with(&[0x1f, 0x8b]));
    assert!(told(Conduct::GzipBomb(1 << 20)).1.len() < 10_000);
    assert!(told(Conduct::Enormous(300_000)).1.len() > 300_000);
    assert_eq!(told(Conduct::Truncated).1, whole[..whole.len() / 2]);
    let (head, body) = told(Conduct::Short);
    assert!(head.contains(&format!("content-length: {}", whole.len())) && body.len() < whole.len());
    // By its number: the call after the next.
    let so_far = u64::try_from(node.calls("test_echo")).unwrap();
    node.at("test_echo", so_far + 2, Conduct::Html(200));
    assert_eq!(told(Conduct::Answer).1, whole);
    assert!(exchange(&node, &call("test_echo", json!(["hello"]))).1.starts_with(b"<!doctype"));
}
