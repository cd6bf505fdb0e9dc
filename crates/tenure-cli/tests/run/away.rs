//! A server that goes away, hangs and comes back, and what that means for exit codes.

use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use crate::run::test_env::{Started, TestEnv, until};

#[test]
fn a_server_that_dies_while_one_waits_is_69_when_the_wait_is_over() {
    for hung in [false, true] {
        let env = TestEnv::redis();
        let server = env.redis.as_ref().unwrap();
        let _holder = env.start(&["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 600"]);
        env.lines("ready", 1);
        let began = Instant::now();
        let waits = env.start(&["run", "-w", "6s", "-E", "0", "x", "--", "touch", "ran"]);
        until("it stands in line", || env.waiters("x") == 1);
        if hung {
            server.pause().unwrap();
        } else {
            server.kill().unwrap();
        }
        let ended = waits.end();
        let took = began.elapsed();
        assert_eq!(ended.code, Some(69), "{}", ended.err);
        assert!(ended.err.contains("error[T003]"), "{}", ended.err);
        assert!(took < Duration::from_secs(8), "a wait of 6 s took {took:?}");
        assert!(!env.path("ran").exists());
    }
}

#[test]
fn a_server_that_is_down_is_waited_for_as_long_as_for_a_turn() {
    let env = TestEnv::redis();
    let server = env.redis.as_ref().unwrap();
    server.kill().unwrap();
    for words in [
        &["run", "-w", "60s", "x", "--", "echo", "ran"][..],
        &["run", "x", "--", "echo", "ran"],
        &["acquire", "-w", "60s", "y"],
        &["wait", "-w", "60s", "z"],
        &["wait", "z"],
    ] {
        let waits = env.start(words);
        std::thread::sleep(Duration::from_secs(2));
        server.restart().unwrap();
        let ended = waits.end();
        assert_eq!(ended.code, Some(0), "{words:?}: {}", ended.err);
        server.kill().unwrap();
    }
    for words in [&["run", "-n", "x", "--", "touch", "ran"][..], &["wait", "-n", "x"]] {
        let began = Instant::now();
        let ended = env.end(words);
        assert_eq!(ended.code, Some(69), "{words:?}: {}", ended.err);
        assert!(began.elapsed() < Duration::from_secs(4), "{words:?} took {:?}", began.elapsed());
    }
}

/// `wait` looks again and again: a look that fails says nothing about the name.
#[test]
fn a_server_that_restarts_does_not_end_a_wait_until_a_name_is_free() {
    let env = TestEnv::redis();
    let server = env.redis.as_ref().unwrap();
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 600"]);
    env.lines("ready", 1);
    let mut waits = env.start(&["wait", "-w", "90s", "x"]);
    std::thread::sleep(Duration::from_secs(1));
    server.kill().unwrap();
    // Longer than an outage without `-w` may last.
    std::thread::sleep(Duration::from_secs(7));
    assert!(waits.has_ended().is_none(), "an outage within -w has ended the wait");
    server.restart().unwrap();
    drop(holder);
    let ended = waits.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    // Nor is one that lasts longer than the wait waited for.
    let waits = env.start(&["wait", "-w", "3s", "x"]);
    server.kill().unwrap();
    let began = Instant::now();
    let ended = waits.end();
    assert_eq!(ended.code, Some(69), "{}", ended.err);
    assert!(began.elapsed() < Duration::from_secs(8), "a wait of 3 s took {:?}", began.elapsed());
}

#[test]
fn an_engine_that_is_not_there_is_69_and_nothing_runs() {
    let env = TestEnv::redis();
    env.redis.as_ref().unwrap().kill().unwrap();
    // Nor if the URL's outage policy says so for other programs.
    let open = format!("{}?on_outage=open&connect_timeout=500ms", env.url);
    for args in [&[][..], &["--url", &open]] {
        let ended = env.end(&[args, &["run", "x", "--", "touch", "ran"]].concat());
        assert_eq!(ended.code, Some(69), "{}", ended.err);
        assert!(ended.err.contains("error[T003]"), "{}", ended.err);
        assert!(!env.path("ran").exists());
    }
}

/// The server was stopped when it looked at the line before joining it.
#[test]
fn whoever_is_found_to_wait_for_itself_is_told_later() {
    let env = TestEnv::redis();
    let server = env.redis.as_ref().unwrap();
    let line = "echo $TENURE_WITHIN > within; exec sleep 600";
    let mut outer = env.start(&["run", "-s", "--ttl", "60s", "a", "-c", line]);
    let within = env.lines("within", 1).remove(0);
    let writer = env.start(&["run", "-x", "--ttl", "60s", "-w", "120s", "a", "--", "true"]);
    until("the writer stands in line", || env.waiters("a") == 1);
    server.pause().unwrap();
    let line =
        format!("TENURE_WITHIN={within} {} run -s -w 90s a -- true", env!("CARGO_BIN_EXE_tenure"));
    let mut command = env.shell_command(&line);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    let inner = Started::new(command);
    // Longer than any question waits for its answer.
    std::thread::sleep(Duration::from_secs(7));
    server.resume().unwrap();
    let ended = inner.end();
    assert_eq!(ended.code, Some(64), "{}", ended.err);
    assert!(ended.err.starts_with("error[T011]: you already hold \"a\""), "{}", ended.err);
    assert!(outer.has_ended().is_none());
    outer.signal(Signal::TERM);
    outer.end();
    assert_eq!(writer.end().code, Some(0));
}
