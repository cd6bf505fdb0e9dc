//! `tenure elect`: a command runs only while its candidate leads.

use std::io::{BufRead, BufReader};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Signal, kill_process};
use tenure::Leader;

use crate::run::survivors::{HOLDER, NEXT, PROCESSES};
use crate::run::test_env::{Started, TestEnv, lives, rounds, until};

on_every_engine!(
    a_signal_hands_over_at_once,
    a_broken_term_stops_everything_and_the_candidate_leads_again,
    nothing_survives_a_leader_that_is_killed,
    nothing_survives_a_supervisor_that_is_killed,
    a_supervisor_that_stood_still_leads_again,
    the_end_of_the_command_is_the_end_of_the_candidate,
    a_command_that_is_to_be_restarted_is_by_a_later_term,
    what_the_command_finds_and_others_see,
    a_signal_while_campaigning_leaves_the_line,
    every_change_is_shown,
);

/// Longer than any test waits: nothing that happens has waited for it.
const TTL: &str = "10m";

fn leader(env: &TestEnv, name: &str) -> Option<Leader> {
    env.ask(async |tenure| tenure.election(name).leader().await.unwrap())
}

fn candidates(env: &TestEnv, name: &str) -> usize {
    let view = env.ask(async |tenure| tenure.election(name).inspect().await.unwrap());
    view.map_or(0, |view| view.waiters.len())
}

fn break_term(env: &TestEnv, name: &str) {
    let term = leader(env, name).unwrap().term.to_string();
    let words = ["break", name, "--fence", &term, "--reason", "it hangs"];
    let ended = env.end(&words);
    assert_eq!(ended.code, Some(0), "{}", ended.err);
}

fn a_signal_hands_over_at_once(env: &TestEnv) {
    let line = "echo $$ >> pids; exec sleep 600";
    let first = env.start(&["elect", "-t", TTL, "x", "-c", line]);
    env.pids("pids", 1);
    let second = env.start(&["elect", "-t", TTL, "x", "-c", line]);
    until("the second one stands by", || candidates(env, "x") == 1);
    let before = leader(env, "x").unwrap();
    assert_eq!(env.read("pids").lines().count(), 1, "only the leader runs it");
    first.signal(Signal::TERM);
    let pids = env.pids("pids", 2);
    assert!(!lives(pids[0]) && lives(pids[1]));
    assert_eq!(first.end().code, Some(143));
    assert!(leader(env, "x").unwrap().term > before.term);
    second.signal(Signal::INT);
    assert_eq!(second.end().code, Some(130));
    assert_eq!(leader(env, "x"), None);
}

/// Two processes that ignore SIGTERM, one of them in a session of its own.
const STUBBORN: &str = r#"
echo "term $TENURE_TERM"
stay='trap "" TERM; echo $$ >> pids; while :; do sleep 0.05; done'
setsid sh -c "$stay" >/dev/null 2>&1 &
eval "$stay"
"#;

fn a_broken_term_stops_everything_and_the_candidate_leads_again(env: &TestEnv) {
    let candidate = env.start(&["elect", "-t", TTL, "-k", "200ms", "x", "-c", STUBBORN]);
    let pids = env.pids("pids", 2);
    let first = leader(env, "x").unwrap();
    break_term(env, "x");
    let all = env.pids("pids", 4);
    assert!(!pids.iter().any(|pid| lives(*pid)), "all are gone when the next term runs");
    let second = leader(env, "x").unwrap();
    candidate.signal(Signal::KILL);
    until("all are gone", || !all.iter().any(|pid| lives(*pid)));
    let ended = candidate.end();
    assert_eq!(ended.out, format!("term {}\nterm {}\n", first.term, second.term));
    assert!(first.term < second.term);
    assert!(ended.err.contains("error[T012]: LOST \"x\" (fence "), "{}", ended.err);
    assert!(ended.err.contains("\"it hangs\""), "{}", ended.err);
    assert!(ended.err.contains("campaigning for \"x\" again\n"), "{}", ended.err);
}

fn scene(env: &TestEnv, times: [&str; 2]) -> (Started, Started) {
    let _ = std::fs::remove_file(env.path("pids"));
    let [ttl, kill_after] = times;
    let first = env.start(&["elect", "-t", ttl, "-k", kill_after, "x", "-c", HOLDER]);
    env.pids("pids", PROCESSES);
    let next = env.start(&["elect", "x", "-c", NEXT]);
    until("the next one stands by", || candidates(env, "x") == 1);
    (first, next)
}

