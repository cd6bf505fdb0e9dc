//! `tenure doctor` over the real binary: its findings about servers that are fit for locks, and about others.

use crate::sandbox;

use std::net::TcpListener;

use sandbox::{Ran, Sandbox, Transcript, ran};
use tenure_testkit::servers::{Fsync, Redis};

const PASSWORD: &str = "hunter2-open-sesame";

fn fit() -> Redis {
    Redis::build().aof(Fsync::Always).start().unwrap()
}

fn unfit() -> Redis {
    let build = Redis::build().setting("maxmemory", "200mb");
    build.setting("maxmemory-policy", "volatile-lru").start().unwrap()
}

#[track_caller]
fn ends(ran: &Ran, exit: i32) -> &str {
    assert_eq!((ran.exit, &*ran.stderr), (Some(exit), ""), "{ran:?}");
    &ran.stdout
}

#[test]
fn servers_that_are_fit_and_servers_that_are_not_are_shown() {
    let sandbox = Sandbox::new("doctor-redis");
    let mut all = Transcript::new(&sandbox);
    let (good, bad) = (fit(), unfit());
    for line in ["doctor", "doctor --brief", "doctor --json"] {
        ends(&all.run_with(&[("TENURE_URL", &good.url())], line), 0);
        ends(&all.run_with(&[("TENURE_URL", &bad.url())], line), 1);
    }
    all.compare("doctor-redis");
}

#[test]
fn other_engines_have_a_doctor_too() {
    let sandbox = Sandbox::new("doctor-others");
    let shown = sandbox.run(&["doctor"]);
    let text = ends(&shown, 0);
    assert!(text.starts_with("file:") && text.contains("✓ latency"), "{text}");
    assert!(text.trim_end().ends_with(" 0 problems"), "{text}");
    let mut all = Transcript::new(&sandbox);
    for line in ["doctor -u memory:", "doctor -u memory: --brief"] {
        ends(&all.run(line), 0);
    }
    all.compare("doctor-memory");
}

#[test]
fn a_disk_without_room_for_the_reserve_is_named() {
    // Only root can make a small disk, and not everywhere.
    let mut try_it = std::process::Command::new("unshare");
    if !try_it.args(["--mount", "true"]).status().is_ok_and(|done| done.success()) {
        return;
    }
    let sandbox = Sandbox::new("doctor-small");
    let doctor = |size: &str| {
        let mut unshare = std::process::Command::new("unshare");
        let line = format!(
            "mount -t tmpfs -o size={size},mode=700 none . && exec \"$0\" doctor -u \"file:$PWD/x.db\""
        );
        unshare.args(["--mount", "sh", "-c", &line, env!("CARGO_BIN_EXE_tenure")]);
        ran(unshare.current_dir(sandbox.folder()))
    };
    let (small, large) = (doctor("1m"), doctor("64m"));
    let text = ends(&small, 0);
    assert!(text.contains("reserve") && text.contains("0 of 1024 KB set aside"), "{text}");
    assert!(text.contains("renewals and releases may fail"), "{text}");
    let text = ends(&large, 0);
    assert!(text.contains("1024 of 1024 KB set aside for a full disk"), "{text}");
}

#[test]
fn an_engine_that_is_not_there_says_what_was_tried() {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let sandbox =
        Sandbox::new("doctor-gone").with("TENURE_URL", &format!("redis://127.0.0.1:{free}"));
    for args in [&["doctor"][..], &["doctor", "--brief"], &["doctor", "--json"]] {
        let shown = sandbox.run(args);
        let [what, why, help] = shown.failed(69);
        assert!(shown.stderr.starts_with("error[T003]: "), "{shown:?}");
        assert!(what.contains("engine unreachable: redis://127.0.0.1"), "{what}");
        assert!(why.contains("refused"), "{why}");
        assert!(help.starts_with("cannot connect or log in"), "{help}");
    }
    sandbox.run(&["doctor", "-u", "reddis://x"]).failed(64);
}

/// The variable that many have, and that is not read.
#[test]
fn another_address_in_the_environment_is_mentioned() {
    let sandbox =
        Sandbox::new("doctor-variable").without_engine().with("REDIS_URL", "redis://redis-1");
    let shown = sandbox.run(&["doctor", "-u", &sandbox.url()]);
    assert_eq!(shown.exit, Some(0));
    assert!(shown.stderr.contains("REDIS_URL is set but not read"), "{shown:?}");
    assert_eq!(sandbox.run(&["doctor", "-q", "-u", &sandbox.url()]).stderr, "");
}

#[test]
fn a_replica_is_refused_by_others_and_explained_by_the_doctor() {
    let primary = fit();
    let replica = Redis::build().replica_of(primary.port()).start().unwrap();
    let sandbox = Sandbox::new("doctor-replica").with("TENURE_URL", &replica.url());
    sandbox.run(&["ls"]).failed(69);
    let shown = sandbox.run(&["doctor"]);
    let text = ends(&shown, 1);
    let fix = format!("fix: name the primary: redis://127.0.0.1:{}", primary.port());
    assert!(text.contains("✗ role") && text.contains(&fix), "{text}");
}

#[test]
fn the_line_to_paste_for_missing_rights_is_enough() {
    let user = format!("user locks on >{PASSWORD} ~tenure:* resetchannels +@all -hset");
    let server =
        Redis::build().aof(Fsync::Always).acl(&["user default off", &user]).start().unwrap();
    let url = server.url().replace("redis://", &format!("redis://locks:{PASSWORD}@"));
    let sandbox =
        Sandbox::new("doctor-rights").with("TENURE_URL", &url).with("TENURE_LOG_LEVEL", "trace");
    let shown = sandbox.run(&["doctor"]);
    assert_eq!(shown.exit, Some(1), "{shown:?}");
    let paste = format!("fix: redis-cli -h 127.0.0.1 -p {} ACL SETUSER locks ", server.port());
    let line = shown.stdout.lines().find_map(|line| line.trim_start().strip_prefix(&paste));
    let words: Vec<_> = line.expect(&shown.stdout).split(' ').collect();
    assert_eq!(words, ["&tenure:*", "+hset"]);
    let words = [&["ACL", "SETUSER", "locks"], &words[..]].concat();
    server.command(&words).unwrap().accepted().unwrap();
    let cured = sandbox.run(&["doctor"]);
    assert_eq!(cured.exit, Some(0), "{cured:?}");
    let wrong = ran(sandbox.command(["doctor"]).env("TENURE_URL", url.replace("sesame", "simsim")));
    assert_eq!(wrong.exit, Some(1));
    assert!(wrong.stdout.contains("✗ reach"), "{wrong:?}");
    for ran in [shown, cured, wrong] {
        let all = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!all.contains("hunter2"), "{all}");
    }
}

#[test]
fn every_code_of_a_finding_is_explained() {
    let server = unfit();
    let sandbox = Sandbox::new("doctor-codes").with("TENURE_URL", &server.url());
    let found = sandbox.run(&["doctor", "--json"]).stdout;
    let codes: Vec<_> = found.split("\"code\":\"").skip(1).map(|rest| &rest[..4]).collect();
    assert_eq!(codes, ["T041", "T042"]);
    for code in codes {
        assert!(sandbox.run(&["explain", code]).worked().starts_with(code));
    }
}
