//! `tenure once`: a command runs once, and everyone gets its outcome.

use std::fs;

use rustix::process::{Signal, kill_process};

use crate::run::survivors::{HOLDER, PROCESSES};
use crate::run::test_env::{Ended, Started, TestEnv, lives, rounds, until};

on_every_engine!(
    later_and_elsewhere_the_same_comes_out_and_nothing_runs,
    four_that_come_at_once_run_it_once,
    a_failure_is_not_remembered_unless_it_is_asked_for,
    a_killed_tenure_takes_its_command_along_and_leaves_the_work_unsettled,
    whoever_waits_hears_that_the_first_one_died,
    a_signal_leaves_it_unsettled,
    a_lost_hold_stops_the_command_and_leaves_it_unsettled,
    other_content_is_refused,
    what_cannot_be_started_did_not_happen,
    busy_is_said_by_who_does_not_wait,
    a_reader_that_leaves_does_not_end_the_work,
    a_work_of_a_program_is_replayed_as_it_is,
    the_status_says_whether_it_ran,
);

fn runs(env: &TestEnv) -> usize {
    env.read("runs").lines().count()
}

fn waiters(env: &TestEnv) -> usize {
    let view = env.ask(async |tenure| tenure.once("k").inspect().await.unwrap());
    view.map_or(0, |view| view.waiters.len())
}

#[track_caller]
fn is_unsettled(env: &TestEnv) {
    let Ended { code, out, err } = env.end(&["once", "k", "-c", "echo >> runs"]);
    assert_eq!((code, &*out), (Some(76), ""), "{err}");
    // A note that it waits may come first, if the engine takes its time.
    assert!(err.contains("error[T015]: unsettled: \"k\" was started"), "{err}");
    assert!(err.contains("`tenure once k --rerun -- CMD`"), "{err}");
}

fn later_and_elsewhere_the_same_comes_out_and_nothing_runs(env: &TestEnv) {
    let line = r"echo >> runs; printf 'a\0\377'; echo oops >&2; env | grep -c TENURE_TERM; exit 0";
    let first = env.shell(&format!("\"$TENURE\" once k -c {}", quoted(line)));
    assert_eq!((first.code, &*first.err), (Some(0), "oops\n"));
    for line in ["\"$TENURE\" once k -- false", "\"$TENURE\" once k -t 5s --rerun -- ./missing"] {
        let again = env.shell(line);
        assert_eq!((again.code, &again.out, &again.err), (Some(0), &first.out, &first.err));
    }
    // In the order in which it was written, where there was time to see it.
    let line = "for i in 1 2 3; do echo out $i; sleep 0.2; echo err $i >&2; sleep 0.2; done";
    let line = format!("\"$TENURE\" once order -c {} 2>&1", quoted(line));
    let (first, again) = (env.shell(&line), env.shell(&line));
    assert_eq!(first.out, "out 1\nerr 1\nout 2\nerr 2\nout 3\nerr 3\n");
    assert_eq!((again.code, again.out, runs(env)), (Some(0), first.out, 1));
    // A record with a short `--keep` is forgotten after that time.
    let words = ["once", "--keep", "50ms", "short", "-c", "echo >> runs"];
    until("it runs again", || {
        assert_eq!(env.end(&words).code, Some(0));
        runs(env) == 3
    });
}

fn four_that_come_at_once_run_it_once(env: &TestEnv) {
    let line = "echo >> runs; echo out; echo err >&2; sleep 0.3; exit 0";
    let all: Vec<_> = (0..4).map(|_| env.start(&["once", "k", "-c", line])).collect();
    for one in all {
        let Ended { code, out, err } = one.end();
        assert_eq!((code, &*out, &*err), (Some(0), "out\n", "err\n"));
    }
    assert_eq!(runs(env), 1);
}

fn a_failure_is_not_remembered_unless_it_is_asked_for(env: &TestEnv) {
    let line = "echo >> runs; echo no; exit 3";
    for count in 1..3 {
        let ended = env.end(&["once", "k", "-c", line]);
        assert_eq!((ended.code, &*ended.out, &*ended.err), (Some(3), "no\n", ""));
        assert_eq!(runs(env), count);
    }
    for _ in 0..2 {
        let ended = env.end(&["once", "--keep-failures", "k", "-c", line]);
        assert_eq!((ended.code, &*ended.out), (Some(3), "no\n"));
        assert_eq!(runs(env), 3);
    }
    let ended = env.end(&["once", "--keep-failures", "killed", "-c", "kill -9 $$"]);
    assert_eq!((ended.code, &*ended.err), (Some(137), ""));
    assert_eq!(env.end(&["once", "killed", "--", "true"]).code, Some(137));
}