#[track_caller]
fn none_seen(next: Started) {
    let ended = next.end();
    assert_eq!((ended.code, &*ended.out), (Some(0), ""), "survivors\n{}", ended.err);
}

fn nothing_survives_a_leader_that_is_killed(env: &TestEnv) {
    for _ in 0..rounds().div_ceil(3) {
        let (first, next) = scene(env, ["20s", "150ms"]);
        first.signal(Signal::KILL);
        none_seen(next);
    }
}

fn nothing_survives_a_supervisor_that_is_killed(env: &TestEnv) {
    for _ in 0..rounds().div_ceil(3) {
        let (first, next) = scene(env, ["2s", "150ms"]);
        kill_process(first.supervisor(), Signal::KILL).unwrap();
        none_seen(next);
        assert_eq!(first.end().code, Some(137));
    }
}

/// The foreground has stood in for it once, and must not be taken to do so again.
fn a_supervisor_that_stood_still_leads_again(env: &TestEnv) {
    let line = "echo $$ >> pids; exec sleep 600";
    let candidate = env.start(&["elect", "-t", "2s", "-k", "300ms", "x", "-c", line]);
    let first = env.pids("pids", 1)[0];
    kill_process(candidate.supervisor(), Signal::STOP).unwrap();
    until("the foreground stands in", || !lives(first));
    let second = env.pids("pids", 2)[1];
    std::thread::sleep(Duration::from_millis(500));
    assert!(lives(second) && env.read("pids").lines().count() == 2);
    candidate.signal(Signal::TERM);
    let ended = candidate.end();
    assert_eq!(ended.code, Some(143), "{}", ended.err);
    assert!(ended.err.contains("its supervisor did not act by the deadline"), "{}", ended.err);
}

fn the_end_of_the_command_is_the_end_of_the_candidate(env: &TestEnv) {
    for (line, code) in [("exit 0", 0), ("exit 7", 7), ("kill -9 $$", 137)] {
        let ended = env.end(&["elect", "-t", TTL, "x", "-c", line]);
        assert_eq!(ended.code, Some(code), "{}", ended.err);
        assert_eq!(leader(env, "x"), None, "it has resigned");
    }
    assert_eq!(env.end(&["elect", "--restart", "x", "--", "./missing"]).code, Some(127));
    assert_eq!(leader(env, "x"), None);
}

fn a_command_that_is_to_be_restarted_is_by_a_later_term(env: &TestEnv) {
    let line = "echo $TENURE_TERM >> terms; [ $(wc -l < terms) -lt 3 ] || exec sleep 600; exit 5";
    let candidate = env.start(&["elect", "--restart", "x", "-c", line]);
    let terms: Vec<u64> = env.lines("terms", 3).iter().map(|line| line.parse().unwrap()).collect();
    assert!(terms.is_sorted_by(|one, next| one < next), "{terms:?}");
    candidate.signal(Signal::TERM);
    let ended = candidate.end();
    assert_eq!(ended.code, Some(143), "{}", ended.err);
    let again = "the command exited with code 5; campaigning for \"x\" again\n";
    assert_eq!(ended.err.matches(again).count(), 2, "{}", ended.err);
    assert_eq!((leader(env, "x"), env.read("terms").lines().count()), (None, 3));
}

fn what_the_command_finds_and_others_see(env: &TestEnv) {
    assert_eq!(env.end(&["leader", "cron"]).code, Some(1));
    let line = "env | grep ^TENURE_ | sort > env; echo > ready; exec sleep 600";
    let words = ["elect", "--value", "web-3", "--owner", "ada", "--reason", "nightly", "cron"];
    let candidate = env.start(&[&words[..], &["-c", line]].concat());
    env.lines("ready", 1);
    let term = leader(env, "cron").unwrap().term.to_string();
    let found = env.read("env");
    for line in [
        "TENURE_NAME=cron",
        "TENURE_KIND=leader",
        "TENURE_OWNER=ada",
        &format!("TENURE_TERM={term}"),
        &format!("TENURE_FENCE={term}"),
    ] {
        assert!(found.lines().any(|found| found == line), "{line}: {found}");
    }
    let shown = env.end(&["leader", "cron"]).out;
    let begins = format!("web-3 leads \"cron\": owner ada, term {term}, for ");
    assert!(shown.starts_with(&begins), "{shown}");
    let shown = env.end(&["leader", "cron", "--json"]).out;
    let begins = r#"{"v":1,"name":"cron","leader":{"value":"web-3","owner":"ada","term":"#;
    assert!(shown.starts_with(&format!("{begins}{term},")), "{shown}");
    // A lock of that name is another thing.
    assert_eq!(env.end(&["run", "-n", "cron", "--", "true"]).code, Some(0));
    // A candidate that waits for itself is told so.
    let ended =
        env.shell(&format!("TENURE_WITHIN=leader:{term}:cron \"$TENURE\" elect cron -- true"));
    assert_eq!(ended.code, Some(64));
    assert!(ended.err.starts_with("error[T011]: you already hold \"cron\""), "{}", ended.err);
    candidate.signal(Signal::TERM);
    assert_eq!(candidate.end().code, Some(143));
}

