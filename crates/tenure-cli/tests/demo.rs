//! `tenure demo` as people and scripts meet it: the proofs hold, and nothing stays of them.

use crate::sandbox;

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Ran, Sandbox, eventually};
use tenure_testkit::servers::Redis;

const PROOFS: [&str; 10] = [
    "race", "booking", "stolen", "crash", "slots", "order", "handover", "leader", "webhook",
    "relay",
];

/// A sandbox with its own folder for temporary files.
fn sandbox(name: &str) -> (Sandbox, PathBuf) {
    let sandbox = Sandbox::new(name).without_engine();
    let temporary = sandbox.folder().join("tmp");
    std::fs::create_dir(&temporary).unwrap();
    let text = temporary.to_str().unwrap().to_owned();
    (sandbox.with("TMPDIR", &text), temporary)
}

/// A demo that is under way; it is killed with the test.
struct Started(Option<Child>);

impl Started {
    fn new(mut command: Command) -> Started {
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started(Some(command.spawn().unwrap()))
    }

    fn child(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }

    fn signal(&mut self, signal: Signal) {
        kill_process(Pid::from_child(self.child()), signal).unwrap();
    }

    fn end(mut self) -> Ran {
        Ran::new(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The processes of the demo whose folder is in this one.
fn workers(temporary: &Path) -> Vec<Pid> {
    let folder = format!("TENURE_DEMO_FOLDER={}/", temporary.display());
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Some end while they are looked at.
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if environment.split(|byte| *byte == 0).any(|one| one.starts_with(folder.as_bytes())) {
            found.push(Pid::from_raw(pid).unwrap());
        }
    }
    found
}

fn files(folder: &Path) -> usize {
    std::fs::read_dir(folder).unwrap().count()
}

/// A race that lasts, with both of its processes at work. Before a process starts its second thread, it has not yet
/// asked the kernel to end it together with the demo: stopped at that point, it would stay.
fn long_race(sandbox: &Sandbox, temporary: &Path) -> Started {
    let race = Started::new(sandbox.command(["demo", "race", "--count", "1000000"]));
    let threads = |pid: &Pid| {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_pid()));
        tasks.map_or(0, Iterator::count)
    };
    eventually("two processes race", || {
        let workers = workers(temporary);
        workers.len() == 2 && workers.iter().all(|pid| threads(pid) > 1)
    });
    race
}

fn row<'a>(out: &'a str, proof: &str) -> &'a str {
    let (_, table) = out.split_once("PROOF ").expect("there is a table");
    table.lines().find(|line| line.starts_with(proof)).expect(proof)
}

#[test]
fn every_proof_holds_the_table_says_so_and_nothing_stays() {
    let (sandbox, temporary) = sandbox("demo-all");
    let ran = sandbox.run(&["demo", "--count", "200"]);
    let out = ran.worked();
    for proof in PROOFS {
        assert!(row(out, proof).ends_with("  held"), "{out}");
        assert!(out.contains(&format!("\n{proof}: ")), "{out}");
    }
    assert!(row(out, "race").contains("400 of 400, 0 lost"), "{out}");
    assert!(out.contains("extended meanwhile: 6 of 6"), "{out}");
    assert!(row(out, "booking").contains("2 guests booked it"), "{out}");
    assert!(row(out, "booking").contains("1 guest booked it"), "{out}");
    assert!(out.contains("never touched the database"), "{out}");
    assert!(row(out, "stolen").contains("late write refused"), "{out}");
    assert!(out.contains("Ada's release says Late"), "{out}");
    assert!(row(out, "crash").contains("stuck"), "{out}");
    assert!(row(out, "crash").contains("the next gets it after"), "{out}");
    assert!(row(out, "slots").contains("20 inside at once"), "{out}");
    assert!(row(out, "slots").contains(" 5 inside at once"), "{out}");
    assert!(row(out, "order").contains("  0 of 60 with a wrong nonce"), "{out}");
    // Both sides have the same ttl, and the workers of one are seen to go through their states.
    assert!(out.contains("a lock lasts 3.0 s") && out.contains("a term lasts 3.0 s"), "{out}");
    assert!(out.contains("the last was acquiring, working, "), "{out}");
    assert!(row(out, "leader").contains("9 runs for 3 ticks"), "{out}");
    assert!(row(out, "leader").contains("  9 runs for 9 ticks"), "{out}");
    assert!(row(out, "webhook").contains("charged 4 times"), "{out}");
    assert!(row(out, "webhook").contains("  charged once"), "{out}");
    assert!(out.contains("all 8 deliveries were answered \"receipt 1\""), "{out}");
    assert!(row(out, "relay").contains("  0 of 60 with a wrong nonce"), "{out}");
    assert!(out.contains("60 of 60 taken in their order"), "{out}");
    assert!(out.contains("10 of 10 held, in "), "{out}");
    assert!(out.contains("tenure run hello -- sleep 60"), "{out}");
    assert!(!out.contains('\x1b'), "{out}");
    assert_eq!((files(&temporary), workers(&temporary)), (0, vec![]));
    // The default engine is none of its business.
    assert!(!sandbox.folder().join("state").exists());
}