fn a_killed_tenure_takes_its_command_along_and_leaves_the_work_unsettled(env: &TestEnv) {
    for round in 0..rounds().div_ceil(3) * 2 {
        let _ = fs::remove_file(env.path("pids"));
        let words = ["once", "--rerun", "-t", "2s", "-k", "150ms", "k", "-c", HOLDER];
        let first = env.start(&words);
        let pids = env.pids("pids", PROCESSES);
        match round % 2 {
            0 => first.signal(Signal::KILL),
            _ => kill_process(first.supervisor(), Signal::KILL).unwrap(),
        }
        is_unsettled(env);
        assert!(!pids.iter().any(|pid| lives(*pid)), "round {round}: nothing of it is left");
        let ended = first.end();
        if round % 2 == 1 {
            assert!(ended.err.contains("the work is unsettled"), "{}", ended.err);
        }
    }
    assert_eq!(runs(env), 0);
    let ended = env.end(&["once", "--rerun", "k", "-c", "echo >> runs; echo done"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "done\n"));
    let ended = env.end(&["once", "--rerun", "k", "--", "false"]);
    assert_eq!((ended.code, &*ended.out, runs(env)), (Some(0), "done\n", 1), "it is settled");
}

fn whoever_waits_hears_that_the_first_one_died(env: &TestEnv) {
    let line = "echo >> runs; exec sleep 600";
    let first = env.start(&["once", "-t", "2s", "-k", "100ms", "k", "-c", line]);
    env.lines("runs", 1);
    let refuses = env.start(&["once", "k", "-c", "echo >> runs"]);
    let repeats = env.start(&["once", "--rerun", "k", "-c", "echo >> runs; echo again"]);
    until("both wait", || waiters(env) == 2);
    first.signal(Signal::KILL);
    let ended = repeats.end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "again\n"), "{}", ended.err);
    // It learns of the death, or of the end of the command's second run, whichever it sees first.
    let ended = refuses.end();
    assert!(matches!(ended.code, Some(0 | 76)), "{}", ended.err);
    assert_eq!(runs(env), 2);
}

fn a_signal_leaves_it_unsettled(env: &TestEnv) {
    let first = env.start(&["once", "k", "-c", "echo >> runs; exec sleep 600"]);
    env.lines("runs", 1);
    first.signal(Signal::TERM);
    let ended = first.end();
    assert_eq!(ended.code, Some(143), "{}", ended.err);
    let what = "error[T015]: unsettled: the command of \"k\" was ended by SIGTERM\n";
    assert!(ended.err.starts_with(what), "{}", ended.err);
    is_unsettled(env);
    assert_eq!(runs(env), 1);
}

fn a_lost_hold_stops_the_command_and_leaves_it_unsettled(env: &TestEnv) {
    // It ends by the code that a lost hold has, which must not look like an end of its own.
    let line = "trap 'exit 79' TERM; echo >> runs; while :; do sleep 0.05; done";
    let first = env.start(&["once", "--keep-failures", "-t", "10m", "k", "-c", line]);
    env.lines("runs", 1);
    let view = env.ask(async |tenure| tenure.once("k").inspect().await.unwrap().unwrap());
    let fence = view.holders[0].fence.to_string();
    let words = ["break", "k", "--fence", &fence, "--reason", "it hangs"];
    assert_eq!(env.end(&words).code, Some(0));
    let ended = first.end();
    assert_eq!(ended.code, Some(79), "{}", ended.err);
    assert!(ended.err.contains("error[T012]: LOST \"k\""), "{}", ended.err);
    assert!(ended.err.contains("; the work is unsettled\n"), "{}", ended.err);
    is_unsettled(env);
    let words = ["once", "--rerun", "--max-run", "200ms", "k", "--", "sleep", "600"];
    let ended = env.end(&words);
    assert_eq!(ended.code, Some(124), "{}", ended.err);
    assert!(ended.err.contains("; the work is unsettled\n"), "{}", ended.err);
    is_unsettled(env);
}

fn other_content_is_refused(env: &TestEnv) {
    fs::write(env.path("body"), "amount=42").unwrap();
    let once = |content: &str| env.end(&["once", "--content", content, "k", "-c", "echo >> runs"]);
    assert_eq!(once("@body").code, Some(0));
    assert_eq!(once("amount=42").code, Some(0), "what is in the file, not how it came");
    let ended = once("amount=43");
    assert_eq!(ended.code, Some(64), "{}", ended.err);
    let what = "error[T023]: different content: \"k\" was started with other content\n";
    assert!(ended.err.starts_with(what), "{}", ended.err);
    assert_eq!(env.end(&["once", "k", "--", "false"]).code, Some(0), "nothing said, anything goes");
    assert_eq!(runs(env), 1);
    let ended = once("@missing");
    assert_eq!(ended.code, Some(64));
    assert!(
        ended.err.starts_with("error: invalid value \"@missing\" for --content\n"),
        "{}",
        ended.err
    );
}

fn what_cannot_be_started_did_not_happen(env: &TestEnv) {
    assert_eq!(env.end(&["once", "k", "--", "./missing"]).code, Some(127));
    fs::write(env.path("plain"), "no program").unwrap();
    assert_eq!(env.end(&["once", "k", "--", "./plain"]).code, Some(126));
    assert_eq!(env.end(&["once", "k", "--", "echo", "done"]).out, "done\n");
}

