//! Signals: while it waits, `tenure` leaves the line; while the command runs, they are the command's.

use std::process::{Command, Stdio};

use rustix::process::{Signal, kill_process};

use crate::run::test_env::{Started, TestEnv, is_stopped, lives, until};

on_every_engine!(
    a_signal_while_waiting_leaves_the_line,
    what_ends_no_process_ends_no_wait,
    a_waiter_that_is_killed_leaves_the_line_too,
    signals_are_handed_to_the_whole_group,
    a_command_that_a_signal_ends_is_128_and_more,
    a_signal_to_the_supervisor_is_handed_on_too,
    what_is_ignored_from_the_start_stays_ignored,
    a_command_that_is_stopped_goes_on_when_told,
);

/// A holder of `x`, and a waiter for it.
fn holder_and_waiter(env: &TestEnv) -> (Started, Started) {
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo > held; exec sleep 600"]);
    env.lines("held", 1);
    let waiter = env.start(&["run", "x", "--", "touch", "ran"]);
    until("it waits", || env.waiters("x") == 1);
    (holder, waiter)
}

fn a_signal_while_waiting_leaves_the_line(env: &TestEnv) {
    let (mut holder, mut waiter) = holder_and_waiter(env);
    for signal in [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
    ] {
        waiter.signal(signal);
        let ended = waiter.end();
        assert_eq!(ended.code, Some(128 + signal.as_raw()), "{signal:?}: {}", ended.err);
        assert_eq!(env.waiters("x"), 0, "{signal:?}: the place is gone when it ends");
        waiter = env.start(&["run", "x", "--", "touch", "ran"]);
        until("it waits", || env.waiters("x") == 1);
    }
    assert!(holder.has_ended().is_none());
    assert!(!env.path("ran").exists());
}

fn what_ends_no_process_ends_no_wait(env: &TestEnv) {
    let (holder, mut waiter) = holder_and_waiter(env);
    for signal in [Signal::WINCH, Signal::CONT, Signal::URG, Signal::TTOU] {
        waiter.signal(signal);
    }
    // It is asked after them, so it has come after them.
    drop(holder);
    until("it ran", || env.path("ran").exists());
    until("it has ended", || waiter.has_ended().is_some());
    assert_eq!(waiter.end().code, Some(0));
}

fn a_waiter_that_is_killed_leaves_the_line_too(env: &TestEnv) {
    let (_holder, waiter) = holder_and_waiter(env);
    let supervisor = waiter.supervisor();
    waiter.signal(Signal::KILL);
    until("nobody waits", || env.waiters("x") == 0);
    until("the supervisor is gone", || !lives(supervisor));
}

