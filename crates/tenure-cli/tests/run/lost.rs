//! A hold that is lost while the command runs.

use std::io::{BufRead, BufReader};
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tenure::Broken;

use crate::run::test_env::{TestEnv, lives, until};

on_every_engine!(
    a_broken_hold_stops_everything_and_says_who_broke_it,
    a_command_that_ends_when_asked_is_not_killed,
    a_loss_can_be_only_warned_of,
    a_hold_ends_at_max_hold_and_the_command_before,
    a_hold_is_renewed_for_as_long_as_the_command_runs,
    a_turn_is_as_good_as_a_grant_on_the_spot,
    after_a_pause_of_all_the_command_is_killed_first_of_all,
);

/// Two processes that ignore SIGTERM, one of them in a session of its own.
const STUBBORN: &str = r#"
stay='trap "" TERM; echo $$ >> pids; while :; do sleep 0.05; done'
setsid sh -c "$stay" &
eval "$stay"
"#;

fn break_hold(env: &TestEnv, name: &str) {
    let fence = env.view(name).unwrap().holders[0].fence;
    let done = env.ask(async |tenure| {
        let mut options = tenure.defaults();
        options.details_mut().owner = "ops@web".into();
        let tenure = tenure.with_defaults(options).unwrap();
        tenure.break_hold(name, fence, "it hangs").await.unwrap()
    });
    assert_eq!(done, Broken::Done);
}

