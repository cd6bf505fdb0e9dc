//! The examples, run as their readers would: as processes.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything takes that works at all.
const BOUND: Duration = Duration::from_secs(20);

/// A program that runs, with what it says.
struct Example {
    child: Child,
    lines: Receiver<String>,
}

impl Example {
    fn start(name: &str, args: &[&str]) -> Example {
        // Cargo builds the examples along with the tests, beside the folder of the test programs.
        let tests = std::env::current_exe().unwrap();
        let program: PathBuf = tests.ancestors().nth(2).unwrap().join("examples").join(name);
        assert!(program.exists(), "run `cargo build -p tenure --examples` first: no {program:?}");
        let mut child = Command::new("setpriv")
            .args(["--pdeathsig", "KILL"])
            .arg(program)
            .args(args)
            .env("NO_COLOR", "1")
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (tell, lines) = channel();
        let out = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            out.lines().map_while(Result::ok).for_each(|line| drop(tell.send(line)));
        });
        Example { child, lines }
    }

    /// Waits for a line with these words, and returns it.
    fn says(&self, words: &str) -> String {
        let began = Instant::now();
        loop {
            let left = BOUND.saturating_sub(began.elapsed());
            let line = self.lines.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("never said {words:?}"));
            if line.contains(words) {
                return line;
            }
        }
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }
}

impl Drop for Example {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A file of this test's own, gone with it.
struct Scratch(PathBuf);

impl Scratch {
    fn new(purpose: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("tenure-{purpose}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Scratch(path)
    }

    fn url(&self) -> String {
        format!("file:{}", self.0.join("locks.db").display())
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn id_in(line: &str) -> String {
    let (_, rest) = line.split_once("worker=\"").unwrap_or_else(|| panic!("no worker in {line}"));
    rest.split('"').next().unwrap().to_owned()
}

#[test]
fn the_other_worker_takes_over_when_one_is_told_to_stop_and_when_one_is_killed() {
    let scratch = Scratch::new("worker-example");
    let url = scratch.url();
    let mut first = Example::start("worker", &[&url]);
    let id = id_in(&first.says("trying to lead"));
    assert_eq!(id_in(&first.says("doing some heavy work")), id, "its id is on every line");
    let second = Example::start("worker", &[&url]);
    second.says("trying to lead");

    first.signal(Signal::TERM);
    first.says("work has stopped");
    first.says("done");
    assert!(first.child.wait().unwrap().success());
    second.says("doing some heavy work");

    let third = Example::start("worker", &[&url]);
    third.says("trying to lead");
    second.signal(Signal::KILL);
    drop(second);
    third.says("doing some heavy work");
    third.signal(Signal::INT);
    third.says("done");
}
