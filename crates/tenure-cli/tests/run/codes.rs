//! Exit codes, their messages, and that nothing is left locked.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use crate::run::test_env::{TestEnv, until};

on_every_engine!(
    the_exit_code_is_the_commands_own,
    what_cannot_be_started_leaves_nothing_locked,
    busy_has_a_code_of_its_own_that_can_be_chosen,
    a_line_that_is_long_enough_is_not_joined,
    the_status_tells_a_command_that_ends_with_75_from_a_busy_name,
    a_command_that_runs_too_long_is_stopped,
    slots_readers_and_writers_share_as_they_say,
    a_name_stays_taken_for_hold_for_and_nobody_waits_for_that,
    what_others_see_of_it,
    whoever_holds_a_name_is_told_instead_of_waiting_for_itself,
    whoever_waits_for_what_is_held_around_it_is_told_at_once,
    whoever_would_wait_behind_a_writer_that_waits_for_it_is_told_at_once,
    a_run_within_a_run_shows_itself_and_not_the_outer_one,
    with_v_it_says_what_it_does,
    logs_as_json_have_values_and_no_rust,
);

fn the_exit_code_is_the_commands_own(env: &TestEnv) {
    for code in [0, 1, 2, 64, 75, 79, 124, 126, 127, 128, 255] {
        let ended = env.end(&["run", "x", "--", "sh", "-c", &format!("exit {code}")]);
        assert_eq!((ended.code, &*ended.err), (Some(code), ""), "{code}");
    }
    for (signal, number) in [("KILL", 9), ("TERM", 15), ("USR1", 10), ("SEGV", 11), ("PIPE", 13)] {
        let ended = env.end(&["run", "x", "--", "sh", "-c", &format!("kill -{signal} $$")]);
        assert_eq!((ended.code, &*ended.err), (Some(128 + number), ""), "{signal}");
    }
    assert_eq!(env.end(&["run", "x", "-c", "exit 7"]).code, Some(7));
    assert!(env.view("x").is_none(), "and nothing is left");
}

