//! The real binary, as people and scripts meet it.

use crate::sandbox;

use std::ffi::{OsStr, OsString};
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use sandbox::{Ran, Sandbox};

const PROOFS: [&str; 10] = [
    "race", "booking", "stolen", "crash", "slots", "order", "handover", "leader", "webhook",
    "relay",
];

fn tenure(args: &[&str]) -> Ran {
    run(Command::new(env!("CARGO_BIN_EXE_tenure")).args(args))
}

fn run(command: &mut Command) -> Ran {
    sandbox::ran(command)
}

#[test]
fn help_names_the_commands_and_the_exit_codes() {
    for args in [&["--help"][..], &["-h"], &["help"]] {
        let ran = tenure(args);
        assert_eq!((ran.exit, &*ran.stderr), (Some(0), ""), "{ran:?}");
        for part in ["Usage: tenure [OPTIONS] <COMMAND>", "demo", "--version", "Exit codes", "run "]
        {
            assert!(ran.stdout.contains(part), "{part}: {ran:?}");
        }
    }
}

#[test]
fn the_help_of_demo_names_every_proof() {
    let ran = tenure(&["demo", "--help"]);
    assert_eq!((ran.exit, &*ran.stderr), (Some(0), ""), "{ran:?}");
    for part in PROOFS.into_iter().chain(["--count <N>", "[NAME]"]) {
        assert!(ran.stdout.contains(part), "{part}: {ran:?}");
    }
}

#[test]
fn version_is_one_line() {
    for flag in ["--version", "-V"] {
        let ran = tenure(&[flag]);
        assert_eq!(ran.exit, Some(0));
        assert_eq!(ran.stdout, concat!("tenure ", env!("CARGO_PKG_VERSION"), "\n"));
    }
}

#[test]
fn without_a_command_the_demo_is_where_to_begin() {
    let ran = tenure(&[]);
    let [what, _, help] = ran.failed(64);
    assert_eq!(what, "no command given");
    assert!(help.contains("`tenure demo`"), "{help}");
}

