//! In a terminal: keys reach whoever should have them, and the shell's jobs are jobs.
//!
//! `script` gives a shell a terminal of its own, into which the test types.

use std::io::{Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use crate::run::stage::{Stage, Started, undisturbed, until};

/// Somebody at a terminal.
struct Typist {
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    _script: Started,
}

const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";
const END_OF_INPUT: &str = "\x04";

impl Typist {
    /// Sits down before this command.
    fn new(stage: &Stage, command: &str) -> Typist {
        let mut script = undisturbed("script");
        script.args(["-qfc", command, "/dev/null"]);
        script.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("TENURE_URL", &stage.url);
        script.env("PS1", "$ ").env("TERM", "dumb").current_dir(stage.path(""));
        script.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut script = Started::new(script);
        let keys = script.child().stdin.take().unwrap();
        let mut screen = script.child().stdout.take().unwrap();
        let shown = Arc::new(Mutex::new(String::new()));
        let writes = shown.clone();
        std::thread::spawn(move || {
            let mut some = [0; 4096];
            while let Ok(length @ 1..) = screen.read(&mut some) {
                writes.lock().unwrap().push_str(&String::from_utf8_lossy(&some[..length]));
            }
        });
        Typist { keys, shown, _script: script }
    }

    fn shell(stage: &Stage) -> Typist {
        let mut typist = Typist::new(stage, "bash --norc --noprofile -i");
        typist.types("stty -echo; echo be''gin\n");
        typist.sees("begin");
        typist
    }

    fn types(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Waits until it is shown, and forgets all up to there.
    #[track_caller]
    fn sees(&mut self, text: &str) {
        let shown = self.shown.clone();
        let mut last = String::new();
        let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            until(text, || {
                let mut shown = shown.lock().unwrap();
                last.clone_from(&shown);
                let Some(at) = shown.find(text) else { return false };
                *shown = shown.split_off(at + text.len());
                true
            });
        }));
        assert!(found.is_ok(), "{text:?} is not shown; there is {last:?}");
    }
}

#[test]
fn a_command_reads_what_is_typed_and_the_shell_has_it_back_afterwards() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types("$TENURE run x -- sh -c 'echo re''ady; read a; echo got-$a'\n");
    typist.sees("ready");
    typist.types("abc\n");
    typist.sees("got-abc");
    typist.types("echo back-$?\n");
    typist.sees("back-0");
    // The job of a script, too: there the group has the script's shell in it, which takes nothing back
    // by itself.
    typist.types("sh -c '$TENURE run x -- cat; read b; echo then-$b; exit 3'\n");
    typist.types("hello\n");
    typist.sees("hello");
    typist.types(END_OF_INPUT);
    until("it has ended", || stage.view("x").is_none());
    typist.types("def\n");
    typist.sees("then-def");
    typist.types("echo rc-$?\n");
    typist.sees("rc-3");
}

#[test]
fn keys_that_make_signals_reach_the_command() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types("$TENURE run x -- sh -c 'echo re''ady; exec sleep 600'; echo rc-$?\n");
    typist.sees("ready");
    typist.types(INTERRUPT);
    typist.sees("rc-130");
    // The same for one that has the terminal.
    typist.types("$TENURE run x -- sh -c 'read a; echo got-$a; read a'; echo rc-$?\n");
    typist.types("abc\n");
    typist.sees("got-abc");
    typist.types(INTERRUPT);
    typist.sees("rc-130");
    assert!(stage.view("x").is_none());
}