fn signals_are_handed_to_the_whole_group(env: &TestEnv) {
    let names = ["INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "ALRM", "WINCH"];
    let traps: Vec<_> =
        names.iter().map(|name| format!("trap 'echo {name} >> got' {name}")).collect();
    let line = format!(
        "{}; (trap '' INT QUIT TERM HUP USR2 ALRM WINCH; trap 'echo below >> got' USR1; \
         echo >> ready; while :; do sleep 0.01; done) & echo >> ready; while :; do sleep 0.01; done",
        traps.join("; ")
    );
    let holder = env.start(&["run", "x", "-c", &line]);
    env.lines("ready", 2);
    let signals = [
        Signal::INT,
        Signal::TERM,
        Signal::HUP,
        Signal::QUIT,
        Signal::USR1,
        Signal::USR2,
        Signal::ALARM,
        Signal::WINCH,
    ];
    for (signal, name) in signals.into_iter().zip(names) {
        holder.signal(signal);
        until(name, || env.read("got").lines().any(|line| line == name));
    }
    until("the group has it", || env.read("got").contains("below"));
    let got = env.read("got");
    for name in names {
        assert_eq!(got.lines().filter(|line| *line == name).count(), 1, "{name} once: {got}");
    }
}

fn a_command_that_a_signal_ends_is_128_and_more(env: &TestEnv) {
    for signal in ["INT", "TERM", "HUP", "USR1", "40"] {
        let line = "echo > ready; exec sleep 600";
        let holder = env.start(&["run", "x", "--", "sh", "-c", line]);
        env.lines("ready", 1);
        std::fs::remove_file(env.path("ready")).unwrap();
        let kill =
            Command::new("sh").args(["-c", &format!("kill -{signal} {}", holder.pid())]).status();
        assert!(kill.unwrap().success());
        let ended = holder.end();
        let number = match signal {
            "INT" => 2,
            "TERM" => 15,
            "HUP" => 1,
            "USR1" => 10,
            _ => 40,
        };
        assert_eq!((ended.code, &*ended.err), (Some(128 + number), ""), "{signal}");
        assert!(env.view("x").is_none(), "and it is released");
    }
}

fn a_signal_to_the_supervisor_is_handed_on_too(env: &TestEnv) {
    let line = "trap 'exit 5' TERM; echo > ready; while :; do sleep 0.01; done";
    let holder = env.start(&["run", "x", "-c", line]);
    env.lines("ready", 1);
    kill_process(holder.supervisor(), Signal::TERM).unwrap();
    assert_eq!(holder.end().code, Some(5));
}

fn what_is_ignored_from_the_start_stays_ignored(env: &TestEnv) {
    let line = "trap '' HUP; exec $TENURE run x -- sh -c 'echo > ready; read a; exit 6'";
    let mut shell = env.shell_command(line);
    shell.stdin(Stdio::piped());
    let mut started = Started::new(shell);
    env.lines("ready", 1);
    started.signal(Signal::HUP);
    started.signal(Signal::CONT);
    drop(started.child().stdin.take());
    assert_eq!(started.end().code, Some(6));
}

fn a_command_that_is_stopped_goes_on_when_told(env: &TestEnv) {
    let line = "echo $$ > pid; trap 'echo > on; exit 8' USR1; while :; do sleep 0.01; done";
    let holder = env.start(&["run", "-t", "2s", "-k", "300ms", "x", "-c", line]);
    let command = env.pids("pid", 1)[0];
    kill_process(command, Signal::STOP).unwrap();
    until("it is stopped", || is_stopped(command));
    // Longer than the ttl: the supervisor continues, whichever process is stopped.
    let fence = env.view("x").unwrap().holders[0].fence;
    std::thread::sleep(std::time::Duration::from_millis(2500));
    assert_eq!(env.view("x").unwrap().holders[0].fence, fence, "it is still held");
    holder.signal(Signal::CONT);
    until("it goes on", || !is_stopped(command));
    kill_process(holder.supervisor(), Signal::USR1).unwrap();
    assert_eq!(holder.end().code, Some(8));
}

/// An engine that does not answer must not keep a process that was told to end.
#[test]
fn a_second_signal_ends_the_way_out_at_once() {
    let env = TestEnv::redis();
    let (_holder, waiter) = holder_and_waiter(&env);
    env.redis.as_ref().unwrap().pause().unwrap();
    waiter.signal(Signal::INT);
    until("the first is read", || {
        // A signal that is pending is read before the second is sent, or the two would be one.
        let status = std::fs::read_to_string(format!("/proc/{}/status", waiter.pid())).unwrap();
        status.lines().any(|line| line.starts_with("ShdPnd") && line.ends_with("0000000000000000"))
    });
    std::thread::sleep(std::time::Duration::from_millis(100));
    let began = std::time::Instant::now();
    waiter.signal(Signal::INT);
    let ended = waiter.end();
    assert_eq!(ended.code, Some(130), "{}", ended.err);
    assert!(began.elapsed() < std::time::Duration::from_millis(2500), "it waited for the engine");
    env.redis.as_ref().unwrap().resume().unwrap();
}
