//! `tenure serve` as it is installed: it says where it listens, survives being killed with what is held, keeps secrets, and
//! refuses to be reachable by accident.
#![cfg(feature = "serve")]

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::sandbox::{Running, Sandbox};

/// Starts a server; where it listens.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Running, String) {
    let args = [&["serve", "--listen", "127.0.0.1:0"], args].concat();
    let mut server = sandbox.start(&args);
    let mut line = String::new();
    // Byte by byte, so that nothing of what follows is taken away.
    let output = server.stdout.as_mut().unwrap();
    BufReader::with_capacity(1, output).read_line(&mut line).unwrap();
    let address = line.trim_end().split("http://").nth(1);
    let address = address.unwrap_or_else(|| panic!("where does it listen? {line:?}")).to_owned();
    (server, address)
}

/// The status and the whole answer.
fn post(address: &str, head: &str, path: &str, body: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: {address}\r\n{head}connection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).unwrap_or_else(|| panic!("{answer:?}")).parse().unwrap();
    (status, answer)
}

fn field(answer: &str, name: &str) -> String {
    let (_, rest) =
        answer.split_once(&format!("\"{name}\":")).unwrap_or_else(|| panic!("{answer}"));
    rest.trim_start_matches('"').split(['"', ',', '}']).next().unwrap().to_owned()
}