#[test]
fn without_a_lock_the_race_loses_updates() {
    let (sandbox, _) = sandbox("demo-race");
    let ran = sandbox.run(&["demo", "race", "--count", "5000"]);
    let side = ran.worked().lines().find(|line| line.starts_with("  without")).unwrap();
    assert!(side.contains(" of 10000, ") && !side.contains(" 0 lost"), "{side}");
    assert!(ran.stdout.contains("10000 of 10000, 0 lost"), "{ran:?}");
    assert!(!ran.stdout.contains("slots"), "only the race was asked for: {ran:?}");
}

#[test]
fn for_programs_each_proof_is_an_object() {
    let (sandbox, _) = sandbox("demo-json");
    let ran = sandbox.run(&["demo", "booking", "--json"]);
    let lines: Vec<_> = ran.worked().lines().collect();
    let [line] = lines[..] else { panic!("{lines:?}") };
    let begins = r#"{"v":1,"proof":"booking","held":true,"without":{"seen":"2 guests booked it","#;
    assert!(line.starts_with(begins), "{line}");
    assert!(line.contains(r#""with":{"seen":"1 guest booked it","#), "{line}");
    assert!(line.contains(r#""winners":1}"#) && line.ends_with('}'), "{line}");
}

#[test]
fn on_a_terminal_it_says_how_far_it_is_in_one_line() {
    let (sandbox, _) = sandbox("demo-terminal");
    let tenure = env!("CARGO_BIN_EXE_tenure");
    let set = sandbox.command::<&str>([]);
    let mut terminal = Command::new("script");
    terminal.args(["-qfc", &format!("{tenure} demo booking"), "/dev/null"]).env_clear();
    terminal.envs(set.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let ran = sandbox::ran(terminal.env("TERM", "xterm").stdin(Stdio::null()));
    assert_eq!(ran.exit, Some(0), "{ran:?}");
    assert!(ran.stdout.contains("\r\x1b[K  with     both ask"), "{ran:?}");
    assert!(ran.stdout.contains("\r\x1b[K  with     1 guest booked it"), "{ran:?}");
    assert!(ran.stdout.contains("1 of 1 held"), "{ran:?}");
}

#[test]
fn a_proof_that_cannot_be_played_fails_the_demo_and_says_why() {
    let (sandbox, temporary) = sandbox("demo-broken");
    let race = long_race(&sandbox, &temporary);
    let first = workers(&temporary);
    kill_process(first[0], Signal::KILL).unwrap();
    // Its other side would be played for longer than a test has time.
    let mut second = Vec::new();
    eventually("the other side is played", || {
        second = workers(&temporary);
        second.len() == 2 && !second.iter().any(|worker| first.contains(worker))
    });
    kill_process(second[1], Signal::KILL).unwrap();
    let ran = race.end();
    assert_eq!(ran.exit, Some(1), "{ran:?}");
    let without = "  without  did not finish: the process for `race without 1000000` was \
                   ended by signal 9";
    assert!(ran.stdout.contains(without), "{ran:?}");
    assert!(row(&ran.stdout, "race").ends_with("  FAILED"), "{ran:?}");
    assert!(ran.stderr.starts_with("error: 1 of 1 proofs failed: race\n"), "{ran:?}");
    assert!(ran.stderr.contains("`tenure demo race`"), "{ran:?}");
    assert_eq!((files(&temporary), workers(&temporary)), (0, vec![]));
}

#[test]
fn a_folder_that_cannot_be_made_is_said_before_anything_is_played() {
    let sandbox = Sandbox::new("demo-nowhere").without_engine().with("TMPDIR", "/proc/nowhere");
    let ran = sandbox.run(&["demo"]);
    let [what, _, help] = ran.failed(73);
    assert!(what.starts_with("cannot create /proc/nowhere/tenure-demo-"), "{what}");
    assert!(help.contains("TMPDIR"), "{help}");
}

#[test]
fn whoever_ends_the_demo_ends_all_of_it() {
    for (signal, exit) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let (sandbox, temporary) = sandbox(&format!("demo-ended-{exit}"));
        let mut race = long_race(&sandbox, &temporary);
        race.signal(signal);
        let ran = race.end();
        assert_eq!((ran.exit, &*ran.stderr), (Some(exit), ""), "{ran:?}");
        assert_eq!((files(&temporary), workers(&temporary)), (0, vec![]));
    }
}

#[test]
fn a_demo_that_is_killed_takes_its_processes_along_even_a_stopped_one() {
    let (sandbox, temporary) = sandbox("demo-killed");
    let mut race = long_race(&sandbox, &temporary);
    kill_process(workers(&temporary)[0], Signal::STOP).unwrap();
    race.signal(Signal::KILL);
    race.end();
    eventually("all are gone", || workers(&temporary).is_empty());
}

#[test]
fn a_reader_that_leaves_early_is_no_failure() {
    let (sandbox, temporary) = sandbox("demo-reader");
    let mut demo = Started::new(sandbox.command(["demo"]));
    let mut first = String::new();
    let out = demo.child().stdout.take().unwrap();
    BufReader::new(out).read_line(&mut first).unwrap();
    assert!(first.starts_with("What locks prevent"), "{first}");
    let ran = demo.end();
    assert_eq!((ran.exit, &*ran.stderr), (Some(0), ""), "{ran:?}");
    assert_eq!((files(&temporary), workers(&temporary)), (0, vec![]));
}

#[test]
fn it_is_played_on_the_engine_that_is_named_and_leaves_nothing_there() {
    let redis = Redis::build().start().unwrap();
    let (sandbox, temporary) = sandbox("demo-redis");
    let sandbox = sandbox.with("TENURE_URL", &redis.url()).with("TENURE_NS", "prod");
    let demo = Started::new(sandbox.command(["demo", "handover"]));
    let mut names = Vec::new();
    eventually("its names are seen", || {
        let views = sandbox.with_library(async |tenure| tenure.list("").await.unwrap());
        names = views.iter().map(|view| view.name.as_str().to_owned()).collect();
        !names.is_empty()
    });
    assert!(names.iter().all(|name| name.starts_with("prod/tenure-demo/")), "{names:?}");
    for worker in workers(&temporary) {
        let line = std::fs::read(format!("/proc/{}/cmdline", worker.as_raw_pid()));
        let line = String::from_utf8(line.unwrap_or_default()).unwrap();
        assert!(!line.contains("redis:"), "{line}");
    }
    let ran = demo.end();
    assert!(ran.worked().contains("shown by real processes on redis"), "{ran:?}");
    let left = sandbox.with_library(async |tenure| tenure.list("").await.unwrap());
    assert_eq!(left, []);
    assert_eq!((files(&temporary), workers(&temporary)), (0, vec![]));
}

#[test]
fn an_engine_that_processes_cannot_share_or_reach_is_refused() {
    let (sandbox, temporary) = sandbox("demo-refused");
    let ran = sandbox.run(&["demo", "-u", "memory:"]);
    let [what, why, _] = ran.failed(64);
    assert_eq!(what, "the demo cannot be played on memory:");
    assert!(why.contains("several processes"), "{why}");
    let ran = sandbox.run(&["demo", "-u", "redis://127.0.0.1:1"]);
    let [what, ..] = ran.failed(69);
    assert!(what.starts_with("engine unreachable"), "{what}");
    assert_eq!(files(&temporary), 0);
}

#[test]
fn its_processes_are_no_command() {
    let sandbox = Sandbox::new("demo-worker");
    let ran = sandbox.run(&["demo-worker", "race", "with", "1"]);
    let [what, _, help] = ran.failed(64);
    assert_eq!((what, help), ("`demo-worker` is a part of the demo", "see `tenure demo --help`"));
    assert!(!sandbox.run(&["--help"]).worked().contains("demo-worker"));
}
