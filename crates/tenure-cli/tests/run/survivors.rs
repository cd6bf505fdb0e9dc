//! No process of a command is left when the next holder starts, whatever was killed.
//!
//! The next holder waits in line from before. When its turn comes, it looks for every process that the
//! holder before it had started: children that ignore SIGTERM, and a grandchild that went to a session
//! of its own.

use std::fs;
use std::io::{BufRead, BufReader};

use rustix::process::{Pid, Signal, kill_process};
use tenure_testkit::proxy::{Direction, Proxy};

use crate::run::test_env::{Ended, Started, TestEnv, lives, rounds, until};

on_every_engine!(
    nothing_survives_the_foreground,
    nothing_survives_the_supervisor,
    nothing_survives_a_supervisor_that_stands_still,
    nothing_survives_a_supervisor_that_is_stopped_when_the_command_has_just_begun,
    nothing_survives_the_foreground_and_the_supervisor,
    nothing_survives_all_that_could_end_it,
    nothing_survives_a_supervisor_that_stands_still_without_a_foreground,
    the_command_dies_with_the_supervisor_even_if_nobody_is_there_to_see_it,
    what_is_left_running_is_waited_for_and_named,
    what_is_left_running_is_ended_if_that_is_asked_for,
    what_is_left_running_on_purpose_is_left_alone,
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

/// A holder with its processes, and a waiter.
struct Scene {
    holder: Started,
    next: Started,
    pids: Vec<Pid>,
}

fn scene(env: &TestEnv, url: &str, times: [&str; 2]) -> Scene {
    let _ = fs::remove_file(env.path("pids"));
    let [ttl, kill_after] = times;
    let mut command = env.tenure(&["run", "-t", ttl, "-k", kill_after, "x", "-c", HOLDER]);
    command.env("TENURE_URL", url).stderr(std::process::Stdio::piped());
    let holder = Started::new(command);
    let pids = env.pids("pids", PROCESSES);
    let next = env.start(&["run", "x", "-c", NEXT]);
    until("the next one waits", || env.waiters("x") == 1);
    assert!(pids.iter().all(|pid| lives(*pid)));
    Scene { holder, next, pids }
}

/// The next one's verdict.
#[track_caller]
fn none_seen(next: Started, round: usize) {
    let Ended { code, out, err } = next.end();
    assert_eq!((code, &*out), (Some(0), ""), "round {round}: survivors\n{err}");
}

fn nothing_survives_the_foreground(env: &TestEnv) {
    for round in 0..rounds() {
        let Scene { holder, next, pids } = scene(env, &env.url, ["20s", "150ms"]);
        holder.signal(Signal::KILL);
        none_seen(next, round);
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }
}

fn nothing_survives_the_supervisor(env: &TestEnv) {
    for round in 0..rounds() {
        let Scene { holder, next, pids } = scene(env, &env.url, ["2s", "150ms"]);
        kill_process(holder.supervisor(), Signal::KILL).unwrap();
        let ended = holder.end();
        assert!(!pids.iter().any(|pid| lives(*pid)), "round {round}: when the foreground ends");
        assert_eq!(ended.code, Some(137), "{}", ended.err);
        assert!(
            ended.err.starts_with("error: the supervisor of \"x\" was ended by SIGKILL"),
            "{}",
            ended.err
        );
        none_seen(next, round);
    }
}

/// `killall -9`, as far as it finds processes by name.
fn nothing_survives_the_foreground_and_the_supervisor(env: &TestEnv) {
    for round in 0..rounds() * 2 {
        let Scene { holder, next, pids } = scene(env, &env.url, ["2s", "150ms"]);
        let (foreground, supervisor) = (holder.pid(), holder.supervisor());
        let both = if round % 2 == 0 { [foreground, supervisor] } else { [supervisor, foreground] };
        both.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
        none_seen(next, round);
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }
}

/// Nobody is left to end the command but the next holder.
fn nothing_survives_all_that_could_end_it(env: &TestEnv) {
    for round in 0..rounds() * 2 {
        let Scene { holder, next, pids } = scene(env, &env.url, ["2s", "150ms"]);
        let mut all = [holder.guard(), holder.pid(), holder.supervisor()];
        all.rotate_left(round % 3);
        all.iter().for_each(|pid| kill_process(*pid, Signal::KILL).unwrap());
        let Ended { code, out, err } = next.end();
        // Processes that init has not reaped yet do nothing any more.
        let runs =
            |line: &&str| line.rsplit_once(") ").is_some_and(|(_, state)| !state.starts_with('Z'));
        let survivors: Vec<_> = out.lines().filter(runs).collect();
        assert_eq!((code, survivors), (Some(0), vec![]), "round {round}: {err}");
        assert!(!pids.iter().any(|pid| lives(*pid)));
    }
}

fn nothing_survives_a_supervisor_that_stands_still_without_a_foreground(env: &TestEnv) {
    for round in 0..rounds().div_ceil(5) {
        let Scene { holder, next, .. } = scene(env, &env.url, ["2s", "300ms"]);
        kill_process(holder.supervisor(), Signal::STOP).unwrap();
        holder.signal(Signal::KILL);
        none_seen(next, round);
    }
}

fn nothing_survives_a_supervisor_that_stands_still(env: &TestEnv) {
    for round in 0..rounds().div_ceil(5) {
        let Scene { holder, next, .. } = scene(env, &env.url, ["2s", "300ms"]);
        let supervisor = holder.supervisor();
        kill_process(supervisor, Signal::STOP).unwrap();
        none_seen(next, round);
        let ended = holder.end();
        assert_eq!(ended.code, Some(79), "{}", ended.err);
        assert!(ended.err.contains("its supervisor did not act by the deadline"), "{}", ended.err);
    }
}

fn nothing_survives_a_supervisor_that_is_stopped_when_the_command_has_just_begun(env: &TestEnv) {
    let line = "kill -STOP $PPID; echo $$ >> pids; exec sleep 600";
    let names: Vec<_> = (0..12).map(|number| format!("x{number}")).collect();
    let start = |name: &String| env.start(&["run", "-t", "2s", "-k", "100ms", name, "-c", line]);
    let holders: Vec<_> = names.iter().map(start).collect();
    let commands = env.pids("pids", holders.len());
    until("the commands are gone", || !commands.iter().any(|pid| lives(*pid)));
    for holder in holders {
        let ended = holder.end();
        assert_eq!(ended.code, Some(79), "{}", ended.err);
    }
}

fn the_command_dies_with_the_supervisor_even_if_nobody_is_there_to_see_it(env: &TestEnv) {
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo $$ > pid; exec sleep 600"]);
    let command = env.pids("pid", 1)[0];
    holder.signal(Signal::STOP);
    kill_process(holder.supervisor(), Signal::KILL).unwrap();
    until("the command is gone", || !lives(command));
}

/// The engine is gone for the holder, and there for the next: what the engine does not renew ends by
/// its clock, and the holder must be gone before by its own.
#[test]
fn nothing_survives_a_hold_that_cannot_be_renewed() {
    let env = TestEnv::redis();
    for round in 0..rounds().div_ceil(3) {
        let proxy = Proxy::start(env.redis.as_ref().unwrap().port()).unwrap();
        let url = format!("redis://127.0.0.1:{}", proxy.port());
        let Scene { holder, next, .. } = scene(&env, &url, ["1500ms", "400ms"]);
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

/// Leaves one process in the background, which writes down its number and waits for `go`.
const LEAVES: &str = r#"
sh -c 'echo $$ > pid; while ! [ -e go ]; do sleep 0.02; done; echo done >> ended' >/dev/null 2>&1 &
while ! [ -s pid ]; do sleep 0.02; done
exit 3
"#;

fn what_is_left_running_is_waited_for_and_named(env: &TestEnv) {
    let holder = env.start(&["run", "x", "-c", LEAVES]);
    let left = env.pids("pid", 1)[0];
    let next = env.start(&["run", "x", "-c", "cat ended"]);
    until("the next one waits", || env.waiters("x") == 1);
    let mut remark = String::new();
    let mut holder = holder;
    let mut errors = BufReader::new(holder.child().stderr.take().unwrap());
    errors.read_line(&mut remark).unwrap();
    let named = format!("the lock stays held for the processes it left running: {left} sh");
    assert!(remark.contains(&named), "{remark}");
    assert_eq!((env.holders("x"), env.waiters("x")), (1, 1));
    fs::write(env.path("go"), "").unwrap();
    assert_eq!(holder.end().code, Some(3), "the command's own");
    let ended = next.end();
    assert_eq!((ended.code, &*ended.out), (Some(0), "done\n"), "{}", ended.err);
    // A signal reaches it, too.
    fs::remove_file(env.path("go")).unwrap();
    fs::remove_file(env.path("pid")).unwrap();
    let mut command = env.tenure(&["elect", "x", "-c", LEAVES]);
    command.stderr(std::process::Stdio::piped());
    let mut holder = Started::new(command);
    let left = env.pids("pid", 1)[0];
    let mut errors = BufReader::new(holder.child().stderr.take().unwrap()).lines();
    errors.find(|line| line.as_ref().unwrap().contains("left running")).unwrap().unwrap();
    holder.signal(Signal::TERM);
    assert_eq!(holder.end().code, Some(3));
    assert!(!lives(left));
}

fn what_is_left_running_is_ended_if_that_is_asked_for(env: &TestEnv) {
    let line = "trap '' TERM; sh -c 'echo $$ > pid; exec sleep 600' >/dev/null 2>&1 & \
                while ! [ -s pid ]; do sleep 0.02; done; exit 3";
    for verb in ["run", "elect", "once"] {
        let _ = fs::remove_file(env.path("pid"));
        let words = [verb, "--leftovers", "end", "-k", "200ms", "x", "-c", line];
        assert_eq!(env.end(&words).code, Some(3), "{verb}: the command's own");
        assert!(!lives(env.pids("pid", 1)[0]), "{verb}");
    }
    let line = "echo early; (sleep 0.5; echo late; echo >> runs) & exit 0";
    for _ in 0..2 {
        let ended = env.end(&["once", "y", "-c", line]);
        assert_eq!((ended.code, &*ended.out), (Some(0), "early\nlate\n"), "{}", ended.err);
    }
    assert_eq!(env.read("runs").lines().count(), 1);
}

/// By a flag, or because it began a session of its own, as daemons do.
fn what_is_left_running_on_purpose_is_left_alone(env: &TestEnv) {
    let sleep = "sh -c 'echo $$ > pid; exec sleep 600' >/dev/null 2>&1 & \
                 while ! [ -s pid ]; do sleep 0.02; done";
    let daemon = format!("setsid {sleep}");
    for words in
        [["run", "--leftovers", "allow", "x", "-c", sleep], ["run", "-t", "5s", "x", "-c", &daemon]]
    {
        assert_eq!(env.end(&words).code, Some(0));
        let left = env.pids("pid", 1)[0];
        assert!(lives(left), "it ended by itself, and what it started is its own affair");
        assert!(env.view("x").is_none());
        // Nor does the next one end it.
        assert_eq!(env.end(&["run", "x", "--", "true"]).code, Some(0));
        assert!(lives(left));
        kill_process(left, Signal::KILL).unwrap();
        fs::remove_file(env.path("pid")).unwrap();
    }
}
