//! Nothing of a command is there any more when the next holder starts, whatever was killed.
//!
//! The next holder waits in line from before. When its turn comes, it looks for every process that the
//! holder before it had started: children that ignore SIGTERM, and a grandchild that went to a session
//! of its own.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::proxy::{Direction, Proxy};

use crate::stage::{Ended, Stage, Started, lives, rounds, until};

on_every_engine!(
    nothing_survives_the_front,
    nothing_survives_the_keeper,
    nothing_survives_a_keeper_that_stands_still,
    the_command_dies_with_the_keeper_even_if_nobody_is_there_to_see_it,
    what_a_command_leaves_behind_on_purpose_is_left_alone,
);

/// Writes down each process, and does not listen to anyone.
pub(crate) const HOLDER: &str = r#"
trap '' TERM INT HUP
stay='trap "" TERM INT HUP; echo $$ >> pids; while :; do sleep 0.05; done'
sh -c "$stay" &
setsid sh -c "$stay" &
sh -c "setsid sh -c '$stay' & $stay" &
echo $$ >> pids
while :; do sleep 0.05; done
"#;
pub(crate) const PROCESSES: usize = 5;

/// Looks for them; a process that has ended and was not waited for counts as well.
pub(crate) const NEXT: &str = r#"
for pid in $(cat pids); do
    if kill -0 "$pid" 2>/dev/null; then echo "$pid $(cat /proc/$pid/stat)"; fi
done
"#;

/// A holder with its processes, and somebody who waits.
struct Scene {
    holder: Started,
    next: Started,
    pids: Vec<Pid>,
}

fn scene(stage: &Stage, url: &str, times: [&str; 2]) -> Scene {
    let _ = fs::remove_file(stage.path("pids"));
    let [ttl, kill_after] = times;
    let mut command = stage.tenure(&["run", "-t", ttl, "-k", kill_after, "x", "-c", HOLDER]);
    command.env("TENURE_URL", url).stderr(std::process::Stdio::piped());
    let holder = Started::new(command);
    let pids = stage.pids("pids", PROCESSES);
    let next = stage.start(&["run", "x", "-c", NEXT]);
    until("the next one waits", || stage.waiters("x") == 1);
    assert!(pids.iter().all(|pid| lives(*pid)));
    Scene { holder, next, pids }
}

/// The next one's verdict.
#[track_caller]
fn none_seen(next: Started, round: usize) {
    let Ended { code, out, err } = next.end();
    assert_eq!((code, &*out), (Some(0), ""), "round {round}: survivors\n{err}");
}

fn nothing_survives_the_front(stage: &Stage) {
    for round in 0..rounds() {
        let Scene { holder, next, pids } = scene(stage, &stage.url, ["20s", "150ms"]);
        holder.signal(Signal::KILL);
        none_seen(next, round);
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }
}

fn nothing_survives_the_keeper(stage: &Stage) {
    for round in 0..rounds() {
        let Scene { holder, next, pids } = scene(stage, &stage.url, ["2s", "150ms"]);
        kill_process(holder.keeper(), Signal::KILL).unwrap();
        let ended = holder.end();
        assert!(!pids.iter().any(|pid| lives(*pid)), "round {round}: when the front ends");
        assert_eq!(ended.code, Some(137), "{}", ended.err);
        assert!(
            ended.err.starts_with("error: the keeper of \"x\" was ended by SIGKILL"),
            "{}",
            ended.err
        );
        none_seen(next, round);
    }
}

fn nothing_survives_a_keeper_that_stands_still(stage: &Stage) {
    for round in 0..rounds().div_ceil(5) {
        let Scene { holder, next, .. } = scene(stage, &stage.url, ["2s", "300ms"]);
        let keeper = holder.keeper();
        kill_process(keeper, Signal::STOP).unwrap();
        none_seen(next, round);
        let ended = holder.end();
        assert_eq!(ended.code, Some(79), "{}", ended.err);
        assert!(ended.err.contains("its keeper stood still"), "{}", ended.err);
    }
}

fn the_command_dies_with_the_keeper_even_if_nobody_is_there_to_see_it(stage: &Stage) {
    let holder = stage.start(&["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let command = stage.pids("pid", 1)[0];
    holder.signal(Signal::STOP);
    kill_process(holder.keeper(), Signal::KILL).unwrap();
    until("the command is gone", || !lives(command));
}

/// The engine is gone for the holder, and there for the next: what the engine does not renew ends by
/// its clock, and the holder must be gone before by its own.
#[test]
fn nothing_survives_a_hold_that_cannot_be_renewed() {
    let stage = Stage::redis();
    for round in 0..rounds().div_ceil(3) {
        let proxy = Proxy::start(stage.redis.as_ref().unwrap().port()).unwrap();
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let Scene { holder, next, .. } = scene(&stage, &url, ["1500ms", "400ms"]);
        match round % 3 {
            0 => proxy.swallow(Direction::Upstream),
            1 => proxy.swallow(Direction::Downstream),
            _ => {
                proxy.refuse().unwrap();
                proxy.reset();
            }
        }
        none_seen(next, round);
        let ended = holder.end();
        assert_eq!(ended.code, Some(79), "{}", ended.err);
        assert!(ended.err.contains("error[T012]: LOST \"x\" (fence "), "{}", ended.err);
        assert!(ended.err.contains("renewals failed: "), "{}", ended.err);
    }
}

fn what_a_command_leaves_behind_on_purpose_is_left_alone(stage: &Stage) {
    let line = "(echo $$ > never; exec sleep 600) >/dev/null 2>&1 & echo $! > pid";
    assert_eq!(stage.end(&["run", "x", "-c", line]).code, Some(0));
    let left = stage.pids("pid", 1)[0];
    assert!(lives(left), "it ended by itself, and what it started is its own affair");
    assert!(stage.view("x").is_none());
    kill_process(left, Signal::KILL).unwrap();
}
