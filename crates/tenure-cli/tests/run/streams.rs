//! What a command finds: its streams, descriptors, arguments, environment and signals are those that
//! it would have without `tenure`.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::process::Stdio;

use crate::run::test_env::{Started, TestEnv, descriptors};

on_every_engine!(
    bytes_pass_both_ways_untouched,
    the_end_of_the_output_is_seen_while_the_command_runs,
    no_descriptor_of_ours_reaches_the_command,
    nothing_is_added_to_the_environment_but_what_is_promised,
);

fn bytes_pass_both_ways_untouched(env: &TestEnv) {
    let bytes: Vec<u8> =
        (0..1_000_003_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let mut command = env.tenure(&["run", "x", "--", "sh", "-c", "tee /dev/stderr"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = Started::new(command);
    let child = started.child();
    let (mut input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut error = child.stderr.take().unwrap();
    let (out, err) = std::thread::scope(|scope| {
        let out = scope.spawn(move || {
            let mut all = Vec::new();
            output.read_to_end(&mut all).map(|_| all).unwrap()
        });
        let err = scope.spawn(move || {
            let mut all = Vec::new();
            error.read_to_end(&mut all).map(|_| all).unwrap()
        });
        input.write_all(&bytes).unwrap();
        drop(input);
        (out.join().unwrap(), err.join().unwrap())
    });
    assert!(out == bytes && err == bytes, "{} and {} bytes", out.len(), err.len());
    assert_eq!(started.end().code, Some(0));
}

fn the_end_of_the_output_is_seen_while_the_command_runs(env: &TestEnv) {
    let line = "echo all; exec >&-; read never";
    let mut command = env.tenure(&["run", "x", "-c", line]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut started = Started::new(command);
    let mut out = String::new();
    started.child().stdout.take().unwrap().read_to_string(&mut out).unwrap();
    assert_eq!(out, "all\n");
    assert!(started.has_ended().is_none(), "it was not its end that ended the output");
    drop(started.child().stdin.take());
    assert_eq!(started.end().code, Some(1), "and the end of the input was seen too");
}

/// S63: a connection that outlives us in a child would make a dead holder look alive.
fn no_descriptor_of_ours_reaches_the_command(env: &TestEnv) {
    let line = "exec 7>seven; exec $TENURE run --json-status status x -- sh -c 'echo $$ > pid; exec sleep 600'";
    let started = Started::new(env.shell_command(line));
    let command = env.pids("pid", 1)[0];
    crate::run::test_env::until("it is `sleep`", || {
        crate::run::test_env::name_of(command) == "sleep"
    });
    let all = descriptors(command).unwrap();
    let ours = |path: &std::path::Path| {
        let path = path.to_string_lossy();
        path.contains("lines.db")
            || path.contains("status")
            || path.starts_with("socket:")
            || path.starts_with("anon_inode:")
    };
    assert!(!all.iter().any(|(_, path)| ours(path)), "{all:?}");
    let seven = all.iter().find(|(number, _)| *number == 7).expect("what the caller opened");
    assert_eq!(seven.1, env.path("seven"));
    let supervisor = descriptors(started.supervisor()).unwrap();
    assert!(supervisor.iter().any(|(_, path)| ours(path)), "ours look like that: {supervisor:?}");
}

fn nothing_is_added_to_the_environment_but_what_is_promised(env: &TestEnv) {
    let plain = env.shell("env -u TENURE | grep -v ^_= | sort").out;
    let under = env.shell("env -u TENURE $TENURE run x -- env | grep -v ^_= | sort").out;
    let new: Vec<_> = under.lines().filter(|line| !plain.lines().any(|old| old == *line)).collect();
    let names: Vec<_> = new.iter().map(|line| line.split_once('=').unwrap().0).collect();
    let promised = ["TENURE_FENCE", "TENURE_KIND", "TENURE_NAME", "TENURE_RUN", "TENURE_WITHIN"];
    assert_eq!(names, promised, "{new:?}");
    assert!(plain.lines().all(|line| under.lines().any(|new| new == line)), "and nothing is gone");
    assert!(new.contains(&"TENURE_NAME=x") && new.contains(&"TENURE_KIND=lock"));
    let fence: u64 = new[0].split_once('=').unwrap().1.parse().unwrap();
    let next = env.end(&["run", "x", "--", "sh", "-c", "echo $TENURE_FENCE"]);
    assert!(next.out.trim().parse::<u64>().unwrap() > fence, "fences rise");
}

/// Runs a line of shell without `tenure` and with it, and compares all that can be seen.
#[track_caller]
fn the_same(env: &TestEnv, line: &str) -> String {
    let plain = env.shell(&line.replace("RUN", ""));
    let under = env.shell(&line.replace("RUN", "$TENURE run x --"));
    assert_eq!(
        (under.code, &under.out, &under.err),
        (plain.code, &plain.out, &plain.err),
        "{line}"
    );
    under.out
}

#[test]
fn closed_full_and_empty_streams_are_the_commands_own_affair() {
    let env = TestEnv::file();
    the_same(&env, "RUN cat </dev/null; echo $?");
    the_same(&env, "RUN cat <&-; echo $?");
    the_same(&env, "RUN sh -c 'echo out; echo err >&2' >&-; echo $?");
    the_same(&env, "RUN sh -c 'echo out; echo err >&2' 2>&-; echo $?");
    the_same(&env, "RUN ls /proc/self/fd <&- | wc -l; echo $?");
    the_same(&env, "RUN sh -c 'echo x' >/dev/full; echo $?");
    the_same(&env, "head -c 3000000 /dev/zero | RUN true; echo $?");
    the_same(&env, "printf '' | RUN wc -c");
}

#[test]
fn a_reader_that_leaves_ends_the_command_as_ever() {
    let env = TestEnv::file();
    let said = the_same(&env, "(RUN sh -c 'yes; echo $? >&2') | head -n 1");
    assert_eq!(said, "y\n");
    the_same(&env, "trap '' PIPE; (RUN sh -c 'yes; echo $? >&2') | head -n 1");
}

#[test]
fn signals_are_set_as_without_us() {
    let env = TestEnv::file();
    // Without the last digits beyond 31, which the C library keeps for itself.
    let show =
        "RUN grep ^Sig[BI] /proc/self/status | sed 's/[0-9a-f]\\{8\\}\\([0-9a-f]\\{8\\}\\)$/\\1/'";
    the_same(&env, show);
    the_same(&env, &format!("trap '' HUP INT PIPE; {show}"));
    // And `env` worked as told; the environment of the test run may have more variables.
    let has = |said: &str, field: &str, bits: u32| {
        let line = said.lines().find(|line| line.starts_with(field)).unwrap();
        u32::from_str_radix(line.rsplit('\t').next().unwrap(), 16).unwrap() & bits == bits
    };
    let said = the_same(&env, &format!("env --ignore-signal=CHLD,TTIN,USR1 {show}"));
    assert!(has(&said, "SigIgn", 0x0011_0200), "{said}");
    let said = the_same(&env, &format!("env --block-signal=USR2,TERM {show}"));
    assert!(has(&said, "SigBlk", 0x4800), "{said}");
}

#[test]
fn arguments_are_bytes_and_no_shell_reads_them() {
    let env = TestEnv::file();
    let odd = OsStr::from_bytes(b"\xff\xfe $HOME `id` \n *");
    let words =
        [OsStr::new("run"), "x".as_ref(), "--".as_ref(), "printf".as_ref(), "[%s]".as_ref()];
    let output =
        env.tenure(&[&words[..], &[odd, OsStr::new(""), OsStr::new("--")]].concat()).output();
    let output = output.unwrap();
    assert_eq!(output.stdout, b"[\xff\xfe $HOME `id` \n *][][--]");
    assert_eq!(env.end(&["run", "x", "-c", "echo a b | tr a-z A-Z"]).out, "A B\n");
    // A program whose name is odd is shown without harm.
    let odd = OsStr::from_bytes(b"./\x1b[31m\xff");
    let ended = env.end(&[OsStr::new("run"), "x".as_ref(), "--".as_ref(), odd]);
    assert_eq!(ended.code, Some(127));
    assert!(!ended.err.contains('\x1b'), "{}", ended.err);
}