/// Holders and waiters are unchanged, although the file engine ends the claims of a process that is gone.
#[test]
fn a_server_that_is_killed_takes_nothing_with_it() {
    let sandbox = Sandbox::new("serve-killed");
    let key = sandbox.folder().join("server.key");
    let args = ["--key-file", key.to_str().unwrap()];
    let (mut server, address) = start(&sandbox, &args);
    let claim = "0".repeat(31);
    let body = format!(r#"{{"name":"x","ttl":"60s","claim":"{claim}1"}}"#);
    let (status, granted) = post(&address, "", "/v1/holds", &body);
    assert_eq!(status, 201, "{granted}");
    let waits = format!(r#"{{"name":"x","wait":"60s","claim":"{claim}2"}}"#);
    let mut waiting = TcpStream::connect(&address).unwrap();
    let request = format!(
        "POST /v1/holds HTTP/1.1\r\nhost: {address}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{waits}",
        waits.len()
    );
    waiting.write_all(request.as_bytes()).unwrap();
    crate::sandbox::eventually("someone waits", || {
        sandbox.run(&["show", "x"]).stdout.contains("127.0.0.1")
    });
    server.kill().unwrap();
    server.wait().unwrap();
    let (_server, address) = start(&sandbox, &args);
    let fence = field(&granted, "fence");
    let renew = format!(r#"{{"name":"x","ttl":"60s","claim":"{claim}1","fence":{fence}}}"#);
    let (status, renewed) = post(&address, "", "/v1/holds/renew", &renew);
    assert_eq!(status, 200, "{renewed}");
    let (status, busy) = post(&address, "", "/v1/holds", r#"{"name":"x"}"#);
    assert_eq!(status, 409, "{busy}");
    let release = format!(r#"{{"name":"x","claim":"{claim}1"}}"#);
    assert_eq!(post(&address, "", "/v1/holds/release", &release).0, 204);
    // The one who waited asks again, and is served.
    let (status, granted) = post(&address, "", "/v1/holds", &waits);
    assert_eq!(status, 201, "{granted}");
}

#[test]
fn a_token_is_shown_once_and_works_after_a_hangup() {
    let sandbox = Sandbox::new("serve-token");
    let file = sandbox.folder().join("tokens");
    let file = file.to_str().unwrap();
    let new = |name: &str, role: &str| {
        let ran = sandbox.run(&["token", "new", name, "--role", role, "--tokens-file", file]);
        ran.worked().trim().to_owned()
    };
    let first = new("shop", "lock");
    assert!(first.len() == 64 && !std::fs::read_to_string(file).unwrap().contains(&first));
    let (server, address) = start(&sandbox, &["--tokens-file", file]);
    let head = |token: &str| format!("authorization: Bearer {token}\r\n");
    assert_eq!(post(&address, "", "/v1/holds", r#"{"name":"x"}"#).0, 401);
    assert_eq!(post(&address, &head(&first), "/v1/holds", r#"{"name":"x"}"#).0, 201);
    let second = new("pay", "lock");
    assert_eq!(post(&address, &head(&second), "/v1/holds", r#"{"name":"y"}"#).0, 401);
    rustix::process::kill_process(
        rustix::process::Pid::from_child(&server),
        rustix::process::Signal::HUP,
    )
    .unwrap();
    crate::sandbox::eventually("the new token is known", || {
        post(&address, &head(&second), "/v1/holds", r#"{"name":"y"}"#).0 != 401
    });
    sandbox.run(&["token", "new", "shop", "--tokens-file", file]).failed(78);
    sandbox.run(&["token", "new", "x", "--role", "root", "--tokens-file", file]).failed(64);
}

#[test]
fn a_token_that_is_revoked_means_nothing_after_a_hangup() {
    let sandbox = Sandbox::new("serve-revoke");
    let path = sandbox.folder().join("tokens");
    let file = path.to_str().unwrap();
    std::fs::write(&path, "# clients\n").unwrap();
    let token = |name: &str, more: &[&str]| {
        let args = [&["token", "new", name, "--tokens-file", file], more].concat();
        sandbox.run(&args).worked().trim().to_owned()
    };
    let shop = token("shop", &["--role", "lock,read", "--prefix", "shop/"]);
    let pay = token("pay", &[]);
    let listed = sandbox.run(&["token", "ls", "--tokens-file", file]).worked().to_owned();
    let rows: Vec<Vec<_>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["shop", "read,lock", "shop/"]);
    assert_eq!(rows[2], ["pay", "lock", "any", "name"]);
    let json = sandbox.run(&["token", "ls", "--json", "--tokens-file", file]).worked().to_owned();
    assert!(json.contains(r#""name":"shop""#) && json.contains(r#""roles":"read,lock""#), "{json}");
    assert!(!listed.contains("sha256") && !json.contains("sha256"));
    let (server, address) = start(&sandbox, &["--tokens-file", file]);
    let head = |token: &str| format!("authorization: Bearer {token}\r\n");
    let ask = |token: &str| post(&address, &head(token), "/v1/holds", r#"{"name":"shop/x"}"#).0;
    assert_eq!(ask(&shop), 201);
    sandbox.run(&["token", "revoke", "shop", "-q", "--tokens-file", file]).worked();
    let left = std::fs::read_to_string(&path).unwrap();
    assert!(left.starts_with("# clients\npay ") && !left.contains("shop"), "{left}");
    let pid = rustix::process::Pid::from_child(&server);
    rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    crate::sandbox::eventually("the token is revoked", || ask(&shop) == 401);
    assert_eq!(ask(&pay), 409);
    sandbox.run(&["token", "revoke", "shop", "--tokens-file", file]).failed(1);
    // A server keeps the tokens that it has when it is given none.
    sandbox.run(&["token", "revoke", "pay", "--tokens-file", file]).failed(78);
    sandbox.run(&["token", "ls"]).failed(64);
    sandbox.run(&["token", "new"]).failed(64);
    sandbox.run(&["token", "rm", "pay"]).failed(64);
}

#[test]
fn it_is_not_reachable_by_accident() {
    let sandbox = Sandbox::new("serve-open");
    for args in [
        &["serve", "--listen", "0.0.0.0:0"][..],
        &["serve", "--listen", "0.0.0.0:0", "--tokens-file", "tokens"],
        &["serve", "--listen", "0.0.0.0:0", "--memory", "--insecure"],
        &["serve", "--listen", "0.0.0.0:0", "--ui-may-break", "--insecure"],
        &["serve", "--ns", "prod"],
        &["serve", "--url", "memory:"],
    ] {
        sandbox.run(args).failed(64);
    }
}

/// A web page could reach a server of this machine through a name of its own.
#[test]
fn only_the_hosts_that_were_named_are_taken() {
    let sandbox = Sandbox::new("serve-hosts");
    let (_server, address) = start(&sandbox, &["--hosts", "locks.example"]);
    let ask = |host: &str| {
        let mut stream = TcpStream::connect(&address).unwrap();
        let request =
            format!("GET /v1/names HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    };
    assert!(ask("locks.example").starts_with("HTTP/1.1 200"));
    let refused = ask("evil.example");
    assert!(refused.starts_with("HTTP/1.1 421") && refused.contains("--hosts"), "{refused}");
    let refused = ask("localhost\r\nhost: evil.example");
    assert!(refused.starts_with("HTTP/1.1 421"), "two hosts: {refused}");
}

/// After a restart it grants again when a minute has passed: a longer hold would have a second holder beside it.
#[test]
fn a_server_of_memory_grants_for_a_minute_at_most() {
    let sandbox = Sandbox::new("serve-memory");
    let (_server, address) = start(&sandbox, &["--memory", "--fresh"]);
    let (status, refused) = post(&address, "", "/v1/holds", r#"{"name":"x","ttl":"61s"}"#);
    assert!(status == 400 && refused.contains("60s"), "{refused}");
    assert_eq!(post(&address, "", "/v1/holds", r#"{"name":"x","ttl":"60s"}"#).0, 201);
    let (_server, address) = start(&sandbox, &["--memory"]);
    assert_eq!(post(&address, "", "/v1/holds", r#"{"name":"x"}"#).0, 503);
}

/// The command line over HTTP: the same locks, through the server.
#[test]
fn a_command_runs_under_a_lock_of_the_server() {
    let sandbox = Sandbox::new("serve-engine");
    let (_server, address) = start(&sandbox, &["--memory", "--fresh"]);
    let url = format!("http://{address}");
    let ran = sandbox.run(&["run", "-u", &url, "x", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    assert!(ran.worked().trim().parse::<u64>().is_ok(), "{:?}", ran.stdout);
    assert_eq!(post(&address, "", "/v1/holds", r#"{"name":"x"}"#).0, 201);
    sandbox.run(&["run", "-n", "-u", &url, "x", "--", "true"]).failed(75);
}
