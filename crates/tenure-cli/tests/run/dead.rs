//! Who waited and was killed is not there any more, whichever command looks.

use std::time::Duration;

use rustix::process::Signal;

use crate::run::test_env::{Started, TestEnv, until};

on_every_engine!(
    who_waited_and_was_killed_is_not_shown,
    a_name_that_only_the_dead_wait_for_is_free,
    readers_behind_a_writer_that_was_killed_go_on,
);

/// Stands in line, and is killed there.
fn killed_in_line(env: &TestEnv, words: &[&str], name: &str, waiters: usize) {
    let waiter: Started = env.start(words);
    until("it stands in line", || env.waiters(name) == waiters);
    if env.url.starts_with("postgres") {
        // A process listens from its first wait on. Before it does, nobody can tell that it has died.
        std::thread::sleep(Duration::from_secs(2));
    }
    waiter.signal(Signal::KILL);
    waiter.end();
}

fn who_waited_and_was_killed_is_not_shown(env: &TestEnv) {
    let claim = env.end(&["acquire", "x"]);
    assert_eq!(claim.code, Some(0), "{claim:?}");
    killed_in_line(env, &["acquire", "x"], "x", 1);
    until("the engine has noticed", || env.waiters("x") == 0);
    for words in [&["ls", "--json"][..], &["show", "x", "--json"]] {
        let shown = env.end(words);
        assert!(shown.out.contains(r#""state":"held""#), "{words:?}: {shown:?}");
        assert!(shown.out.contains(r#""waiters":0"#), "{words:?}: {shown:?}");
    }
    let shown = env.end(&["show", "x"]);
    assert!(!shown.out.contains("in line"), "{shown:?}");
}

fn a_name_that_only_the_dead_wait_for_is_free(env: &TestEnv) {
    let claim = env.end(&["acquire", "x"]);
    killed_in_line(env, &["acquire", "x"], "x", 1);
    let released = env.tenure(&["release", "x"]).env("TENURE_CLAIM", claim.out.trim()).output();
    assert!(released.unwrap().status.success());
    // Only a look: it must not say that it is taken.
    let looked = env.end(&["wait", "x", "-n"]);
    assert_eq!(looked.code, Some(0), "{looked:?}");
    let waited = env.start(&["wait", "x", "-w", "10s"]).end();
    assert_eq!(waited.code, Some(0), "{waited:?}");
    assert_eq!(env.end(&["show", "x"]).code, Some(1), "it is free");
    let listed = env.end(&["ls", "--json"]);
    assert_eq!(listed.out, "", "{listed:?}");
}

fn readers_behind_a_writer_that_was_killed_go_on(env: &TestEnv) {
    let claim = env.end(&["acquire", "-s", "x"]);
    assert_eq!(claim.code, Some(0), "{claim:?}");
    killed_in_line(env, &["acquire", "-x", "x"], "x", 1);
    let read = env.end(&["run", "-s", "-n", "x", "--", "echo", "read"]);
    assert_eq!((read.code, &*read.out), (Some(0), "read\n"), "{read:?}");
}