#[test]
fn an_unknown_command_or_option_is_named_and_refused() {
    let ran = tenure(&["dmeo"]);
    let [what, why, help] = ran.failed(64);
    assert_eq!((what, help), (r#"unknown command "dmeo""#, "did you mean `tenure demo`?"));
    assert!(why.starts_with("commands: run, elect, leader, once, acquire, "), "{why}");
    for args in [&["--fast"][..], &["demo", "--fast"], &["demo", "race", "slots"]] {
        let ran = tenure(args);
        let [what, ..] = ran.failed(64);
        assert!(what.contains(args.last().unwrap()), "{what}");
    }
}

#[test]
fn an_unknown_proof_is_refused_with_the_names_of_the_known_ones() {
    let ran = tenure(&["demo", "nonsense"]);
    let [what, why, _] = ran.failed(64);
    assert_eq!(what, r#"unknown proof "nonsense""#);
    assert_eq!(why, format!("proofs: {}", PROOFS.join(", ")));
}

#[test]
fn a_count_that_is_none_is_refused_with_its_range() {
    for count in ["0", "x", "-1", "", "1.5", "1000001", "99999999999999999999"] {
        let ran = tenure(&["demo", "race", &format!("--count={count}")]);
        let [what, why, _] = ran.failed(64);
        assert!(what.contains("--count"), "{what}");
        assert!(why.contains("1 to 1000000") || count.is_empty(), "{why}");
    }
    for args in [
        &["demo", "race", "--count"][..],
        &["demo", "race", "--count", "0"],
        &["demo", "race", "--count", "-1"],
        &["demo", "--count", "1", "--count", "2"],
        &["demo", "slots", "--count", "5"],
    ] {
        tenure(args).failed(64);
    }
}

#[test]
fn what_the_user_typed_cannot_forge_a_line_of_the_error() {
    for args in [&["x\nhelp: rm -r ~"][..], &["demo", "x\nhelp: rm -r ~"], &["--x\nhelp: rm -r ~"]]
    {
        let ran = tenure(args);
        let [_, _, help] = ran.failed(64);
        assert!(!help.contains("rm"), "{help}");
    }
}

#[test]
fn arguments_that_are_not_utf8_are_refused_without_a_panic() {
    let odd = OsStr::from_bytes(b"\xff\xfe");
    let mut long = OsString::from("--count=");
    long.push(odd);
    let demo = OsStr::new("demo");
    for args in [&[odd][..], &[demo, odd], &[demo, &long], &[demo, OsStr::from_bytes(b"--\xff")]] {
        run(Command::new(env!("CARGO_BIN_EXE_tenure")).args(args)).failed(64);
    }
}

#[test]
fn a_list_that_nobody_reads_to_its_end_is_no_failure() {
    let sandbox = Sandbox::new("command-line-list");
    let names: Vec<String> = (0..700).map(|number| format!("{number:0>100}")).collect();
    let _holds = sandbox.with_library(async |tenure| {
        let holds: Vec<_> = names.iter().map(|name| tenure.mutex(name).join()).collect();
        let mut all = Vec::new();
        for hold in holds {
            all.push(hold.await.unwrap());
        }
        all
    });
    for args in [&["ls"][..], &["ls", "--json"], &["completions", "zsh"]] {
        let mut child = sandbox.start(args);
        let mut first = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut first).unwrap();
        assert!(!first.is_empty());
        child.ended().worked();
    }
}

#[test]
fn closed_streams_are_no_reason_to_panic_and_no_place_for_the_state() {
    let sandbox = Sandbox::new("command-line-closed");
    let hold = sandbox.hold("backup");
    let binary = env!("CARGO_BIN_EXE_tenure");
    for (line, exit) in [
        ("ls >&-", 0),
        ("ls <&- >&- 2>&-", 0),
        ("show nothing >&- 2>&-", 1),
        ("wait -n backup 2>&-", 75),
        ("nonsense 2>&-", 64),
    ] {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("exec {binary} -u {} {line}", sandbox.url())]);
        assert_eq!(run(&mut shell).exit, Some(exit), "{line}");
    }
    assert!(hold.is_live());
    sandbox.run(&["ls"]).worked();
}

#[test]
fn names_and_variables_that_are_not_utf8_are_refused_without_a_panic() {
    let sandbox = Sandbox::new("command-line-bytes");
    let odd = OsStr::from_bytes(b"\xff\xfe");
    for command in
        ["show", "wait", "break", "acquire", "ls", "watch", "explain", "man", "completions"]
    {
        run(&mut sandbox.command([OsStr::new(command), odd])).failed(64);
    }
    run(sandbox.command(["check", "x"]).arg(odd)).failed(64);
    run(sandbox.command(["ls", "--ns"]).arg(odd)).failed(64);
    run(sandbox.command(["acquire", "x", "--meta"]).arg(odd)).failed(64);
    for variable in ["TENURE_NS", "TENURE_URL", "TENURE_JSON", "TENURE_COLOR", "TENURE_VERBOSE"] {
        run(sandbox.command(["ls"]).env(variable, odd)).failed(78);
    }
    run(sandbox.command(["check", "x"]).env("TENURE_CLAIM", odd)).failed(78);
    for variable in ["HOME", "XDG_STATE_HOME"] {
        let ran = run(sandbox.command(["config"]).env(variable, odd));
        assert_eq!(ran.exit, Some(0), "{ran:?}");
    }
}

#[test]
fn output_that_cannot_be_written_is_a_failure() {
    for args in [&["--version"][..], &["demo", "booking"]] {
        let full = std::fs::File::create("/dev/full").unwrap();
        let ran = run(Command::new(env!("CARGO_BIN_EXE_tenure")).args(args).stdout(full));
        let [what, ..] = ran.failed(74);
        assert_eq!(what, "cannot write the output");
    }
}
