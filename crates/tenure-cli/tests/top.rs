//! `tenure top` over the real binary: one frame, and a terminal that `script` makes for it.

#![cfg(feature = "top")]

use crate::stage;
use crate::typist;

use std::process::Command;

use rustix::process::{Pid, Signal, kill_process};
use stage::{Stage, ran};
use tenure_testkit::servers::Redis;
use typist::Typist;

#[test]
fn one_frame_needs_no_terminal() {
    let stage = Stage::new("top-once");
    let _hold = stage.hold("backup");
    let _queue = stage.queue("backup", "web-5:912");
    let frame = stage.run(&["top", "--once"]);
    let lines: Vec<_> = frame.worked().lines().collect();
    assert!(lines[0].starts_with("1 name, 1 held, 1 waiting"), "{frame:?}");
    let columns: Vec<_> = lines[3].split_whitespace().collect();
    assert_eq!(columns, ["NAME", "STATE", "OWNER", "HELD", "LEFT", "WAIT", "OLDEST", "NOTE"]);
    assert!(lines[4].starts_with("backup held      web-3:4121 ./ba"), "{frame:?}");
    assert!(lines[4].ends_with("nightly dump"), "{frame:?}");
    let narrow = ran(stage.command(["top", "--once"]).env("COLUMNS", "40"));
    assert!(narrow.worked().lines().all(|line| line.chars().count() <= 40), "{narrow:?}");
    let json = stage.run(&["top", "--once", "--json"]);
    assert_eq!(json.worked().lines().count(), 1);
    assert!(json.stdout.contains(r#""name":"backup","kind":"lock""#), "{json:?}");
    let none = stage.run(&["top", "--once", "nothing"]);
    assert!(none.worked().ends_with("Nothing is held and nobody waits.\n"), "{none:?}");
}

#[test]
fn without_a_terminal_it_says_what_else_there_is() {
    let stage = Stage::new("top-pipe");
    let ran = stage.run(&["top"]);
    let [what, _, help] = ran.failed(64);
    assert_eq!(what, "no terminal to draw on");
    assert!(help.contains("top --once"), "{help}");
    let ran = stage.run(&["top", "--once", "--url", "redis://127.0.0.1:1?connect_timeout=100ms"]);
    ran.failed(69);
}

#[test]
fn names_appear_as_they_are_held_and_q_gives_the_terminal_back() {
    let stage = Stage::new("top-live");
    let mut typist = Typist::new(&stage, &stage.url(), "--interval 100ms");
    typist.sees("Nothing is held");
    let hold = stage.hold("backup");
    typist.sees("web-3:4121");
    typist.types("w");
    typist.sees("Nobody waits.");
    typist.types("w/backup\r");
    typist.sees("only \"backup\"");
    stage.block_on(hold.release()).unwrap();
    typist.types("q");
    typist.ends_with("0");
}

#[test]
fn a_hold_is_broken_from_its_row() {
    let stage = Stage::new("top-break");
    let hold = stage.hold("backup");
    let mut typist = Typist::new(&stage, &stage.url(), "--interval 100ms");
    typist.sees("web-3:4121");
    typist.types("b");
    typist.sees("Breaking does not stop");
    typist.types("stuck\r");
    typist.sees("type its fence");
    assert!(hold.is_live());
    let fence = hold.fence().to_string();
    typist.types(&format!("{}\r", &fence[fence.len() - 4..]));
    typist.sees("broke \"backup\"");
    let lost = stage.block_on(hold.lost()).to_string();
    assert!(lost.contains("tester@") && lost.contains("stuck"), "{lost}");
    typist.types("\x03");
    typist.ends_with("130");
}

#[test]
fn a_hold_that_moved_on_is_not_broken() {
    let stage = Stage::new("top-moved-on");
    let first = stage.hold("backup");
    let mut typist = Typist::new(&stage, &stage.url(), "--interval 100ms");
    typist.sees("web-3:4121");
    typist.types("bstuck\r");
    typist.sees("type its fence");
    let fence = first.fence().to_string();
    stage.block_on(first.release()).unwrap();
    let second = stage.hold("backup");
    typist.types(&format!("{fence}\r"));
    typist.sees("error[T022]");
    assert!(second.is_live());
    typist.types("q");
    typist.ends_with("0");
}

#[test]
fn it_draws_anew_when_the_terminal_has_another_size() {
    let stage = Stage::new("top-size");
    let _hold = stage.hold("backup");
    let mut typist = Typist::new(&stage, &stage.url(), "--interval 1h");
    let tty = typist.word("/dev/pts/");
    typist.sees("NOTE");
    for columns in ["40", "120"] {
        let tty = format!("/dev/pts/{tty}");
        let resized = Command::new("stty").args(["-F", &tty, "cols", columns]).status();
        assert!(resized.unwrap().success());
        match columns {
            "40" => typist.sees_lines_up_to(40),
            _ => typist.sees("NOTE"),
        }
    }
    typist.types("q");
    typist.ends_with("0");
}

#[test]
fn signals_give_the_terminal_back() {
    for (signal, code) in [(Signal::TERM, "143"), (Signal::HUP, "129"), (Signal::INT, "130")] {
        let stage = Stage::new(&format!("top-signal-{code}"));
        let typist = Typist::new(&stage, &stage.url(), "");
        let pid = typist.word("pid-").parse().unwrap();
        typist.sees("Nothing is held");
        kill_process(Pid::from_raw(pid).unwrap(), signal).unwrap();
        typist.ends_with(code);
    }
}

#[test]
fn an_engine_that_goes_away_is_a_banner_until_it_is_back() {
    let server = Redis::build().start().unwrap();
    let stage = Stage::new("top-outage");
    let url = format!("{}?command_timeout=200ms&connect_timeout=300ms", server.url());
    let mut typist = Typist::new(&stage, &url, "--interval 100ms");
    typist.sees("Nothing is held");
    server.kill().unwrap();
    typist.sees("NO ANSWER since");
    // Keys are still heard.
    typist.types("?");
    typist.sees("show only what contains");
    typist.types("?");
    server.restart().unwrap();
    typist.sees("the engine is reachable again");
    typist.types("q");
    typist.ends_with("0");
}

#[test]
fn a_file_that_was_gone_for_a_while_is_opened_again() {
    let stage = Stage::new("top-replaced");
    stage.run(&["acquire", "backup", "--owner", "web-3:4121"]);
    let mut typist = Typist::new(&stage, &stage.url(), "--interval 100ms");
    typist.sees("web-3:4121");
    let path = stage.url().replace("file:", "");
    std::fs::rename(&path, format!("{path}.aside")).unwrap();
    typist.sees("NO ANSWER since");
    std::fs::rename(format!("{path}.aside"), &path).unwrap();
    typist.sees("the engine is reachable again");
    typist.types("q");
    typist.ends_with("0");
}
