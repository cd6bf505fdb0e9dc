//! Holds for scripts: `acquire`, `renew`, `release`, `check`.

use crate::sandbox;

use std::fs::File;
use std::io::{Read, Write};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Lines, Ran, Sandbox, Transcript, eventually, ran};

/// Runs a command with a claim in its environment.
fn with_claim(sandbox: &Sandbox, claim: &str, args: &[&str]) -> Ran {
    ran(sandbox.command(args).env("TENURE_CLAIM", claim))
}

fn waiters(sandbox: &Sandbox, name: &str) -> usize {
    let view = sandbox.with_library(async |tenure| tenure.inspect(name).await.unwrap());
    view.map_or(0, |view| view.waiters.len())
}

#[test]
fn what_is_acquired_is_checked_renewed_and_released() {
    let sandbox = Sandbox::new("scripts-life");
    let mut all = Transcript::new(&sandbox);
    let acquired = all.run("acquire deploy -t 20s --reason 'v2 rollout' --meta ticket=4711");
    let claim = acquired.worked().trim();
    assert!(claim.starts_with("t1-") && !claim.contains(char::is_whitespace), "{claim}");
    let claim = &[("TENURE_CLAIM", claim)];
    let hidden = |all: &mut Transcript<'_>, line: &str| all.run_with(claim, line);
    hidden(&mut all, "check deploy").worked();
    hidden(&mut all, "check deploy --json").worked();
    all.run("show deploy").worked();
    all.run("acquire deploy -n").failed(75);
    all.run("acquire deploy -n -s").failed(64);
    all.run("acquire deploy -n -j 3").failed(64);
    hidden(&mut all, "renew deploy").worked();
    hidden(&mut all, "renew deploy -t 40 --json").worked();
    // A slip of the pen is no hold that has ended.
    for line in ["check other", "renew other", "release other"] {
        hidden(&mut all, line).failed(64);
    }
    hidden(&mut all, "release deploy").worked();
    hidden(&mut all, "release deploy").failed(1);
    assert_eq!(hidden(&mut all, "check deploy").exit, Some(1));
    assert_eq!(hidden(&mut all, "check deploy --json").exit, Some(1));
    hidden(&mut all, "renew deploy").failed(1);
    all.run("acquire deploy -n --json").worked();
    all.compare("scripts-life");
}

#[test]
fn semaphores_and_read_write_locks_say_how_they_are_used() {
    let sandbox = Sandbox::new("scripts-kinds");
    let mut all = Transcript::new(&sandbox);
    for line in ["acquire api -j 5 -n", "acquire api -j 5 -n", "acquire catalog -s -n"] {
        all.run(line).worked();
    }
    all.run("acquire api -j 3 -n").failed(64);
    all.run("acquire api -n").failed(64);
    all.run("acquire api -x -n").failed(64);
    all.run("acquire catalog -n").failed(64);
    all.run("acquire catalog -j 2 -n").failed(64);
    all.run("acquire catalog -x -n").failed(75);
    all.run("acquire catalog -s -n").worked();
    all.compare("scripts-kinds");
}

#[test]
fn the_claim_can_come_from_standard_input() {
    let sandbox = Sandbox::new("scripts-stdin");
    let claim = sandbox.run(&["acquire", "deploy"]);
    let mut child = sandbox.start(&["release", "deploy", "-"]);
    child.stdin.take().unwrap().write_all(claim.worked().as_bytes()).unwrap();
    child.ended().worked();
    assert_eq!(sandbox.run(&["show", "deploy"]).exit, Some(1));
    // An endless one is not read to its end.
    let endless = File::open("/dev/zero").unwrap();
    ran(sandbox.command(["check", "deploy", "-"]).stdin(endless)).failed(64);
}

#[test]
fn a_hold_that_nobody_renews_ends_and_its_release_says_so() {
    let sandbox = Sandbox::new("scripts-late");
    let claim = sandbox.run(&["acquire", "deploy", "-t", "60ms"]);
    eventually("its time runs out", || {
        with_claim(&sandbox, &claim.stdout, &["check", "deploy"]).exit == Some(1)
    });
    let ran = with_claim(&sandbox, &claim.stdout, &["release", "deploy"]);
    assert!(ran.stderr.starts_with("error[T013]: "), "{ran:?}");
    ran.failed(1);
}

#[test]
fn whoever_waits_says_on_whom_and_gets_it_in_the_end() {
    let sandbox = Sandbox::new("scripts-wait");
    let hold = sandbox.hold("backup");
    let second = sandbox.queue("backup", "web-5:912");
    let mut child = sandbox.start(&["acquire", "backup"]);
    let notes = Lines::of(child.stderr.take().unwrap());
    let note = notes.next();
    let begins =
        r#"tenure: waiting for "backup": held by web-3:4121 (./backup.sh, "nightly dump") for "#;
    let ends = "; you are 2nd of 2. Ctrl-C leaves the line.";
    assert!(note.starts_with(begins) && note.ends_with(ends), "{note}");
    assert!(note.contains(", renewed ") && note.contains(" ago; "), "{note}");
    second.abort();
    drop(hold);
    let note = notes.next();
    assert!(
        note.starts_with(r#"tenure: acquired "backup" after "#) && note.contains("s, fence "),
        "{note}"
    );
    let ran = child.ended();
    assert_eq!(ran.exit, Some(0));
    with_claim(&sandbox, &ran.stdout, &["release", "backup"]).worked();
}

#[test]
fn a_signal_while_waiting_leaves_the_line() {
    let sandbox = Sandbox::new("scripts-signals");
    let hold = sandbox.hold("backup");
    for signal in [Signal::INT, Signal::TERM, Signal::HUP, Signal::QUIT] {
        let child = sandbox.start(&["acquire", "backup", "-q"]);
        eventually("it waits", || waiters(&sandbox, "backup") == 1);
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap()).unwrap();
        kill_process(pid, signal).unwrap();
        let ran = child.ended();
        assert_eq!((ran.exit, &*ran.stdout), (Some(128 + signal.as_raw()), ""), "{ran:?}");
        assert_eq!(waiters(&sandbox, "backup"), 0);
    }
    assert!(hold.is_live());
}

#[test]
fn a_claim_that_nobody_can_read_is_released_again() {
    let sandbox = Sandbox::new("scripts-unread");
    let full = File::create("/dev/full").unwrap();
    ran(sandbox.command(["acquire", "deploy"]).stdout(full)).failed(74);
    assert_eq!(sandbox.run(&["show", "deploy"]).exit, Some(1), "nobody holds it");

    // The reader of a pipe that has gone before the claim was there.
    let hold = sandbox.hold("deploy");
    let mut child = sandbox.start(&["acquire", "deploy"]);
    eventually("it waits", || waiters(&sandbox, "deploy") == 1);
    drop(child.stdout.take());
    drop(hold);
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    child.wait().unwrap();
    assert_eq!(sandbox.run(&["show", "deploy"]).exit, Some(1), "nobody holds it");
}
