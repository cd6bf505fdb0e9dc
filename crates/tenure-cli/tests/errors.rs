//! Every message about what went wrong: what, why, and what next.

use crate::sandbox;

use std::ffi::OsStr;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;

use sandbox::{Sandbox, Transcript, ran};

#[test]
fn mistakes_on_the_command_line_are_answered_in_the_users_own_words() {
    let sandbox = Sandbox::new("errors-usage");
    let mut all = Transcript::new(&sandbox);
    for line in [
        "",
        "lss",
        "nonsense",
        "--fast",
        "ls --fast",
        "run --exclusiv x -- true",
        "run",
        "run backup",
        "run backup ./x.sh",
        "run -n backup ./x.sh -v 'two words'",
        "run ./x.sh",
        "run -- ./x.sh",
        "run '' -- ./x.sh",
        "run backup -c 'echo one' -- echo two",
        "run -n -w 5s backup -- true",
        "run -s -x backup -- true",
        "run -s -j 3 backup -- true",
        "run -t 5s -k 10s backup -- true",
        "run -t 1000 -k 1000000000000000000 backup -- true",
        "run --signal BREXIT backup -- true",
        "run --on-lost panic backup -- true",
        "run --meta ticket backup -- true",
        "run --meta cmd=x backup -- true",
        "run -E 256 backup -- true",
        "run backup -t",
        "run -t 5s -t 6s backup -- true",
        "elect",
        "elect cron",
        "elect cron ./x.sh",
        "elect -- ./x.sh",
        "elect -n cron -- true",
        "once webhook:42",
        "once webhook:42 ./x.sh",
        "once --keep 0 webhook:42 -- true",
        "once --content @missing webhook:42 -- true",
        "once -s webhook:42 -- true",
        "leader",
        "show --kind nonsense cron",
        "ls --ns prod/eu",
        "ls --ns ''",
        "ls --color blue",
        "ls --log-level loud",
        "show",
        "show a b",
        "show ''",
        "break backup --fence 12",
        "break backup --fence 0 --reason x",
        "break backup --fence latest --reason x",
        "explain T999",
        "check backup t1-not-on-the-command-line",
        "check backup",
        "watch --interval 0",
        "completions tcsh",
        "man lss",
        "-u '' ls",
    ] {
        let ran = all.run(line);
        let [_, _, help] = ran.failed(ran.exit.unwrap());
        assert!(matches!(ran.exit, Some(64 | 78)), "{ran:?}");
        assert!(!help.is_empty());
    }
    all.compare("errors-usage");
}

#[test]
fn variables_that_make_no_sense_are_named() {
    let sandbox = Sandbox::new("errors-variables");
    let mut all = Transcript::new(&sandbox);
    for (variable, value, line) in [
        ("TENURE_TTL", "30", "run backup -- true"),
        ("TENURE_WAIT", "10", "wait backup"),
        ("TENURE_TTL", "soon", "run backup -- true"),
        ("TENURE_SLOTS", "0", "run backup -- true"),
        ("TENURE_JSON", "maybe", "ls"),
        ("TENURE_QUIET", "", "ls"),
        ("TENURE_VERBOSE", "many", "ls"),
        ("TENURE_URL", "", "ls"),
        ("TENURE_NS", "a/b", "ls"),
        ("TENURE_LOG_FORMAT", "xml", "ls"),
        ("TENURE_META", "ticket", "acquire backup"),
        ("TENURE_CLAIM", "hunter2", "check backup"),
    ] {
        all.run_with(&[(variable, value)], line).failed(78);
    }
    all.compare("errors-variables");
}

#[test]
fn an_engine_that_is_not_there_is_named_with_what_to_do() {
    let sandbox = Sandbox::new("errors-engine");
    let mut all = Transcript::new(&sandbox);
    for url in ["reddis://:hunter2@redis-1", "rediss+unix:/x", "mysql://u:hunter2@h/d", "hunter2"] {
        all.run_with(&[("TENURE_URL", url)], "ls").failed(64);
    }
    for query in ["tll=5s", "ttl=5"] {
        all.run_with(&[("TENURE_URL", &*format!("{}?{query}", sandbox.url()))], "ls").failed(78);
    }
    all.run_with(&[("TENURE_URL", "memory:")], "run x -- true").failed(78);
    all.run_with(&[("TENURE_URL", "file:~ada/locks.db")], "ls").failed(78);
    all.run_with(&[("TENURE_URL", "redis://redis-1?wait=5")], "ls").failed(78);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("redis://:hunter2@{}", listener.local_addr().unwrap());
    drop(listener);
    let ran = all.run_with(&[("TENURE_URL", &*url)], "ls");
    assert!(ran.stderr.starts_with("error[T003]: engine unreachable: redis://"), "{ran:?}");
    ran.failed(69);
    let ran =
        all.run_with(&[("REDIS_URL", "redis://:hunter2@redis-1")], &format!("-u {url} -q ls"));
    assert!(ran.failed(69)[2].contains("TENURE_URL=$REDIS_URL"), "{ran:?}");
    let text = format!("{ran:?}");
    assert!(!text.contains("hunter2"), "{text}");
    all.compare("errors-engine");
}

#[test]
fn a_state_file_that_cannot_be_there_is_refused_with_what_to_do() {
    let sandbox = Sandbox::new("errors-file");
    let mut all = Transcript::new(&sandbox);
    std::fs::write(sandbox.folder().join("plain"), "not a folder").unwrap();
    std::fs::write(sandbox.folder().join("other.db"), "not a database, and long enough to see it")
        .unwrap();
    let folder = sandbox.folder().display().to_string();
    all.run_with(&[("TENURE_URL", &*format!("file:{folder}/plain/x.db"))], "ls").failed(73);
    all.compare("errors-file");
}

/// An error calls a positional argument by its name in the help: no flag has that name.
#[test]
fn a_word_that_is_not_text_is_called_what_the_help_calls_it() {
    let sandbox = Sandbox::new("errors-bytes");
    let bytes = OsStr::from_bytes(b"caf\xe9");
    for (command, word) in [
        ("show", "NAME"),
        ("acquire", "NAME"),
        ("leader", "NAME"),
        ("ls", "PREFIX"),
        ("watch", "PREFIX"),
        ("explain", "CODE"),
        ("man", "COMMAND"),
        ("completions", "SHELL"),
    ] {
        let ran = ran(&mut sandbox.command([OsStr::new(command), bytes]));
        assert_eq!(ran.failed(64)[0], format!("{word} is not valid UTF-8"), "{command}");
    }
    let once = [OsStr::new("once"), bytes, OsStr::new("--"), OsStr::new("true")];
    assert_eq!(ran(&mut sandbox.command(once)).failed(64)[0], "KEY is not valid UTF-8");
    let flag = [OsStr::new("ls"), OsStr::new("--ns"), bytes];
    assert_eq!(ran(&mut sandbox.command(flag)).failed(64)[0], "--ns is not valid UTF-8");
}
