//! `tenure bench` on real engines, with real processes. What it measures is not judged here: that
//! differs from machine to machine. That it measures, and leaves nothing behind, is.

use crate::sandbox;

use std::fs;
use std::process::{Child, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Ran, Sandbox, eventually};
use tenure_testkit::servers::Redis;

/// The number after a key, in the first object that has it.
fn number(text: &str, key: &str) -> f64 {
    let (_, rest) =
        text.split_once(&format!("\"{key}\":")).unwrap_or_else(|| panic!("{key}: {text}"));
    let end = rest.find([',', '}']).unwrap();
    rest[..end].parse().unwrap()
}

/// Starts a run that takes long.
fn start(sandbox: &Sandbox, part: &str) -> Child {
    let mut command = sandbox.command(["bench", "--part", part, "--seconds", "60"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

/// The processes that a process has started.
fn children(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let children = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    children
        .flat_map(|list| {
            list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>()
        })
        .collect()
}

/// Whether a process has ended, although perhaps nobody has asked how.
fn is_gone(pid: i32) -> bool {
    match fs::read_to_string(format!("/proc/{pid}/stat")) {
        Ok(stat) => stat.rsplit_once(')').is_some_and(|(_, rest)| rest.starts_with(" Z")),
        Err(_) => true,
    }
}

fn names(sandbox: &Sandbox) -> String {
    sandbox.run(&["ls", "--json"]).worked().to_owned()
}

#[test]
fn every_part_is_measured_and_a_part_without_processes_is_left_out() {
    let sandbox = Sandbox::new("bench-memory").with("TENURE_URL", "memory:");
    let ran = sandbox.run(&["bench", "--seconds", "1", "--json"]);
    let lines: Vec<_> = ran.worked().lines().collect();
    let [pairs, names, contended, idle, recovery] = lines[..] else { panic!("{ran:?}") };
    assert!(number(pairs, "pairs_per_second") > 0.0 && number(pairs, "p50_us") > 0.0, "{pairs}");
    assert_eq!((number(pairs, "tasks"), number(names, "tasks")), (1.0, 64.0));
    assert!(number(contended, "hand_overs_per_second") > 0.0, "{contended}");
    assert_eq!(number(idle, "waiters"), 200.0);
    assert!(recovery.contains(r#""left_out":"this engine has no other processes""#), "{recovery}");
    assert!(lines.iter().all(|line| line.contains(r#""engine":"memory:","seconds":1"#)), "{ran:?}");
}

#[test]
fn processes_share_a_name_evenly_and_never_hold_it_together() {
    let sandbox = Sandbox::new("bench-contended");
    let ran = sandbox.run(&["bench", "--part", "contended", "--seconds", "2", "--json"]);
    let line = ran.worked();
    assert_eq!((number(line, "contenders"), number(line, "overlaps")), (4.0, 0.0));
    assert!(number(line, "hand_overs_per_second") > 0.0, "{line}");
    assert!(number(line, "fairness") > 0.5, "{line}");
    assert!(number(line, "hand_off_p50_us") > 0.0, "{line}");
    assert_eq!(names(&sandbox), "");
}

#[test]
fn a_killed_holder_is_recovered_from_and_the_table_says_how_soon() {
    let sandbox = Sandbox::new("bench-recovery");
    let ran = sandbox.run(&["bench", "--part", "recovery", "--seconds", "1", "--ns", "a b"]);
    let table = ran.worked();
    assert!(table.starts_with("engine file:"), "{table}");
    let cells = |line: &str| line.split("  ").filter(|cell| !cell.is_empty()).count();
    let rows: Vec<_> = table.lines().skip(1).collect();
    assert_eq!(rows[0].split_whitespace().collect::<Vec<_>>(), ["PART", "FIGURE", "TENURE"]);
    assert_eq!((rows.len(), cells(rows[1])), (4, 3), "{table}");
    assert_eq!(names(&sandbox), "");
}

#[test]
fn beside_redis_the_naive_lock_is_measured_and_nothing_of_either_stays() {
    let server = Redis::build().password("s3@cret").start().unwrap();
    let url = server.url().replace("redis://", "redis://:s3%40cret@");
    let sandbox = Sandbox::new("bench-redis").with("TENURE_URL", &url);
    for (part, figure) in [("names", "pairs_per_second"), ("contended", "acquisitions_per_second")]
    {
        let ran = sandbox.run(&["bench", "--part", part, "--seconds", "1", "--json"]);
        let (tenure, naive) = ran.worked().split_once("\"naive\":{").unwrap();
        assert!(number(tenure, figure) > 0.0 && number(naive, figure) > 0.0, "{ran:?}");
    }
    let ran = sandbox.run(&["bench", "--part", "idle", "--seconds", "1", "--json"]);
    let (tenure, naive) = ran.worked().split_once("\"naive\":{").unwrap();
    // The library's waiters are notified and stay silent; the naive ones have to ask.
    let asked = [tenure, naive].map(|half| number(half, "commands_per_second"));
    assert!(asked[0] * 2.0 < asked[1], "{asked:?}");
    assert_eq!(names(&sandbox), "");
    let mut left = server.connect().unwrap();
    let keys = format!("{:?}", left.command(&["KEYS", "*tenure-bench*"]).unwrap());
    assert!(!keys.contains("tenure-bench"), "{keys}");
}

#[test]
fn where_there_is_no_naive_lock_that_is_said() {
    let server = Redis::build().start().unwrap();
    let url = format!("redis+unix://{}", server.socket_path().display());
    let sandbox = Sandbox::new("bench-unix").with("TENURE_URL", &url);
    let ran = sandbox.run(&["bench", "--part", "pairs", "--seconds", "1"]);
    let table = ran.worked();
    assert!(!table.contains("NAIVE"), "{table}");
    assert!(table.ends_with("one server, over TCP and without TLS\n"), "{table}");
}

#[test]
fn an_interrupted_run_ends_its_processes_and_leaves_the_lines() {
    for (part, signal, exit) in [("contended", Signal::INT, 130), ("idle", Signal::TERM, 143)] {
        let sandbox = Sandbox::new(&format!("bench-interrupted-{part}"));
        let run = start(&sandbox, part);
        eventually("four processes work", || children(run.id()).len() == 4);
        eventually("somebody holds it", || names(&sandbox).contains("tenure-bench/"));
        let workers = children(run.id());
        kill_process(Pid::from_raw(run.id().cast_signed()).unwrap(), signal).unwrap();
        let ran = Ran::new(run.wait_with_output().unwrap());
        assert_eq!((ran.exit, &*ran.stdout, &*ran.stderr), (Some(exit), "", ""));
        assert!(workers.iter().all(|pid| is_gone(*pid)), "{workers:?}");
        assert_eq!(names(&sandbox), "");
    }
}

#[test]
fn no_process_outlives_a_run_that_was_killed() {
    let sandbox = Sandbox::new("bench-killed");
    let mut run = start(&sandbox, "idle");
    eventually("four processes work", || children(run.id()).len() == 4);
    let workers = children(run.id());
    run.kill().unwrap();
    run.wait().unwrap();
    eventually("they are gone", || workers.iter().all(|pid| is_gone(*pid)));
    assert_eq!(names(&sandbox), "");
}

#[test]
fn no_password_is_among_the_arguments_of_the_processes() {
    let server = Redis::build().password("hunter2").start().unwrap();
    let url = server.url().replace("redis://", "redis://:hunter2@");
    let sandbox = Sandbox::new("bench-arguments").with("TENURE_URL", &url);
    let mut run = start(&sandbox, "contended");
    eventually("four processes work", || children(run.id()).len() == 4);
    for pid in children(run.id()) {
        let arguments = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!arguments.contains("hunter2"), "{arguments}");
    }
    run.kill().unwrap();
    run.wait().unwrap();
}

#[test]
fn what_makes_no_sense_is_refused() {
    let sandbox = Sandbox::new("bench-refused");
    let ran = sandbox.run(&["bench", "--part", "nonsense"]);
    let [_, why, _] = ran.failed(64);
    assert_eq!(why, "possible values: pairs, names, contended, idle, recovery");
    for seconds in ["0", "61", "x"] {
        let ran = sandbox.run(&["bench", "--seconds", seconds]);
        let [_, why, _] = ran.failed(64);
        assert_eq!(why, "expected a whole number from 1 to 60");
    }
    let ran = sandbox.run(&["bench", "--url", "redis://127.0.0.1:1?connect_timeout=100ms"]);
    ran.failed(69);
}
