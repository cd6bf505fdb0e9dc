//! `tenure serve` on a unix socket, and the command line over it.
#![cfg(feature = "serve")]

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use crate::sandbox::{Running, Sandbox, eventually};

/// Starts a server on a socket of its own.
fn start(sandbox: &Sandbox, args: &[&str]) -> (Running, PathBuf) {
    let path = sandbox.folder().join("s");
    let listen = format!("unix:{}", path.display());
    let mut server = sandbox.start(&[&["serve", "--listen", &listen], args].concat());
    let mut line = String::new();
    BufReader::new(server.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, format!("listening on {listen}\n"));
    (server, path)
}

fn post(socket: &Path, path: &str, body: &str) -> String {
    let mut stream = UnixStream::connect(socket).unwrap();
    let length = body.len();
    let request = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn mode(path: &Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn a_server_on_a_unix_socket_is_for_its_user_alone_unless_told() {
    let sandbox = Sandbox::new("serve-socket");
    let (mut server, socket) = start(&sandbox, &[]);
    assert_eq!(mode(&socket), 0o600);
    let answer = post(&socket, "/v1/holds", r#"{"name":"x","ttl":"60s"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    let user = format!("uid:{}", rustix::process::getuid().as_raw());
    assert!(sandbox.run(&["show", "x"]).stdout.contains(&user), "the client is a user");
    // Another server of the same socket is not in the way of this one.
    let listen = format!("unix:{}", socket.display());
    let [_, why, _] = sandbox.run(&["serve", "--listen", &listen]).failed(73).map(str::to_owned);
    assert!(why.contains("another server listens there"), "{why}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    assert_eq!(server.wait().unwrap().code(), Some(0));
    assert!(!socket.exists());
    let (_server, socket) = start(&sandbox, &["--socket-mode", "660"]);
    assert_eq!(mode(&socket), 0o660);
}

#[test]
fn a_socket_that_a_killed_server_left_behind_is_replaced() {
    let sandbox = Sandbox::new("serve-socket-killed");
    let (mut server, socket) = start(&sandbox, &[]);
    let answer = post(&socket, "/v1/holds", r#"{"name":"x","ttl":"60s"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(socket.exists());
    let (_server, socket) = start(&sandbox, &[]);
    let answer = post(&socket, "/v1/holds", r#"{"name":"x"}"#);
    assert!(answer.starts_with("HTTP/1.1 409"), "{answer}");
}

#[test]
fn a_command_runs_under_a_lock_over_a_unix_socket() {
    let sandbox = Sandbox::new("serve-socket-engine");
    let (server, socket) = start(&sandbox, &["--memory", "--fresh"]);
    let url = format!("http+unix:{}", socket.display());
    let ran = sandbox.run(&["run", "-u", &url, "x", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    assert!(ran.worked().trim().parse::<u64>().is_ok(), "{ran:?}");
    let answer = post(&socket, "/v1/holds", r#"{"name":"x"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    // Its turn comes over the stream.
    let waits = sandbox.start(&["run", "-q", "-u", &url, "x", "--", "echo", "ran"]);
    eventually("it waits", || {
        sandbox.run(&["ls", "-u", &url, "--json"]).stdout.contains(r#""waiters":1"#)
    });
    let claim = answer.split_once(r#""claim":""#).unwrap().1.split('"').next().unwrap();
    let answer =
        post(&socket, "/v1/holds/release", &format!(r#"{{"name":"x","claim":"{claim}"}}"#));
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");
    assert_eq!(waits.ended().worked(), "ran\n");
    drop(server);
    let [what, ..] = sandbox.run(&["ls", "-u", &url]).failed(69).map(str::to_owned);
    assert!(what.contains("engine unreachable"), "{what}");
}

#[test]
fn what_makes_no_sense_for_a_socket_is_refused() {
    let sandbox = Sandbox::new("serve-socket-wrong");
    std::fs::write(sandbox.folder().join("file"), "mine").unwrap();
    for (args, exit) in [
        (&["--listen", "unix:"][..], 64),
        (&["--listen", "unix:s", "--socket-mode", "rw"], 64),
        (&["--listen", "unix:s", "--socket-mode", "1777"], 64),
        (&["--listen", "unix:s", "--tls-cert", "c", "--tls-key", "k"], 64),
        (&["--listen", "127.0.0.1:0", "--socket-mode", "660"], 64),
        (&["--listen", &format!("unix:{}/file", sandbox.folder().display())], 73),
        (&["--listen", &format!("unix:{}", "x".repeat(200))], 73),
    ] {
        sandbox.run(&[&["serve"], args].concat()).failed(exit);
    }
    assert_eq!(std::fs::read_to_string(sandbox.folder().join("file")).unwrap(), "mine");
}

/// As a terminal that is closed, or a `systemctl reload`, sends it.
#[test]
fn a_hangup_does_not_end_a_server_that_has_no_files_to_read_again() {
    let sandbox = Sandbox::new("serve-hangup");
    let (server, socket) = start(&sandbox, &["--log-level", "info"]);
    kill_process(Pid::from_child(&server), Signal::HUP).unwrap();
    let answer = post(&socket, "/v1/holds", r#"{"name":"x"}"#);
    assert!(answer.starts_with("HTTP/1.1 201"), "{answer}");
    kill_process(Pid::from_child(&server), Signal::TERM).unwrap();
    let ended = server.ended();
    assert_eq!(ended.exit, Some(0), "{ended:?}");
    assert!(ended.stderr.contains("there are no files to read again"), "{ended:?}");
}