fn a_signal_while_campaigning_leaves_the_line(env: &TestEnv) {
    let first = env.start(&["elect", "x", "-c", "echo > ready; exec sleep 600"]);
    env.lines("ready", 1);
    let second = env.start(&["elect", "x", "-c", "echo > never"]);
    until("the second one stands by", || candidates(env, "x") == 1);
    second.signal(Signal::TERM);
    assert_eq!(second.end().code, Some(143));
    assert_eq!(candidates(env, "x"), 0);
    first.signal(Signal::TERM);
    assert_eq!(first.end().code, Some(143));
    assert!(!env.path("never").exists());
}

fn every_change_is_shown(env: &TestEnv) {
    let mut watcher = env.start(&["leader", "x", "--watch", "--json"]);
    let lines = BufReader::new(watcher.child().stdout.take().unwrap()).lines();
    let mut lines = lines.map(|line| line.unwrap());
    let mut next = || {
        let line = lines.next().unwrap();
        assert!(line.starts_with(r#"{"v":1,"ts":"2"#) && line.contains(r#""name":"x","#), "{line}");
        line.split_once(r#""leader":"#).unwrap().1.to_owned()
    };
    assert_eq!(next(), "null}");
    for value in ["web-1", "web-2"] {
        let candidate = env.start(&["elect", "--value", value, "x", "--", "sleep", "600"]);
        let line = next();
        assert!(line.starts_with(&format!(r#"{{"value":"{value}","owner":""#)), "{line}");
        candidate.signal(Signal::TERM);
        assert_eq!(next(), "null}");
        assert_eq!(candidate.end().code, Some(143));
    }
}

/// The engine is not there when the candidate starts, for longer than any request is patient.
#[test]
fn a_candidate_waits_for_an_engine_that_is_not_there_yet() {
    let env = TestEnv::redis();
    let redis = env.redis.as_ref().unwrap();
    redis.kill().unwrap();
    let mut candidate = env.start(&["elect", "x", "--", "touch", "ran"]);
    let mut leaves = env.start(&["elect", "y", "--", "touch", "never"]);
    std::thread::sleep(Duration::from_secs(12));
    for candidate in [&mut candidate, &mut leaves] {
        assert!(candidate.has_ended().is_none(), "an engine that is not there yet has ended it");
    }
    leaves.signal(Signal::TERM);
    let ended = leaves.end();
    assert_eq!(ended.code, Some(143), "{}", ended.err);
    assert_eq!(
        ended.err.matches("cannot campaign for \"y\", retrying").count(),
        1,
        "{}",
        ended.err
    );
    redis.restart().unwrap();
    let ended = candidate.end();
    assert_eq!(ended.code, Some(0), "{}", ended.err);
    assert!(env.path("ran").exists() && !env.path("never").exists());
}

/// The engine is gone for longer than the ttl: the command is stopped in time, and when the engine is
/// back the candidate leads again.
#[test]
fn a_candidate_outlives_an_engine_that_is_gone_for_a_while() {
    let env = TestEnv::redis();
    let line = "echo $$ >> pids; exec sleep 600";
    let mut command = env.tenure(&["elect", "-t", "1500ms", "-k", "300ms", "x", "-c", line]);
    command.stderr(Stdio::piped());
    let candidate = Started::new(command);
    let first = env.pids("pids", 1)[0];
    let redis = env.redis.as_ref().unwrap();
    redis.pause().unwrap();
    until("the command is stopped", || !lives(first));
    std::thread::sleep(Duration::from_millis(500));
    redis.resume().unwrap();
    let second = env.pids("pids", 2)[1];
    assert!(lives(second));
    candidate.signal(Signal::TERM);
    let ended = candidate.end();
    assert_eq!(ended.code, Some(143), "{}", ended.err);
    assert!(ended.err.contains("error[T012]: LOST"), "{}", ended.err);
}
