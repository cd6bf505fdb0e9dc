//! What a power cut leaves of a file: everything that was synced, and nothing else.

use std::fs;
use std::process::{Command, Stdio};

use crate::run::test_env::{Ended, Started, TestEnv, until};

/// An environment whose file has a second copy, `disk`, that gets only synced data.
fn env() -> TestEnv {
    let env = TestEnv::file();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/run/power_cut.c");
    let mut compiler = Command::new("cc");
    let compiled = compiler.args(["-shared", "-fPIC", "-O", "-o"]).arg(env.path("power_cut.so"));
    assert!(compiled.arg(source).status().unwrap().success());
    fs::create_dir(env.path("disk")).unwrap();
    env
}

/// Starts `tenure` with these words on it.
fn start(env: &TestEnv, words: &[&str]) -> Started {
    let mut command = env.tenure(words);
    let disk = env.path("disk");
    command.env("LD_PRELOAD", env.path("power_cut.so"));
    command.env("POWER_CUT_FROM", disk.parent().unwrap()).env("POWER_CUT_TO", &disk);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    Started::new(command)
}

/// The power is back, and the file has the contents of the disk: the same command runs again.
fn after(env: &TestEnv, disk: &str, words: &[&str]) -> Ended {
    let mut command = env.tenure(words);
    command.env("TENURE_URL", format!("file:{}/lines.db", env.path(disk).display()));
    Ended::from(command.output().unwrap())
}

#[test]
fn what_was_started_is_not_started_again_and_what_was_settled_is_replayed() {
    let env = env();
    let charge = "cp -r disk started; echo >> runs; echo paid";
    let first = start(&env, &["once", "k", "-c", charge]).end();
    assert_eq!((first.code, &*first.out), (Some(0), "paid\n"), "{}", first.err);
    let cut = after(&env, "started", &["once", "k", "-c", charge]);
    assert_eq!(cut.code, Some(76), "cut while it ran: {}{}", cut.out, cut.err);
    let cut = after(&env, "disk", &["once", "k", "-c", charge]);
    assert_eq!((cut.code, &*cut.out), (Some(0), "paid\n"), "cut after it: {}", cut.err);
    assert_eq!(env.read("runs").lines().count(), 1);
}

/// The same for one that did not find it free: its turn is handed to it in another's step.
#[test]
fn what_was_started_by_whoever_waited_is_not_started_again() {
    let env = env();
    let fails = "echo >> failed; while ! [ -e go ]; do sleep 0.02; done; exit 1";
    let first = start(&env, &["once", "k", "-c", fails]);
    env.lines("failed", 1);
    let charge = "cp -r disk started; echo >> runs; echo paid";
    let view = || env.ask(async |tenure| tenure.once("k").inspect().await.unwrap());
    let wait = |count| until("it waits", || view().is_some_and(|it| it.waiters.len() == count));
    let second = start(&env, &["once", "k", "-c", charge]);
    wait(1);
    let third = start(&env, &["once", "k", "-c", "echo >> runs"]);
    wait(2);
    fs::write(env.path("go"), "").unwrap();
    assert_eq!(first.end().code, Some(1));
    let second = second.end();
    assert_eq!((second.code, &*second.out), (Some(0), "paid\n"), "{}", second.err);
    let third = third.end();
    assert_eq!((third.code, &*third.out), (Some(0), "paid\n"), "{}", third.err);
    let cut = after(&env, "started", &["once", "k", "-c", charge]);
    assert_eq!(cut.code, Some(76), "{}{}", cut.out, cut.err);
    assert_eq!(env.read("runs").lines().count(), 1);
}

/// The settled outcome may not be on the disk yet: it is synced before it is shown.
#[test]
fn what_a_once_has_left_is_on_the_disk_before_it_is_shown() {
    let env = env();
    assert_eq!(start(&env, &["once", "before", "--", "true"]).end().code, Some(0));
    // This one's disk is another.
    assert_eq!(env.end(&["once", "k", "--", "true"]).code, Some(0));
    let cut = after(&env, "disk", &["show", "k"]);
    assert_eq!(cut.code, Some(1), "it is not there yet: {}{}", cut.out, cut.err);
    let shown = start(&env, &["show", "k"]).end();
    assert_eq!(shown.code, Some(0), "{}{}", shown.out, shown.err);
    let cut = after(&env, "disk", &["show", "k"]);
    assert_eq!(cut.code, Some(0), "{}{}", cut.out, cut.err);
}
