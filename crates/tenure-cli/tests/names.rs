//! Looking at names and stepping in: `ls`, `show`, `watch`, `wait`, `break`.

use crate::sandbox;

use std::io::Read;
use std::sync::Arc;

use sandbox::{Lines, Ran, Sandbox, Transcript, eventually};
use tenure::engine::{Claim, ClaimId, Details, Engine, Name, Space};
use tenure::engines::file::File;
use tenure::{Begun, Ended};

#[test]
fn who_holds_what_and_who_waits() {
    let sandbox = Sandbox::new("names-looks");
    let mut all = Transcript::new(&sandbox);
    all.run("ls").worked();
    all.run("ls --json").worked();
    assert_eq!(all.run("show backup").exit, Some(1));
    assert_eq!(all.run("show backup --json").exit, Some(1));
    let _hold = sandbox.hold("backup");
    let _second = sandbox.queue("backup", "web-5:912");
    let (_slots, _reads) = sandbox.with_library(async |tenure| {
        let slot = |owner| tenure.semaphore("api:partner", 5).owner(owner).acquire();
        let read = |owner| tenure.rwlock("catalog").owner(owner).read();
        let slots = [slot("web-1").await.unwrap(), slot("web-2").await.unwrap()];
        (slots, [read("web-1").await.unwrap(), read("web-2").await.unwrap()])
    });
    all.run("ls").worked();
    all.run("ls -q api").worked();
    all.run("ls --json").worked();
    all.run("show backup").worked();
    all.run("show backup --json").worked();
    all.run("show catalog").worked();
    all.compare_tables("names-looks");
}

#[test]
fn a_break_is_explained_before_it_is_done() {
    let sandbox = Sandbox::new("names-break");
    let mut all = Transcript::new(&sandbox);
    assert_eq!(all.run("break backup").exit, Some(1));
    let hold = sandbox.hold("backup");
    let fence = hold.fence();
    assert_eq!(all.run("break backup").exit, Some(1));
    assert_eq!(all.run("break backup --reason 'no fence'").exit, Some(1));
    assert!(hold.is_live(), "nothing was broken");
    all.run("break backup --fence 7 --reason 'a slip'").failed(1);
    assert!(hold.is_live(), "nothing was broken");
    let next = sandbox.queue("backup", "web-5:912");
    all.run("break backup --ns ''").failed(64);
    all.run(&format!("break backup --fence {fence} --reason 'host is on fire'")).worked();
    let lost = sandbox.block_on(async { hold.lost().await }).to_string();
    assert!(lost.contains("host is on fire") && lost.contains("tester@"), "{lost}");
    all.run(&format!("break backup --fence {fence} --reason again")).failed(1);
    next.abort();
    all.compare("names-break");
}

/// Locks, leaders and onces have names of their own, and every command finds them.
#[test]
fn leaders_and_onces_are_found_by_their_names() {
    let sandbox = Sandbox::new("names-spaces");
    let mut all = Transcript::new(&sandbox);
    assert_eq!(all.run("leader cron").exit, Some(1));
    assert_eq!(all.run("leader cron --json").exit, Some(1));
    let (tenure, term, run) = sandbox.with_library(async |tenure| {
        let election = tenure.election("cron").value("10.0.0.3:80").owner("web-3:4121");
        let term = election.campaign().await.unwrap();
        let begun = tenure.once("webhook:42").owner("web-1:7").begin().await.unwrap();
        let Begun::Mine(run) = begun else { panic!("{begun:?}") };
        (tenure, term, run)
    });
    all.run("leader cron").worked();
    all.run("leader cron --json").worked();
    all.run("ls").worked();
    all.run("ls --json").worked();
    all.run("show cron").worked();
    all.run("show webhook:42 --json").worked();
    all.run("wait webhook:42 -n").failed(75);
    all.run("wait cron -n --kind leader").failed(75);
    all.run("wait cron -n --kind lock").worked();
    assert_eq!(all.run("break cron").exit, Some(1));
    assert_eq!(all.run("break webhook:42").exit, Some(1));
    let lock = sandbox.hold("cron");
    all.run("show cron").failed(64);
    all.run("wait cron -n").failed(64);
    all.run("break cron").failed(64);
    all.run("show cron --kind leader").worked();
    all.run("show cron --kind sem").worked();
    all.run("show cron --kind nonsense").failed(64);
    let broken = all.run(&format!("break cron --kind leader --fence {} --reason x", term.number()));
    broken.worked();
    all.run(&format!("break webhook:42 --fence {} --reason y", run.fence())).worked();
    assert!(!term.is_live() || sandbox.block_on(async { term.lost().await }) != Ended::Expired);
    assert!(lock.is_live(), "the lock was not meant");
    drop((run, tenure));
    all.compare_tables("names-spaces");
}