fn a_broken_hold_stops_everything_and_says_who_broke_it(env: &TestEnv) {
    let words = ["run", "-t", "30s", "-k", "200ms", "--json-status", "status", "x", "-c", STUBBORN];
    let holder = env.start(&words);
    let pids = env.pids("pids", 2);
    break_hold(env, "x");
    let ended = holder.end();
    assert!(!pids.iter().any(|pid| lives(*pid)), "all are gone when it ends");
    assert_eq!(ended.code, Some(79), "{}", ended.err);
    assert!(ended.err.contains("error[T012]: LOST \"x\" (fence "), "{}", ended.err);
    assert!(ended.err.contains("broken by ops@web: \"it hangs\""), "{}", ended.err);
    let json = env.read("status");
    assert!(
        json.contains(r#""outcome":"lost","exit":79,"child":{"code":null,"signal":9}"#),
        "{json}"
    );
}

fn a_command_that_ends_when_asked_is_not_killed(env: &TestEnv) {
    let line =
        "trap 'echo saved > saved; exit 0' TERM; echo $$ > pid; while :; do sleep 0.01; done";
    let holder = env.start(&["run", "-k", "10s", "x", "-c", line]);
    env.lines("pid", 1);
    break_hold(env, "x");
    assert_eq!(holder.end().code, Some(79));
    assert_eq!(env.read("saved"), "saved\n");
}

fn a_loss_can_be_only_warned_of(env: &TestEnv) {
    let mut command =
        env.tenure(&["run", "--on-lost", "warn", "x", "-c", "echo > ready; read a; exit 5"]);
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut holder = crate::run::test_env::Started::new(command);
    env.lines("ready", 1);
    break_hold(env, "x");
    // Another client can have the lock now, and the command continues.
    assert_eq!(env.end(&["run", "x", "--", "true"]).code, Some(0));
    assert!(holder.has_ended().is_none());
    let said = BufReader::new(holder.child().stderr.take().unwrap()).lines();
    let mut said = said.map(|line| line.unwrap());
    assert!(said.any(|line| line.starts_with("error[T012]: LOST \"x\"")), "said while it runs");
    drop(holder.child().stdin.take());
    assert_eq!(holder.end().code, Some(5), "its own code");
}

fn a_hold_ends_at_max_hold_and_the_command_before(env: &TestEnv) {
    let words = ["run", "-t", "3s", "-k", "500ms", "--max-hold", "3s", "x", "-c", STUBBORN];
    let holder = env.start(&words);
    let pids = env.pids("pids", 2);
    let ended = holder.end();
    assert!(!pids.iter().any(|pid| lives(*pid)));
    assert_eq!(ended.code, Some(79), "{}", ended.err);
    assert!(ended.err.contains("it reached its max-hold of 3s"), "{}", ended.err);
}

fn a_hold_is_renewed_for_as_long_as_the_command_runs(env: &TestEnv) {
    let ended = env.end(&["run", "-t", "3s", "x", "--", "sleep", "4"]);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

/// A turn that is pushed lasts for two seconds at first, less than the command gets to end.
fn a_turn_is_as_good_as_a_grant_on_the_spot(env: &TestEnv) {
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo > held; exec sleep 600"]);
    env.lines("held", 1);
    let words = ["run", "-t", "30s", "-k", "10s", "--max-hold", "30s", "x", "--", "sleep", "2.5"];
    let next = env.start(&words);
    until("it waits", || env.waiters("x") == 1);
    holder.signal(Signal::TERM);
    let ended = next.end();
    // Of thirty seconds it has ten to end, so that twenty are left to run.
    assert_eq!((ended.code, &*ended.err), (Some(0), ""));
}

/// As after a sleep of the machine: nothing could be done in time, and nothing is done before this.
fn after_a_pause_of_all_the_command_is_killed_first_of_all(env: &TestEnv) {
    let line = "echo $$ > pid; trap '' TERM; while :; do sleep 0.05; done";
    let holder = env.start(&["run", "-t", "2s", "-k", "300ms", "x", "-c", line]);
    let command = env.pids("pid", 1)[0];
    let (guard, supervisor) = (holder.guard(), holder.supervisor());
    let all = [guard, supervisor, holder.pid()];
    all.iter().for_each(|pid| kill_process(*pid, Signal::STOP).unwrap());
    // The name passes on: the fence protects against that.
    assert_eq!(env.end(&["run", "x", "--", "true"]).code, Some(0));
    assert!(lives(command));
    kill_process(supervisor, Signal::CONT).unwrap();
    until("the command is gone", || !lives(command));
    // The supervisor continues by itself; it and the other processes may have ended by now.
    for pid in [guard, holder.pid()] {
        let _ = kill_process(pid, Signal::CONT);
    }
    let ended = holder.end();
    assert_eq!(ended.code, Some(79), "{}", ended.err);
    assert!(ended.err.contains("LOST \"x\""), "{}", ended.err);
}

/// S73: a server that has lost its memory.
#[test]
fn an_engine_that_forgets_ends_the_command() {
    let env = TestEnv::redis();
    let holder = env.start(&["run", "-t", "3s", "-k", "200ms", "x", "-c", STUBBORN]);
    let pids = env.pids("pids", 2);
    env.redis.as_ref().unwrap().command(&["FLUSHALL"]).unwrap();
    let ended = holder.end();
    assert!(!pids.iter().any(|pid| lives(*pid)));
    assert_eq!(ended.code, Some(79), "{}", ended.err);
    assert!(ended.err.contains("lost its memory"), "{}", ended.err);
}

/// The command has ended; that the engine is gone by then costs time, and not the command's code.
#[test]
fn an_engine_that_is_gone_at_the_end_does_not_change_the_code() {
    let env = TestEnv::redis();
    let mut command = env.tenure(&["run", "-t", "2s", "x", "-c", "echo > ready; read a; exit 4"]);
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut holder = crate::run::test_env::Started::new(command);
    env.lines("ready", 1);
    env.redis.as_ref().unwrap().pause().unwrap();
    drop(holder.child().stdin.take());
    let began = std::time::Instant::now();
    let ended = holder.end();
    assert_eq!(ended.code, Some(4), "{}", ended.err);
    assert!(ended.err.contains("did not confirm the release"), "{}", ended.err);
    assert!(began.elapsed() < Duration::from_secs(20), "no longer than the hold itself would last");
}

/// A message that cannot be written must not block anything: here nobody reads the output.
#[test]
fn a_closed_standard_error_changes_nothing() {
    let env = TestEnv::redis();
    let mut command =
        env.tenure(&["run", "-v", "-t", "1500ms", "-k", "300ms", "x", "-c", STUBBORN]);
    command.stderr(std::process::Stdio::piped());
    let mut holder = crate::run::test_env::Started::new(command);
    drop(holder.child().stderr.take());
    let pids = env.pids("pids", 2);
    env.redis.as_ref().unwrap().pause().unwrap();
    let ended = holder.end();
    assert!(!pids.iter().any(|pid| lives(*pid)));
    assert_eq!(ended.code, Some(79));
    env.redis.as_ref().unwrap().resume().unwrap();
    // The same with the release, which waits for the renewing thread.
    let mut command =
        env.tenure(&["run", "-t", "1500ms", "x", "-c", "echo > ready; read a; exit 4"]);
    command.stdin(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    let mut holder = crate::run::test_env::Started::new(command);
    drop(holder.child().stderr.take());
    env.lines("ready", 1);
    env.redis.as_ref().unwrap().kill().unwrap();
    std::thread::sleep(Duration::from_millis(800));
    drop(holder.child().stdin.take());
    assert_eq!(holder.end().code, Some(4));
}