#[test]
fn a_job_is_stopped_and_goes_on_and_the_name_stays_held() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types("mkfifo pipe; echo ma''de\n");
    typist.sees("made");
    for reads in [false, true] {
        // Nothing is started while the key is pressed: a shell that is about to start something can
        // miss it, with us or without.
        let read = if reads { "read a; echo got-$a;" } else { "" };
        typist.types(&format!(
            "$TENURE run -t 3s x -- sh -c '{read} echo re''ady; read b < pipe; echo $b'\n"
        ));
        if reads {
            typist.types("abc\n");
            typist.sees("got-abc");
        }
        typist.sees("ready");
        let fence = stage.view("x").unwrap().holders[0].fence;
        typist.types(SUSPEND);
        typist.sees("Stopped");
        typist.types("sleep 4; echo sle''pt\n");
        typist.sees("slept");
        let view = stage.view("x").unwrap();
        assert_eq!(view.holders[0].fence, fence, "it is renewed although the job is stopped");
        typist.types("fg\n");
        std::fs::write(stage.path("pipe"), "went-on\n").unwrap();
        typist.sees("went-on");
        typist.types("echo rc-$?\n");
        typist.sees("rc-0");
    }
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_reads_in_the_foreground() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types("$TENURE run x -- sh -c 'echo > ready; read a; echo got-$a' &\n");
    stage.lines("ready", 1);
    until("the shell says so", || {
        typist.types("jobs\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        typist.shown.lock().unwrap().contains("Stopped")
    });
    typist.types("fg\n");
    typist.types("abc\n");
    typist.sees("got-abc");
}

#[test]
fn a_job_that_waits_in_line_and_is_stopped_starts_nothing_before_it_goes_on() {
    let stage = Stage::file();
    let holder = stage.start(&["run", "x", "--", "sh", "-c", "echo > held; exec sleep 600"]);
    stage.lines("held", 1);
    let mut typist = Typist::shell(&stage);
    typist.types("$TENURE run x -- touch ran\n");
    until("it waits", || stage.waiters("x") == 1);
    typist.types(SUSPEND);
    typist.sees("Stopped");
    holder.signal(rustix::process::Signal::TERM);
    let _ = holder.end();
    until("it has the name", || stage.holders("x") == 1);
    assert!(!stage.path("ran").exists(), "nothing is started while the job is stopped");
    typist.types("fg\n");
    until("it ran", || stage.path("ran").exists());
    until("and released", || stage.view("x").is_none());
}

#[test]
fn one_run_within_another_reads_too() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types(
        "$TENURE run x -- $TENURE run y -- sh -c 'read a; echo got-$a; read a; echo got-$a'\n",
    );
    typist.types("abc\n");
    typist.sees("got-abc");
    typist.types(SUSPEND);
    typist.sees("Stopped");
    typist.types("fg\n");
    typist.types("def\n");
    typist.sees("got-def");
}

/// As the first process of a container: nobody could let it go on.
#[test]
fn a_session_without_a_shell_is_not_stopped_for_ever() {
    let stage = Stage::file();
    let mut typist = Typist::new(
        &stage,
        "exec $TENURE run x -- sh -c 'read a; echo got-$a; read a; echo got-$a'",
    );
    typist.types("abc\n");
    typist.sees("got-abc");
    typist.types(SUSPEND);
    typist.types("def\n");
    typist.sees("got-def");
}

/// tmux starts commands like that.
#[test]
fn a_command_that_ignores_the_terminals_signals_has_it_from_the_start() {
    let stage = Stage::file();
    let line = "exec env --ignore-signal=TTIN,TTOU $TENURE run x -- sh -c 'read a; echo got-$a'";
    let mut typist = Typist::new(&stage, line);
    typist.types("abc\n");
    typist.sees("got-abc");
}

#[test]
fn the_terminal_is_as_it_was_after_a_command_that_had_to_be_killed() {
    let stage = Stage::file();
    let mut typist = Typist::shell(&stage);
    typist.types("stty -g > before\n");
    let line = "trap \"\" TERM; stty raw; read a; echo > raw; while :; do sleep 0.05; done";
    typist.types(&format!("$TENURE run --max-run 1s -k 100ms x -- sh -c '{line}'; echo rc-$?\n"));
    typist.sees("rc-124");
    typist.types("stty -g > after; echo wri''tten\n");
    typist.sees("written");
    assert_eq!(stage.read("before"), stage.read("after"));
}
