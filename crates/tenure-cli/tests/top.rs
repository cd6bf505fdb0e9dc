//! `tenure top` over the real binary: one frame, and a terminal that `script` makes for it.

#![cfg(feature = "top")]

use crate::sandbox;
use crate::top_terminal;

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use sandbox::{Sandbox, ran};
use tenure_testkit::servers::Redis;
use top_terminal::TopTerminal;

#[test]
fn one_frame_needs_no_terminal() {
    let sandbox = Sandbox::new("top-once");
    let _hold = sandbox.hold("backup");
    let _queue = sandbox.queue("backup", "web-5:912");
    let frame = sandbox.run(&["top", "--once"]);
    let lines: Vec<_> = frame.worked().lines().collect();
    assert!(lines[0].starts_with("1 name, 1 held, 1 waiting"), "{frame:?}");
    let columns: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!(columns, ["NAME", "STATE", "OWNER", "HELD", "LEFT", "WAIT", "OLDEST", "NOTE"]);
    assert!(lines[4].starts_with("backup held      web-3:4121 ./ba"), "{frame:?}");
    assert!(lines[4].ends_with("nightly dump"), "{frame:?}");
    let narrow = ran(sandbox.command(["top", "--once"]).env("COLUMNS", "40"));
    assert!(narrow.worked().lines().all(|line| line.chars().count() <= 40), "{narrow:?}");
    let json = sandbox.run(&["top", "--once", "--json"]);
    assert_eq!(json.worked().lines().count(), 1);
    assert!(json.stdout.contains(r#""name":"backup","kind":"lock""#), "{json:?}");
    let none = sandbox.run(&["top", "--once", "nothing"]);
    assert!(none.worked().ends_with("Nothing is held and nobody waits.\n"), "{none:?}");
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    let sandbox = Sandbox::new("top-pipe");
    let ran = sandbox.run(&["top"]);
    let [what, _, help] = ran.failed(64);
    assert_eq!(what, "no terminal to draw on");
    assert!(help.contains("top --once"), "{help}");
    let ran = sandbox.run(&["top", "--once", "--url", "redis://127.0.0.1:1?connect_timeout=100ms"]);
    ran.failed(69);
}

#[test]
fn names_appear_as_they_are_held_and_q_gives_the_terminal_back() {
    let sandbox = Sandbox::new("top-live");
    let mut terminal = TopTerminal::new(&sandbox, &sandbox.url(), "--interval 100ms");
    terminal.sees("Nothing is held");
    let hold = sandbox.hold("backup");
    terminal.sees("web-3:4121");
    terminal.types("w");
    terminal.sees("Nobody waits.");
    terminal.types("w/backup\r");
    terminal.sees("only \"backup\"");
    sandbox.block_on(hold.release()).unwrap();
    terminal.types("q");
    terminal.ends_with("0");
}

#[test]
fn a_hold_is_broken_from_its_row() {
    let sandbox = Sandbox::new("top-break");
    let hold = sandbox.hold("backup");
    let mut terminal = TopTerminal::new(&sandbox, &sandbox.url(), "--interval 100ms");
    terminal.sees("web-3:4121");
    terminal.types("b");
    terminal.sees("Breaking does not stop");
    terminal.types("stuck\r");
    terminal.sees("type its fence");
    assert!(hold.is_live());
    let fence = hold.fence().to_string();
    terminal.types(&format!("{}\r", &fence[fence.len() - 4..]));
    terminal.sees("broke \"backup\"");
    let lost = sandbox.block_on(hold.lost()).to_string();
    assert!(lost.contains("tester@") && lost.contains("stuck"), "{lost}");
    terminal.types("\x03");
    terminal.ends_with("130");
}

#[test]
fn a_hold_that_moved_on_is_not_broken() {
    let sandbox = Sandbox::new("top-moved-on");
    let first = sandbox.hold("backup");
    let mut terminal = TopTerminal::new(&sandbox, &sandbox.url(), "--interval 100ms");
    terminal.sees("web-3:4121");
    terminal.types("bstuck\r");
    terminal.sees("type its fence");
    let fence = first.fence().to_string();
    sandbox.block_on(first.release()).unwrap();
    let second = sandbox.hold("backup");
    terminal.types(&format!("{fence}\r"));
    terminal.sees("error[T022]");
    assert!(second.is_live());
    terminal.types("q");
    terminal.ends_with("0");
}

#[test]
fn it_draws_anew_when_the_terminal_has_another_size() {
    let sandbox = Sandbox::new("top-size");
    let _hold = sandbox.hold("backup");
    let mut terminal = TopTerminal::new(&sandbox, &sandbox.url(), "--interval 1h");
    let tty = terminal.word("/dev/pts/");
    terminal.sees("NOTE");
    for columns in ["40", "120"] {
        let tty = format!("/dev/pts/{tty}");
        let resized = Command::new("stty").args(["-F", &tty, "cols", columns]).status();
        assert!(resized.unwrap().success());
        match columns {
            "40" => terminal.sees_lines_up_to(40),
            _ => terminal.sees("NOTE"),
        }
    }
    terminal.types("q");
    terminal.ends_with("0");
}

#[test]
fn signals_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, "143"), (Signal::HUP, "129"), (Signal::INT, "130")] {
        let sandbox = Sandbox::new(&format!("top-signal-{code}"));
        let terminal = TopTerminal::new(&sandbox, &sandbox.url(), "");
        let pid = terminal.word("pid-").parse().unwrap();
        terminal.sees("Nothing is held");
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        terminal.ends_with(code);
    }
}

#[test]
fn an_engine_that_goes_away_is_a_banner_until_it_is_back() {
    let server = Redis::build().start().unwrap();
    let sandbox = Sandbox::new("top-outage");
    let url = format!("{}?command_timeout=200ms&connect_timeout=300ms", server.url());
    let mut terminal = TopTerminal::new(&sandbox, &url, "--interval 100ms");
    terminal.sees("Nothing is held");
    server.kill().unwrap();
    terminal.sees("NO ANSWER since");
    // Keys still work.
    terminal.types("?");
    terminal.sees("show only what contains");
    terminal.types("?");
    server.restart().unwrap();
    terminal.sees("the engine is reachable again");
    terminal.types("q");
    terminal.ends_with("0");
}

#[test]
fn a_file_that_was_gone_for_a_while_is_opened_again() {
    let sandbox = Sandbox::new("top-replaced");
    sandbox.run(&["acquire", "backup", "--owner", "web-3:4121"]);
    let mut terminal = TopTerminal::new(&sandbox, &sandbox.url(), "--interval 100ms");
    terminal.sees("web-3:4121");
    let path = sandbox.url().replace("file:", "");
    std::fs::rename(&path, format!("{path}.aside")).unwrap();
    terminal.sees("NO ANSWER since");
    std::fs::rename(format!("{path}.aside"), &path).unwrap();
    terminal.sees("the engine is reachable again");
    terminal.types("q");
    terminal.ends_with("0");
}
