//! Clients that hold connections, send half a body or do not read: other clients do not notice.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use tenure_testkit::node::Conduct;

use super::{call, exchange, get, node, start};
use crate::sandbox::{Running, Sandbox, eventually};

const ECHO: &str = "test_echo";

/// Connects, asks for something and stays.
fn stay(address: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    write!(stream, "GET /healthz HTTP/1.1\r\nhost: {address}\r\n\r\n").unwrap();
    let mut answer = [0; 16];
    stream.read_exact(&mut answer).unwrap();
    stream
}

/// The head of a call whose body is so long.
fn head(address: &str, length: usize) -> String {
    format!(
        "POST / HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n"
    )
}

/// How much memory a process has, in MiB.
fn memory(process: &Running) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", process.id())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() / 1024
}

#[test]
fn health_can_be_asked_for_while_all_connections_are_held() {
    let (node, sandbox) = (node(), Sandbox::new("relay-held"));
    let (_relay, address) = start(&sandbox, &["--upstream", &node.url(), "--connections", "8"]);
    let mut held: Vec<_> = (0..8).map(|_| stay(&address)).collect();
    for path in ["/healthz", "/readyz", "/metrics"] {
        let answer = get(&address, path);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer:?}");
    }
    let refused = call(&address, ECHO, "[]");
    assert!(refused.starts_with("HTTP/1.1 503") && refused.contains("retry-after"), "{refused}");
    assert!(refused.contains(r#""reason":"busy""#) && refused.contains("-32005"), "{refused}");
    // Reserve connections are served and closed, however many come.
    for _ in 0..40 {
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
    }
    held.pop();
    eventually("there is room again", || call(&address, ECHO, "[7]").contains("[7]"));
}

/// A hundred that announce 4.9 MB, and send nearly all of it.
#[test]
fn half_sent_bodies_share_a_bounded_room() {
    let (node, sandbox) = (node(), Sandbox::new("relay-bodies").with("TENURE_BODIES", "16"));
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    let before = memory(&relay);
    let half = vec![b' '; 4_800_000];
    let mut most = 0;
    let mut held = Vec::new();
    for _ in 0..100 {
        let mut stream = TcpStream::connect(&address).unwrap();
        stream.set_write_timeout(Some(Duration::from_secs(10))).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
        stream.write_all(head(&address, 4_900_000).as_bytes()).unwrap();
        // Clients that come too late are cut off.
        let _ = stream.write_all(&half);
        held.push(stream);
        most = most.max(memory(&relay));
    }
    println!("a hundred half-sent bodies: from {before} to {most} MiB");
    assert!(most < before + 100, "from {before} to {most} MiB");
    // A short body passes meanwhile; a long one is refused with the reason.
    assert!(call(&address, ECHO, "[8]").contains("[8]"));
    let long = format!(r#"["{}"]"#, "x".repeat(4_000_000));
    let refused = call(&address, ECHO, &long);
    assert!(refused.contains("-32005") && refused.contains("common limit"), "{refused:.300}");
    // The room is free again when they are gone.
    drop(held);
    eventually("a long one passes", || call(&address, ECHO, &long).contains("xxxx"));
}

#[test]
fn a_body_that_is_too_long_is_refused_before_it_is_sent() {
    let (node, sandbox) = (node(), Sandbox::new("relay-too-long"));
    let (_relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    let answer = exchange(&address, &format!("{}{{", head(&address, 6 << 20)));
    assert!(answer.contains(r#""reason":"body_too_large""#), "{answer}");
}

/// With one connection for all, a client that is not cut off keeps everyone else out.
#[test]
fn who_sends_or_reads_too_slowly_is_cut_off() {
    let (node, sandbox) =
        (node(), Sandbox::new("relay-slow").with("TENURE_CLIENT_WITHIN", "500ms"));
    let one = ["--connections", "1", "--upstream-within", "60s"];
    let (_relay, address) = start(&sandbox, &[&["--upstream", &node.url()], &one[..]].concat());
    let served = |what: &str| {
        eventually(what, || call(&address, ECHO, "[9]").contains("[9]"));
    };

    let mut sender = TcpStream::connect(&address).unwrap();
    sender.write_all(format!("{}{{", head(&address, 1000)).as_bytes()).unwrap();
    let began = Instant::now();
    served("who sends half a body is cut off");
    println!("a slow sender: {:?}", began.elapsed());
    let mut answer = String::new();
    let _ = sender.read_to_string(&mut answer);
    assert!(answer.contains("took too long"), "{answer}");

    // More than the buffers between them take.
    node.next("test_much", Conduct::Enormous(24 << 20));
    let body = r#"{"jsonrpc":"2.0","id":1,"method":"test_much","params":[]}"#;
    let ask = || {
        let mut reader = TcpStream::connect(&address).unwrap();
        reader.write_all(format!("{}{body}", head(&address, body.len())).as_bytes()).unwrap();
        reader.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        reader
    };
    let mut reader = ask();
    eventually("the node is asked", || {
        // The connection before may not be closed yet: then this one is refused.
        let mut first = [0; 12];
        let is_refused = reader.read(&mut first).is_ok_and(|read| !first[..read].ends_with(b"200"));
        if is_refused && node.calls("test_much") == 0 {
            reader = ask();
        }
        node.calls("test_much") > 0
    });
    reader.set_read_timeout(None).unwrap();
    let began = Instant::now();
    served("who does not read is cut off");
    println!("a slow reader: {:?}", began.elapsed());
    let mut rest = Vec::new();
    let _ = reader.read_to_end(&mut rest);
    assert!(rest.len() < 24 << 20, "it was not cut off: {}", rest.len());
}

#[test]
fn other_methods_hear_what_there_is() {
    let (node, sandbox) = (node(), Sandbox::new("relay-methods"));
    let (_relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    let ask = |first: &str, head: &str| {
        exchange(
            &address,
            &format!("{first} HTTP/1.1\r\nhost: {address}\r\n{head}connection: close\r\n\r\n"),
        )
    };
    let alive = ask("HEAD /healthz", "");
    assert!(alive.starts_with("HTTP/1.1 200") && alive.ends_with("\r\n\r\n"), "{alive:?}");
    for (first, allowed) in [
        ("GET /", "allow: POST\r\n"),
        ("DELETE /", "allow: POST\r\n"),
        ("OPTIONS /", "allow: POST\r\n"),
        ("POST /healthz", "allow: GET, HEAD\r\n"),
        ("PUT /metrics", "allow: GET, HEAD\r\n"),
    ] {
        let answer = ask(first, "");
        assert!(answer.starts_with("HTTP/1.1 405") && answer.contains(allowed), "{answer}");
    }
    let socket = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let answer = ask("GET /", socket);
    assert!(answer.starts_with("HTTP/1.1 501"), "{answer}");
    assert!(answer.contains("WebSocket is not supported: use HTTP"), "{answer}");
}

#[test]
fn a_page_may_ask_only_if_its_origin_is_named() {
    let (node, sandbox) = (node(), Sandbox::new("relay-cors"));
    let (_other, without) = start(&sandbox, &["--upstream", &node.url()]);
    let sandbox = sandbox.with("TENURE_CORS", "https://app.example,https://b.example");
    let (_relay, with) = start(&sandbox, &["--upstream", &node.url()]);
    let before = |address: &str, origin: &str| {
        exchange(
            address,
            &format!(
                "OPTIONS / HTTP/1.1\r\nhost: {address}\r\norigin: {origin}\r\nconnection: close\r\n\
                 access-control-request-method: POST\r\n\
                 access-control-request-headers: content-type\r\n\r\n"
            ),
        )
    };
    let answer = before(&with, "https://app.example");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert!(answer.contains("access-control-allow-origin: https://app.example\r\n"), "{answer}");
    assert!(answer.contains("access-control-allow-methods: POST\r\n"), "{answer}");
    assert!(answer.contains("content-type") && answer.contains("vary: origin"), "{answer}");
    for answer in [before(&with, "https://evil.example"), before(&without, "https://app.example")] {
        assert!(answer.starts_with("HTTP/1.1 405"), "{answer}");
        assert!(!answer.contains("access-control"), "{answer}");
    }
    let origin = "origin: https://b.example\r\n";
    let answer = super::call_with(&with, origin, ECHO, "[1]");
    assert!(answer.contains("access-control-allow-origin: https://b.example\r\n"), "{answer}");
    assert!(answer.contains("access-control-expose-headers: tenure-outcome"), "{answer}");
    assert!(!super::call_with(&without, origin, ECHO, "[1]").contains("access-control"));
}