#[test]
fn what_a_once_left_is_shown_and_forgotten_when_that_is_meant() {
    let sandbox = Sandbox::new("names-forget");
    let mut all = Transcript::new(&sandbox);
    assert_eq!(all.run("forget webhook:42").exit, Some(1));
    all.run("forget webhook:42 --fence 7").failed(1);
    all.run("once webhook:42 -- echo paid").worked();
    let shown = all.run("show webhook:42");
    let fence = shown.worked().rsplit_once("fence ").unwrap().1.trim().to_owned();
    all.run("show webhook:42 --json").worked();
    all.run("ls -q").worked();
    all.run("wait webhook:42 -n --kind once").worked();
    assert_eq!(all.run("forget webhook:42").exit, Some(1));
    all.run("forget webhook:42 --fence 7 --done").failed(1);
    all.run(&format!("forget webhook:42 --fence {fence}")).failed(1);
    all.run("once webhook:42 -- echo again").worked();
    all.run(&format!("forget webhook:42 --fence {fence} --done")).worked();
    assert_eq!(all.run("show webhook:42").exit, Some(1));
    all.run("once webhook:42 -- echo again").worked();

    let run = sandbox.with_library(async |tenure| {
        let Begun::Mine(run) = tenure.once("nightly").owner("web-1:7").begin().await.unwrap()
        else {
            panic!("it is ours");
        };
        run
    });
    let fence = run.fence();
    assert_eq!(all.run("forget nightly").exit, Some(1));
    all.run(&format!("forget nightly --fence {fence}")).failed(1);
    drop(run);
    eventually("nobody is at it", || {
        sandbox.run(&["show", "nightly"]).stdout.contains("unsettled")
    });
    all.run("show nightly").worked();
    all.run("show nightly --json").worked();
    assert_eq!(all.run("forget nightly").exit, Some(1));
    all.run("once nightly -- true").failed(76);
    all.run(&format!("forget nightly --fence {fence} --json")).worked();
    all.run("once nightly -- echo tonight").worked();
    // A lock of that name is another thing.
    let _lock = sandbox.hold("nightly");
    all.run("show nightly").failed(64);
    all.run("show nightly --kind once -q").worked();
    all.run("wait nightly -n").failed(75);
    all.compare_tables("names-forget");
}

#[test]
fn wait_ends_when_the_name_is_free_and_takes_nothing() {
    let sandbox = Sandbox::new("names-wait");
    let mut all = Transcript::new(&sandbox);
    all.run("wait backup").worked();
    all.run("wait backup --json").worked();
    let hold = sandbox.hold("backup");
    all.run("wait backup -n").failed(75);
    all.run("wait backup -w 20ms").failed(75);
    let mut child = sandbox.start(&["wait", "backup"]);
    assert_eq!(child.try_wait().unwrap(), None);
    sandbox.block_on(async { hold.release().await }).unwrap();
    child.ended().worked();
    let name = sandbox.run(&["show", "backup"]);
    assert_eq!(name.exit, Some(1), "{name:?}");
    all.compare("names-wait");
}

#[test]
fn waiting_long_says_on_whom() {
    let sandbox = Sandbox::new("names-patience");
    let _hold = sandbox.hold("backup");
    let _second = sandbox.queue("backup", "web-5:912");
    let ran = sandbox.run(&["wait", "backup", "-w", "2500ms"]);
    let note = ran.stderr.lines().next().unwrap();
    let begins =
        r#"tenure: waiting for "backup": held by web-3:4121 (./backup.sh, "nightly dump") for "#;
    assert!(note.starts_with(begins) && note.ends_with("; 1 in line."), "{note}");
    let ran = sandbox.run(&["wait", "backup", "-w", "2500ms", "-q"]);
    ran.failed(75);
}

