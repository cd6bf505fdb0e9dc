//! In a terminal: keys reach the right process, and the shell's jobs are jobs.
//!
//! `script` gives a shell a terminal of its own, into which the test types.

use std::io::{Read, Write};
use std::process::{ChildStdin, Stdio};
use std::sync::{Arc, Mutex};

use crate::run::test_env::{Started, TestEnv, undisturbed, until};

/// Somebody at a terminal.
struct ShellTerminal {
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    _script: Started,
}

const INTERRUPT: &str = "\x03";
const SUSPEND: &str = "\x1a";
const END_OF_INPUT: &str = "\x04";

impl ShellTerminal {
    /// Runs this command in the terminal.
    fn new(env: &TestEnv, command: &str) -> ShellTerminal {
        let mut script = undisturbed("script");
        script.args(["-qfc", command, "/dev/null"]);
        script.env("TENURE", env!("CARGO_BIN_EXE_tenure")).env("TENURE_URL", &env.url);
        script.env("PS1", "$ ").env("TERM", "dumb").current_dir(env.path(""));
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
        ShellTerminal { keys, shown, _script: script }
    }

    fn shell(env: &TestEnv) -> ShellTerminal {
        let mut terminal = ShellTerminal::new(env, "bash --norc --noprofile -i");
        terminal.types("stty -echo; echo be''gin\n");
        terminal.sees("begin");
        terminal
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
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("$TENURE run x -- sh -c 'echo re''ady; read a; echo got-$a'\n");
    terminal.sees("ready");
    terminal.types("abc\n");
    terminal.sees("got-abc");
    terminal.types("echo back-$?\n");
    terminal.sees("back-0");
    // The job of a script, too: there the group has the script's shell in it, which takes nothing back
    // by itself.
    terminal.types("sh -c '$TENURE run x -- cat; read b; echo then-$b; exit 3'\n");
    terminal.types("hello\n");
    terminal.sees("hello");
    terminal.types(END_OF_INPUT);
    until("it has ended", || env.view("x").is_none());
    terminal.types("def\n");
    terminal.sees("then-def");
    terminal.types("echo rc-$?\n");
    terminal.sees("rc-3");
}

#[test]
fn keys_that_make_signals_reach_the_command() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("$TENURE run x -- sh -c 'echo re''ady; exec sleep 600'; echo rc-$?\n");
    terminal.sees("ready");
    terminal.types(INTERRUPT);
    terminal.sees("rc-130");
    // The same for one that has the terminal.
    terminal.types("$TENURE run x -- sh -c 'read a; echo got-$a; read a'; echo rc-$?\n");
    terminal.types("abc\n");
    terminal.sees("got-abc");
    terminal.types(INTERRUPT);
    terminal.sees("rc-130");
    assert!(env.view("x").is_none());
}

#[test]
fn a_job_is_stopped_and_goes_on_and_the_name_stays_held() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("mkfifo pipe; echo ma''de\n");
    terminal.sees("made");
    for reads in [false, true] {
        // Nothing is started while the key is pressed: a shell that is about to start something can
        // miss it, with us or without.
        let read = if reads { "read a; echo got-$a;" } else { "" };
        terminal.types(&format!(
            "$TENURE run -t 3s x -- sh -c '{read} echo re''ady; read b < pipe; echo $b'\n"
        ));
        if reads {
            terminal.types("abc\n");
            terminal.sees("got-abc");
        }
        terminal.sees("ready");
        let fence = env.view("x").unwrap().holders[0].fence;
        terminal.types(SUSPEND);
        terminal.sees("Stopped");
        terminal.types("sleep 4; echo sle''pt\n");
        terminal.sees("slept");
        let view = env.view("x").unwrap();
        assert_eq!(view.holders[0].fence, fence, "it is renewed although the job is stopped");
        terminal.types("fg\n");
        std::fs::write(env.path("pipe"), "went-on\n").unwrap();
        terminal.sees("went-on");
        terminal.types("echo rc-$?\n");
        terminal.sees("rc-0");
    }
}

#[test]
fn a_job_in_the_background_stops_when_it_reads_and_reads_in_the_foreground() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("$TENURE run x -- sh -c 'echo > ready; read a; echo got-$a' &\n");
    env.lines("ready", 1);
    until("the shell says so", || {
        terminal.types("jobs\n");
        std::thread::sleep(std::time::Duration::from_millis(50));
        terminal.shown.lock().unwrap().contains("Stopped")
    });
    terminal.types("fg\n");
    terminal.types("abc\n");
    terminal.sees("got-abc");
}

#[test]
fn a_job_that_waits_in_line_and_is_stopped_starts_nothing_before_it_goes_on() {
    let env = TestEnv::file();
    let holder = env.start(&["run", "x", "--", "sh", "-c", "echo > held; exec sleep 600"]);
    env.lines("held", 1);
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("$TENURE run x -- touch ran\n");
    until("it waits", || env.waiters("x") == 1);
    terminal.types(SUSPEND);
    terminal.sees("Stopped");
    holder.signal(rustix::process::Signal::TERM);
    let _ = holder.end();
    until("it has the name", || env.holders("x") == 1);
    assert!(!env.path("ran").exists(), "nothing is started while the job is stopped");
    terminal.types("fg\n");
    until("it ran", || env.path("ran").exists());
    until("and released", || env.view("x").is_none());
}

#[test]
fn one_run_within_another_reads_too() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types(
        "$TENURE run x -- $TENURE run y -- sh -c 'read a; echo got-$a; read a; echo got-$a'\n",
    );
    terminal.types("abc\n");
    terminal.sees("got-abc");
    terminal.types(SUSPEND);
    terminal.sees("Stopped");
    terminal.types("fg\n");
    terminal.types("def\n");
    terminal.sees("got-def");
}

/// As the first process of a container: nobody could continue it.
#[test]
fn a_session_without_a_shell_is_not_stopped_for_ever() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::new(
        &env,
        "exec $TENURE run x -- sh -c 'read a; echo got-$a; read a; echo got-$a'",
    );
    terminal.types("abc\n");
    terminal.sees("got-abc");
    terminal.types(SUSPEND);
    terminal.types("def\n");
    terminal.sees("got-def");
}

/// tmux starts commands like that.
#[test]
fn a_command_that_ignores_the_terminals_signals_has_it_from_the_start() {
    let env = TestEnv::file();
    let line = "exec env --ignore-signal=TTIN,TTOU $TENURE run x -- sh -c 'read a; echo got-$a'";
    let mut terminal = ShellTerminal::new(&env, line);
    terminal.types("abc\n");
    terminal.sees("got-abc");
}

#[test]
fn the_terminal_is_as_it_was_after_a_command_that_had_to_be_killed() {
    let env = TestEnv::file();
    let mut terminal = ShellTerminal::shell(&env);
    terminal.types("stty -g > before\n");
    let line = "trap \"\" TERM; stty raw; read a; echo > raw; while :; do sleep 0.05; done";
    terminal.types(&format!("$TENURE run --max-run 1s -k 100ms x -- sh -c '{line}'; echo rc-$?\n"));
    terminal.sees("rc-124");
    terminal.types("stty -g > after; echo wri''tten\n");
    terminal.sees("written");
    assert_eq!(env.read("before"), env.read("after"));
}