fn busy_is_said_by_who_does_not_wait(env: &TestEnv) {
    let line = "echo $$ >> runs; while ! [ -e go ]; do sleep 0.02; done; echo done";
    let first = env.start(&["once", "k", "-c", line]);
    env.lines("runs", 1);
    for wait in [&["-n"][..], &["-w", "1s"]] {
        let ended = env.end(&[&["once", "k"], wait, &["--", "true"]].concat());
        assert_eq!(ended.code, Some(75), "{}", ended.err);
        assert!(ended.err.starts_with("error[T010]: busy: \"k\" is run by "), "{}", ended.err);
    }
    let patient: Vec<_> = (0..2).map(|_| env.start(&["once", "k", "--", "false"])).collect();
    until("they wait", || waiters(env) == 2);
    fs::write(env.path("go"), "").unwrap();
    for one in patient.into_iter().chain([first]) {
        let ended = one.end();
        assert_eq!((ended.code, &*ended.out), (Some(0), "done\n"), "{}", ended.err);
    }
    // A wait that a signal ends leaves nothing.
    assert_eq!((waiters(env), runs(env)), (0, 1));
}

fn a_reader_that_leaves_does_not_end_the_work(env: &TestEnv) {
    let line = "echo a; while ! [ -e left ]; do sleep 0.02; done; echo b; echo c; echo >> runs";
    let line =
        format!("\"$TENURE\" once k -c {} | {{ read a; echo $a; echo > left; }}", quoted(line));
    assert_eq!(env.shell(&line).out, "a\n");
    env.lines("runs", 1);
    assert_eq!(env.end(&["once", "k", "--", "false"]).out, "a\nb\nc\n");
    let full = env.shell("\"$TENURE\" once full -c 'echo x; echo >> runs' > /dev/full");
    assert_eq!(full.code, Some(74), "{}", full.err);
    assert!(full.err.starts_with("error: cannot write the output\n"), "{}", full.err);
    assert_eq!((&*env.end(&["once", "full", "--", "false"]).out, runs(env)), ("x\n", 2));
}

fn a_work_of_a_program_is_replayed_as_it_is(env: &TestEnv) {
    env.ask(async |tenure| {
        let work = async |_: &tenure::Run| Ok::<_, std::convert::Infallible>("paid 42\n");
        let _ = tenure.once("k").run(work).await.unwrap().unwrap();
    });
    let ended = env.end(&["once", "k", "--", "false"]);
    assert_eq!((ended.code, &*ended.out), (Some(0), "paid 42\n"));
}

fn the_status_says_whether_it_ran(env: &TestEnv) {
    let status = |words: &[&str]| {
        env.end(&[&["once", "--json-status", "status"], words].concat());
        let text = env.read("status");
        text.split_once(r#""outcome":""#).unwrap().1.split_once(r#","fence""#).unwrap().0.to_owned()
    };
    let child = r#""child":{"code":0,"signal":null}"#;
    assert_eq!(status(&["k", "--", "true"]), format!(r#"ran","exit":0,{child}"#));
    assert_eq!(status(&["k", "--", "false"]), format!(r#"replayed","exit":0,{child}"#));
    env.end(&["once", "other", "-c", "kill -9 $$"]);
    assert_eq!(status(&["other", "--", "true"]), r#"unsettled","exit":76,"child":null"#);
}

/// All of the output passes, whatever its length; the last part is remembered, and a replay says so.
#[test]
fn a_long_output_passes_untouched_and_its_end_is_remembered() {
    let env = TestEnv::file();
    let line = "seq 1 60000";
    let whole: String = (1..=60_000).map(|number| format!("{number}\n")).collect();
    let first = env.end(&["once", "k", "-c", line]);
    assert_eq!((first.code, first.out == whole, &*first.err), (Some(0), true, ""));
    let again = env.end(&["once", "k", "-c", line]);
    assert_eq!(again.code, Some(0));
    assert!(whole.ends_with(&again.out) && again.out.len() > 60_000, "{}", again.out.len());
    let (left, all) = (again.out.len(), whole.len());
    let note = "the output was too long to be kept: these are the last";
    assert_eq!(again.err, format!("tenure: {note} {left} of {all} bytes\n"));
    assert_eq!(env.end(&["once", "-q", "k", "-c", line]).err, "");
    // A reader that takes its time does not keep the outcome from being known.
    let line = "head -c 150000 /dev/zero | tr '\\0' x; echo >> runs";
    let mut command = env.tenure(&["once", "slow", "-c", line]);
    command.stdout(std::process::Stdio::piped());
    let mut slow = Started::new(command);
    let mut half = vec![0; 60_000];
    std::io::Read::read_exact(slow.child().stdout.as_mut().unwrap(), &mut half).unwrap();
    env.lines("runs", 1);
    let again = env.end(&["once", "-q", "slow", "--", "false"]);
    assert_eq!((again.code, again.out.trim_matches('x')), (Some(0), ""));
    assert!(slow.has_ended().is_none(), "it has more to write");
    let ended = slow.end_reading();
    assert_eq!((ended.code, half.len() + ended.out.len()), (Some(0), 150_000));
}

fn quoted(line: &str) -> String {
    format!("'{}'", line.replace('\'', r"'\''"))
}