#[test]
fn watch_tells_what_happens_and_ends_with_its_reader() {
    let sandbox = Sandbox::new("names-watch");
    let hold = sandbox.hold("backup");
    let mut child = sandbox.start(&["watch", "--json", "--interval", "20ms"]);
    let lines = Lines::of(child.stdout.take().unwrap());
    let next = || {
        let line = lines.next();
        let field = |key: &str| {
            let (_, rest) = line.split_once(&format!("\"{key}\":\"")).unwrap();
            rest.split('"').next().unwrap().to_owned()
        };
        assert!(line.starts_with("{\"v\":1,\"ts\":\"2"), "{line}");
        format!("{} {} {}", field("event"), field("name"), field("owner"))
    };
    assert_eq!(next(), "held backup web-3:4121");
    let second = sandbox.queue("backup", "web-5:912");
    assert_eq!(next(), "queued backup web-5:912");
    second.abort();
    assert_eq!(next(), "left backup web-5:912");
    drop(hold);
    assert_eq!(next(), "released backup web-3:4121");
    let _hold = sandbox.hold("other");
    assert_eq!(next(), "granted other web-3:4121");
    drop(lines);
    // It notices at its next line that nobody reads them.
    eventually("it ends", || {
        let _again = sandbox.hold("again");
        child.try_wait().unwrap().is_some()
    });
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!((child.wait().unwrap().code(), &*said), (Some(0), ""));
}

#[test]
fn watch_for_people_is_a_line_an_event() {
    let sandbox = Sandbox::new("names-watch-text");
    let _hold = sandbox.hold("prod/backup");
    let mut child = sandbox.start(&["watch", "--ns", "prod"]);
    let first = Lines::of(child.stdout.take().unwrap()).next();
    child.kill().unwrap();
    child.wait().unwrap();
    let (time, rest) = first.split_once("Z  ").unwrap();
    assert_eq!(time.len(), "12:03:11.402".len(), "{first}");
    assert!(rest.starts_with("held      backup  web-3:4121 ./backup.sh  fence "), "{first}");
}

/// Another client can write text that the library would refuse (S117).
#[test]
fn hostile_text_of_others_cannot_harm_a_terminal() {
    let sandbox = Sandbox::new("names-hostile");
    let hostile = "\u{1b}]0;pwned\u{7}\u{1b}[2J\r\nerror: \u{202e}txet\u{9b}31m<script>\u{200b}";
    let path = sandbox.folder().join("state/tenure/tenure.db");
    let file = File::open(&path).unwrap();
    let name = Name::new(Space::Lock, "evil\u{202e}eman").unwrap();
    let mut details = Details::default();
    details.owner = hostile.to_owned();
    details.reason = Some(hostile.repeat(1000));
    details.meta =
        [("cmd", hostile), ("host", "-oProxyCommand=x"), ("pid", "1;rm"), ("x\x1b", hostile)]
            .map(|(key, value)| (key.to_owned(), value.to_owned()))
            .into();
    let mut claim = Claim::new(name, ClaimId::from_bytes([7; 16]));
    claim.details = Arc::new(details);
    sandbox.block_on(async { file.claim(&claim).await }).unwrap();
    for args in [
        &["ls"][..],
        &["ls", "--json"],
        &["show", "evil\u{202e}eman"],
        &["show", "evil\u{202e}eman", "--json"],
        &["break", "evil\u{202e}eman"],
        &["wait", "-n", "evil\u{202e}eman"],
        &["acquire", "-n", "evil\u{202e}eman"],
        &["acquire", "-n", "-s", "evil\u{202e}eman", "-vvv"],
    ] {
        let Ran { stdout, stderr, .. } = sandbox.run(args);
        let text = format!("{stdout}{stderr}");
        assert!(text.contains("pwned") || args.contains(&"-s"), "{text}");
        let bad = text.chars().find(|c| {
            (c.is_control() && *c != '\n')
                || matches!(*c, '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}')
        });
        assert_eq!(bad, None, "{args:?}: {text:?}");
        assert!(
            !text.lines().any(|line| line.starts_with("error: txet") || line.contains("ssh")),
            "{text}"
        );
        assert!(args.contains(&"--json") || text.len() < 4000, "{}", text.len());
    }
}