fn what_cannot_be_started_leaves_nothing_locked(env: &TestEnv) {
    fs::write(env.path("not-executable"), "#!/bin/sh\n").unwrap();
    fs::write(env.path("no-interpreter"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(env.path("no-interpreter"), fs::Permissions::from_mode(0o755)).unwrap();
    for (program, code) in [
        ("no-such-program-anywhere", 127),
        ("./no-such-file", 127),
        ("", 127),
        ("./no-interpreter", 127),
        ("./not-executable", 126),
        (".", 126),
        ("./not-executable/below", 126),
    ] {
        let ended = env.end(&["run", "x", "--", program]);
        assert_eq!(ended.code, Some(code), "{program}: {}", ended.err);
        assert!(ended.err.contains("nothing is left locked"), "{program}: {}", ended.err);
        assert!(env.view("x").is_none(), "{program}");
    }
}

fn a_line_that_is_long_enough_is_not_joined(env: &TestEnv) {
    let _holder = env.start(&["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 600"]);
    env.lines("ready", 1);
    let _waiter = env.start(&["run", "--max-waiters", "1", "x", "--", "touch", "ran"]);
    until("it stands in line", || env.waiters("x") == 1);
    let ended = env.end(&["run", "--max-waiters", "1", "x", "--", "touch", "ran"]);
    assert_eq!(ended.code, Some(75), "{}", ended.err);
    assert!(ended.err.contains("the line is full: its limit is 1"), "{}", ended.err);
    assert_eq!(env.waiters("x"), 1);
    assert!(!env.path("ran").exists());
}

fn busy_has_a_code_of_its_own_that_can_be_chosen(env: &TestEnv) {
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 600"]);
    env.lines("ready", 1);
    let ended = env.end(&["run", "-n", "x", "--", "touch", "ran"]);
    assert_eq!(ended.code, Some(75));
    assert!(ended.err.starts_with("error[T010]: busy: \"x\" is held by "), "{}", ended.err);
    assert!(ended.err.contains(&format!(":{}", holder.pid())), "{}", ended.err);
    assert_eq!(env.end(&["run", "-w", "2s", "x", "--", "touch", "ran"]).code, Some(75));
    assert_eq!(env.end(&["run", "-n", "-E", "9", "x", "--", "touch", "ran"]).code, Some(9));
    let quiet = env.end(&["run", "-n", "-E", "0", "x", "--", "touch", "ran"]);
    assert_eq!((quiet.code, &*quiet.err), (Some(0), ""), "skipped without a word");
    assert!(!env.path("ran").exists());
    assert_eq!(env.waiters("x"), 0, "and nobody stands in line");
}

fn the_status_tells_a_command_that_ends_with_75_from_a_busy_name(env: &TestEnv) {
    let status = |words: &[&str]| {
        let all = [&["run", "--json-status", "status", "x"], words].concat();
        (env.end(&all).code, env.read("status"))
    };
    let (code, json) = status(&["--", "sh", "-c", "exit 75"]);
    assert_eq!(code, Some(75));
    let begins = r#"{"v":1,"outcome":"ran","exit":75,"child":{"code":75,"signal":null},"fence":"#;
    assert!(json.starts_with(begins) && json.ends_with("}\n"), "{json}");
    let (code, json) = status(&["--", "sh", "-c", "kill -9 $$"]);
    assert_eq!(code, Some(137));
    assert!(
        json.contains(r#""outcome":"ran","exit":137,"child":{"code":null,"signal":9}"#),
        "{json}"
    );
    let (_, json) = status(&["--", "no-such-program"]);
    assert!(json.contains(r#""outcome":"failed","exit":127,"child":null"#), "{json}");

    let _holder = env.start(&["run", "x", "--", "sh", "-c", "echo > ready; exec sleep 600"]);
    env.lines("ready", 1);
    let (code, json) = status(&["-n", "--", "true"]);
    assert_eq!(code, Some(75));
    assert_eq!(json, "{\"v\":1,\"outcome\":\"busy\",\"exit\":75,\"child\":null,\"fence\":null}\n");

    let ended = env.end(&["run", "--json-status", "no/such/folder", "y", "--", "touch", "ran"]);
    assert_eq!(ended.code, Some(73), "{}", ended.err);
    assert!(!env.path("ran").exists(), "it is said before anything is run");
}

fn a_command_that_runs_too_long_is_stopped(env: &TestEnv) {
    let gentle = ["run", "--max-run", "100ms", "x", "--", "sleep", "600"];
    let ended = env.end(&gentle);
    assert_eq!(ended.code, Some(124), "{}", ended.err);
    assert!(ended.err.starts_with("error: \"sleep\" was stopped after 100ms\n"), "{}", ended.err);
    let line = "trap '' TERM; while :; do sleep 1; done";
    let stubborn = ["run", "--max-run", "100ms", "-k", "100ms", "x", "-c", line];
    assert_eq!(env.end(&stubborn).code, Some(124));
    let line = "trap 'echo bye; exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let polite = env.end(&["run", "--max-run", "1500ms", "x", "-c", line]);
    assert_eq!((polite.code, &*polite.out), (Some(124), "bye\n"));
    let line = "trap 'exit 3' USR1; while :; do sleep 0.01; done";
    let chosen = [
        "run",
        "--max-run",
        "1500ms",
        "--signal",
        "USR1",
        "--json-status",
        "status",
        "x",
        "-c",
        line,
    ];
    assert_eq!(env.end(&chosen).code, Some(124));
    let json = env.read("status");
    assert!(json.contains(r#""outcome":"max_run","exit":124,"child":{"code":3,"#), "{json}");
    assert!(env.view("x").is_none());
}

fn slots_readers_and_writers_share_as_they_say(env: &TestEnv) {
    let line = |name: &str| format!("echo >> {name}; exec sleep 600");
    let held = |name: &str, words: &[&str]| {
        let count = env.read(name).lines().count();
        let line = line(name);
        let started = env.start(&[&["run"], words, &[name, "-c", &line]].concat());
        env.lines(name, count + 1);
        started
    };
    let _slots = [held("api", &["-j", "2"]), held("api", &["-j", "2"])];
    assert_eq!(env.end(&["run", "-n", "-j", "2", "api", "--", "true"]).code, Some(75));
    assert_eq!(env.end(&["run", "-n", "-j", "3", "api", "--", "true"]).code, Some(64));
    let _readers = [held("catalog", &["-s"]), held("catalog", &["-s"])];
    assert_eq!(env.end(&["run", "-n", "-x", "catalog", "--", "true"]).code, Some(75));
    assert_eq!(env.end(&["run", "-n", "catalog", "--", "true"]).code, Some(64), "all must agree");
    let kind = |words: &[&str]| {
        let print = ["--", "sh", "-c", "echo $TENURE_KIND"];
        env.end(&[&["run"], words, &print].concat()).out
    };
    // As `ls`, the logs and the metrics call it.
    assert_eq!(kind(&["-s", "a"]), "rwlock\n");
    assert_eq!(kind(&["-x", "b"]), "rwlock\n");
    assert_eq!(kind(&["-j", "2", "c"]), "sem\n");
    assert_eq!(kind(&["d"]), "lock\n");
}

fn a_name_stays_taken_for_hold_for_and_nobody_waits_for_that(env: &TestEnv) {
    // Its output goes through pipes, which a leftover process must not keep open; it runs far longer than the test.
    let line = "$TENURE run --hold-for 30m x -- echo done 9>&1; echo $?";
    let ended = env.shell(line);
    assert_eq!((&*ended.out, &*ended.err), ("done\n0\n", ""));
    assert_eq!(env.end(&["run", "-n", "x", "--", "true"]).code, Some(75), "it is still taken");

    let short = env.end(&["run", "--hold-for", "500ms", "y", "--", "true"]);
    assert_eq!(short.code, Some(0));
    assert_eq!(env.end(&["run", "y", "--", "true"]).code, Some(0), "and then it is free");
    // The leftover process ends when asked to.
    let view = env.view("x").unwrap();
    let pid = view.holders[0].details.meta.iter().find(|(key, _)| key == "pid").unwrap();
    let mine = format!("hold-supervisor of {}", pid.1);
    let supervisor = crate::run::test_env::find(&mine).expect("the one that stays");
    rustix::process::kill_process(supervisor, rustix::process::Signal::TERM).unwrap();
    until("it is gone", || !crate::run::test_env::lives(supervisor));
}

fn what_others_see_of_it(env: &TestEnv) {
    let words = [
        "run",
        "--reason",
        "nightly",
        "--meta",
        "ticket=7",
        "x",
        "--",
        "sh",
        "-c",
        "echo > ready; exec sleep 600",
    ];
    let holder = env.start(&words);
    env.lines("ready", 1);
    let view = env.view("x").unwrap();
    let details = &view.holders[0].details;
    assert!(details.owner.ends_with(&format!(":{}", holder.pid())), "{}", details.owner);
    assert_eq!(details.reason.as_deref(), Some("nightly"));
    let meta = |key: &str| details.meta.iter().find(|(k, _)| k == key).map(|(_, v)| v.as_str());
    assert_eq!((meta("ticket"), meta("cmd"), meta("ttl")), (Some("7"), Some("sh"), Some("30s")));
    assert_eq!(meta("pid").map(str::to_owned), Some(holder.pid().to_string()));
    assert!(meta("host").is_some());
}

fn whoever_holds_a_name_is_told_instead_of_waiting_for_itself(env: &TestEnv) {
    let inner = |words: &str| {
        let line = format!("{} run {words} -- true; echo $?", env!("CARGO_BIN_EXE_tenure"));
        env.end(&["run", "x", "-c", &line])
    };
    let ended = inner("x");
    assert_eq!((ended.code, &*ended.out), (Some(0), "64\n"));
    assert!(ended.err.starts_with("error[T011]: you already hold \"x\""), "{}", ended.err);
    assert_eq!(inner("-n x").out, "75\n", "whoever does not wait is only told that it is busy");
    assert_eq!(inner("y").out, "0\n");
    let line = format!("{} run -j 2 x -- true; echo $?", env!("CARGO_BIN_EXE_tenure"));
    assert_eq!(env.end(&["run", "-j", "2", "x", "-c", &line]).out, "0\n", "there is a second slot");
    let run = env!("CARGO_BIN_EXE_tenure");
    let line = format!("TENURE_WITHIN=lock:7:x {run} run -w 50ms x -- true; echo $?");
    assert_eq!(env.end(&["run", "x", "-c", &line]).out, "75\n", "an old fence says nothing");
}

/// However many others are held in between.
fn whoever_waits_for_what_is_held_around_it_is_told_at_once(env: &TestEnv) {
    let run = format!("{} run", env!("CARGO_BIN_EXE_tenure"));
    let within = |first: &str, second: &str, third: &str| {
        let third = format!("{run} {third} -- true; echo $?");
        let second = format!("{run} {second} -c '{third}'");
        let mut words: Vec<_> = std::iter::once("run").chain(first.split(' ')).collect();
        words.extend(["-c", &second]);
        env.end(&words)
    };
    // One that would never be over is asked for when this much is right.
    let ended = within("a", "b", "-w 20s a");
    assert_eq!((ended.code, &*ended.out), (Some(0), "64\n"), "{}", ended.err);
    assert!(ended.err.starts_with("error[T011]: you already hold \"a\""), "{}", ended.err);
    assert_eq!(within("a", "b", "a").out, "64\n");
    let acquire = format!("{} acquire -w 20s a; echo $?", env!("CARGO_BIN_EXE_tenure"));
    assert_eq!(env.end(&["run", "a", "-c", &acquire]).out, "64\n");
    assert_eq!(within("a", "b", "-n a").out, "75\n");
    assert_eq!(within("a", "b", "c").out, "0\n");
    assert_eq!(within("-j 3 a", "-j 3 a", "-j 3 a").out, "0\n", "there is a third slot");
    assert_eq!(within("-j 2 a", "-j 2 a", "-j 2 a").out, "64\n", "both slots are its own");
    assert_eq!(within("-s a", "b", "-s a").out, "0\n", "readers share");
    assert_eq!(within("-s a", "b", "-x a").out, "64\n");
    assert_eq!(within("a%20b", "b", "a%20b").out, "64\n");
    // A name of another namespace is another name.
    assert_eq!(within("a", "--ns n b", "--ns n a").out, "0\n");
}

/// Readers share, but not past a writer: it waits for the reader around, which waits for the one inside.
fn whoever_would_wait_behind_a_writer_that_waits_for_it_is_told_at_once(env: &TestEnv) {
    let tenure = env!("CARGO_BIN_EXE_tenure");
    for inner in ["run -s -w 60s a -- true", "acquire -s -w 60s a"] {
        let inner = format!("until test -f go; do sleep 0.05; done; {tenure} {inner}; echo $?");
        let outer = env.start(&[
            "run",
            "-s",
            "--owner",
            "ada",
            "a",
            "-c",
            &format!("echo > ready; {inner}"),
        ]);
        env.lines("ready", 1);
        let writer = env.start(&["run", "-x", "--owner", "bo", "a", "--", "true"]);
        until("the writer stands in line", || env.waiters("a") == 1);
        std::fs::write(env.path("go"), "").unwrap();
        let ended = outer.end();
        assert_eq!((ended.code, &*ended.out), (Some(0), "64\n"), "{inner}: {}", ended.err);
        let says = "error[T011]: you already hold \"a\", and bo waits for that to end";
        assert!(ended.err.starts_with(says), "{}", ended.err);
        assert_eq!(writer.end().code, Some(0));
        std::fs::remove_file(env.path("ready")).unwrap();
        std::fs::remove_file(env.path("go")).unwrap();
    }
}

fn a_run_within_a_run_shows_itself_and_not_the_outer_one(env: &TestEnv) {
    let owner = |name: &str| {
        let view = env.view(name).unwrap();
        let details = &view.holders[0].details;
        let pid = details.meta.iter().find(|(key, _)| key == "pid").unwrap();
        assert!(details.owner.ends_with(&format!(":{}", pid.1)), "{details:?}");
        details.owner.clone()
    };
    let inner = format!("{} run b -c 'echo > ready; sleep 600'", env!("CARGO_BIN_EXE_tenure"));
    let _outer = env.start(&["run", "a", "-c", &inner]);
    env.lines("ready", 1);
    assert_ne!(owner("a"), owner("b"));
    // An owner that was set applies to all runs inside.
    let inner = format!("{} run d -c 'echo > named; sleep 600'", env!("CARGO_BIN_EXE_tenure"));
    let _outer = env.start(&["run", "--owner", "ada", "c", "-c", &inner]);
    env.lines("named", 1);
    assert_eq!(env.view("d").unwrap().holders[0].details.owner, "ada");
}

fn with_v_it_says_what_it_does(env: &TestEnv) {
    let ended = env.end(&["run", "-v", "x", "--", "sh", "-c", "exit 3"]);
    assert_eq!(ended.code, Some(3));
    let events: Vec<_> =
        ended.err.lines().map(|line| line.split_whitespace().nth(2).unwrap_or_default()).collect();
    let all = ["run.asked", "run.granted", "run.started", "run.ended", "run.released"];
    assert_eq!(events, all, "{}", ended.err);
    assert!(ended.err.contains("code=3") && ended.err.contains("kind=lock"), "{}", ended.err);
}

/// What programs read has numbers for numbers, and objects for pairs.
fn logs_as_json_have_values_and_no_rust(env: &TestEnv) {
    let words = "run -vv --log-format json -s --meta a=b --meta c=d\u{202e}\"e x -- true";
    let ended = env.end(&words.split(' ').collect::<Vec<_>>());
    assert_eq!(ended.code, Some(0));
    let granted = ended.err.lines().find(|line| line.contains("lock.granted")).unwrap();
    assert!(granted.contains(r#""meta":{"a":"b","c":"d\u202e\"e","host":""#), "{granted}");
    assert!(granted.contains(r#""kind":"rwlock""#), "{granted}");
    for line in ended.err.lines() {
        let number = line.split("\"fence\":").nth(1).and_then(|rest| rest.chars().next());
        assert!(number.is_none_or(|first| first.is_ascii_digit()), "{line}");
        assert!(!line.contains("[(") && !line.contains("Some("), "{line}");
    }
}

/// S64: too few descriptors.
#[test]
fn without_descriptors_it_is_said_and_nothing_runs() {
    let env = TestEnv::file();
    let mut codes = Vec::new();
    for limit in 4..24 {
        let ended = env.shell(&format!("ulimit -n {limit}; exec $TENURE run x -- touch ran"));
        assert!(ended.code == Some(0) || !ended.err.is_empty(), "{limit}: {ended:?}");
        assert!(ended.err.matches("help:").count() <= 1, "{limit}: said once: {}", ended.err);
        assert!(!ended.err.contains("panicked"), "{limit}: {}", ended.err);
        assert_eq!(ended.code == Some(0), env.path("ran").exists(), "{limit}: {ended:?}");
        let _ = fs::remove_file(env.path("ran"));
        codes.push(ended.code);
    }
    assert!(codes.contains(&Some(70)), "{codes:?}");
    assert!(env.view("x").is_none());
    for command in
        ["ls", "show x", "acquire -n x", "doctor", "wait x", "leader x", "once -n x -- true"]
    {
        for limit in 4..24 {
            let ended = env.shell(&format!("ulimit -n {limit}; exec $TENURE {command}"));
            let said =
                ended.code == Some(0) || ended.err.contains("help:") || !ended.out.is_empty();
            assert!(said && !ended.err.contains("panicked"), "{limit}, {command}: {ended:?}");
        }
    }
}

/// Arguments that are known to be wrong are refused before an engine is asked, and nothing runs.
#[test]
fn a_ttl_that_is_too_short_for_the_commands_end_is_refused() {
    let env = TestEnv::file();
    for words in [
        &["run", "-t", "5s", "-k", "10s", "x", "--", "touch", "ran"][..],
        &["run", "-t", "29s", "-k", "10s", "x", "--", "touch", "ran"],
        &["run", "-k", "11s", "x", "--", "touch", "ran"],
    ] {
        let ended = env.end(words);
        assert_eq!(ended.code, Some(64), "{words:?}: {}", ended.err);
        assert!(ended.err.starts_with("error[T014]: ttl "), "{}", ended.err);
    }
    let mut command = env.tenure(&["run", "-k", "2s", "x", "--", "touch", "ran"]);
    command.env("TENURE_URL", format!("{}?ttl=5s", env.url));
    let ended = crate::run::test_env::Ended::from(command.output().unwrap());
    assert_eq!(ended.code, Some(64), "the URL's own ttl counts: {}", ended.err);
    assert!(ended.err.starts_with("error[T014]"), "{}", ended.err);
    assert!(!env.path("ran").exists());
    assert_eq!(env.end(&["run", "-t", "30s", "-k", "10s", "x", "--", "true"]).code, Some(0));
}

/// Only others who hold it make a name busy: a cron job must not be skipped in silence for as long as an
/// outage lasts.
#[test]
fn what_the_engine_cannot_do_is_69_and_never_busy() {
    let env = TestEnv::redis();
    let server = env.redis.as_ref().unwrap();
    for (word, settings, back) in [
        ("OOM", ["CONFIG", "SET", "maxmemory", "1"], ["CONFIG", "SET", "maxmemory", "0"]),
        (
            "NOREPLICAS",
            ["CONFIG", "SET", "min-replicas-to-write", "1"],
            ["CONFIG", "SET", "min-replicas-to-write", "0"],
        ),
    ] {
        server.command(&settings).unwrap();
        for words in [
            &["run", "-w", "700ms", "-E", "0", "x", "--", "touch", "ran"][..],
            &["run", "-n", "-E", "0", "x", "--", "touch", "ran"],
            &["once", "-w", "700ms", "x", "--", "touch", "ran"],
            &["acquire", "-w", "700ms", "x"],
        ] {
            let ended = env.end(words);
            assert_eq!(ended.code, Some(69), "{words:?}: {}", ended.err);
            assert!(ended.err.contains(word), "{words:?}: {}", ended.err);
        }
        server.command(&back).unwrap();
    }
    assert!(!env.path("ran").exists());
}
