//! Passwords and claims are never shown, at any level of the log (S126).

use crate::sandbox;

use sandbox::{Ran, Sandbox, ran};
use tenure_testkit::servers::Redis;

const PASSWORD: &str = "hunter2-open-sesame";

/// Everything that can be asked of an engine, with the claim where it belongs.
const LINES: [&[&str]; 12] = [
    &["ls"],
    &["ls", "--json"],
    &["show", "deploy", "--json"],
    &["check", "deploy"],
    &["check", "deploy", "--json"],
    &["renew", "deploy", "--json"],
    &["acquire", "deploy", "-n"],
    &["acquire", "deploy", "-n", "-j", "2"],
    &["wait", "deploy", "-n"],
    &["break", "deploy"],
    &["break", "deploy", "--fence", "7", "--reason", "a slip"],
    &["config"],
];

#[test]
fn a_password_in_the_url_and_a_claim_stay_secret() {
    let server = Redis::build().password(PASSWORD).start().unwrap();
    let url = server.url().replace("redis://", &format!("redis://:{PASSWORD}@"));
    for format in ["text", "json"] {
        let sandbox = Sandbox::new(&format!("secrets-{format}"))
            .with("TENURE_URL", &url)
            .with("TENURE_LOG_LEVEL", "trace")
            .with("TENURE_LOG_FORMAT", format);
        let acquired = sandbox.run(&["acquire", "deploy", "-t", "5m"]);
        assert_eq!(acquired.exit, Some(0), "{acquired:?}");
        let claim = acquired.stdout.trim().to_owned();
        let id = claim.split('-').nth(1).unwrap().to_owned();
        assert_eq!(id.len(), 32, "{claim}");
        let check = |ran: &Ran, allowed: &str| {
            let text = format!("{}{}", ran.stdout.replace(allowed, ""), ran.stderr);
            assert!(!text.contains(PASSWORD), "{text}");
            assert!(!text.contains(&id), "{text}");
            // Nor as bytes, in decimal.
            let bytes: Vec<_> =
                (0..3).map(|at| u8::from_str_radix(&id[at * 2..at * 2 + 2], 16).unwrap()).collect();
            assert!(!text.contains(&format!("{}, {}, {}", bytes[0], bytes[1], bytes[2])), "{text}");
        };
        check(&acquired, &claim);
        assert!(acquired.stderr.contains("lock.granted"), "the log is on: {acquired:?}");
        for args in LINES {
            check(&ran(sandbox.command(args).env("TENURE_CLAIM", &claim)), "");
        }
        let mut by_flag = sandbox.command(["-u", &url, "ls"]);
        let by_flag = ran(by_flag.env_remove("TENURE_URL"));
        assert!(by_flag.stderr.contains("set TENURE_URL"), "{by_flag:?}");
        check(&by_flag, "");
        check(&ran(sandbox.command(["release", "deploy"]).env("TENURE_CLAIM", &claim)), "");
        let wrong = url.replace(PASSWORD, &format!("{PASSWORD}-not"));
        let refused = ran(sandbox.command(["ls"]).env("TENURE_URL", wrong));
        assert_eq!(refused.exit, Some(77), "{refused:?}");
        check(&refused, "");
    }
    server.terminate().unwrap();
    let sandbox = Sandbox::new("secrets-gone").with("TENURE_URL", &url);
    let gone = sandbox.run(&["ls", "-vvv"]);
    assert_eq!(gone.exit, Some(69), "{gone:?}");
    assert!(!gone.stderr.contains(PASSWORD), "{gone:?}");
}

#[test]
fn an_argument_that_may_be_a_claim_is_not_repeated() {
    let sandbox = Sandbox::new("secrets-argv");
    let claim = sandbox.run(&["acquire", "deploy"]).stdout.trim().to_owned();
    for command in ["check", "renew", "release"] {
        let ran = sandbox.run(&[command, "deploy", &claim]);
        ran.failed(64);
        assert!(!ran.stderr.contains(&claim[3..35]), "{ran:?}");
    }
    let mut child = sandbox.start(&["check", "deploy", "-"]);
    let line = format!("{claim} and more");
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), line.as_bytes()).unwrap();
    let ran = child.ended();
    ran.failed(64);
    assert!(!ran.stderr.contains(&claim[3..35]), "{ran:?}");
}

#[test]
fn mistakes_are_answered_without_repeating_a_secret() {
    let sandbox = Sandbox::new("secrets-mistakes");
    let url = format!("redis://:{PASSWORD}@redis-1");
    let claim = format!("t1-{}-7-30000", "0123456789abcdef".repeat(2));
    for args in [
        &["-u", &*url, "run", "backup", "./x.sh"][..],
        &["run", "-u", &url, "backup"],
        &["ls", "x", &url],
        &[&*url],
        &["acquire", "x", "-t", &url],
        &["ls", "--log-level", &url],
        &[&*format!("--{url}")],
        &["release", "x", "-", &claim],
        &[&*claim],
        &["check", "x", "-t", &claim],
    ] {
        let ran = sandbox.run(args);
        ran.failed(64);
        assert!(!ran.stderr.contains(PASSWORD), "{ran:?}");
        assert!(!ran.stderr.contains(&claim[3..35]), "{ran:?}");
    }
}

#[test]
fn the_key_of_a_node_stays_secret() {
    let url = format!("http://me:{PASSWORD}@127.0.0.1:1/v2/{PASSWORD}");
    let sandbox = Sandbox::new("secrets-node")
        .with("TENURE_UPSTREAM", &url)
        .with("TENURE_LISTEN", "127.0.0.1:0")
        .with("TENURE_LOG_LEVEL", "trace");
    for args in [&["config"][..], &["config", "--json"], &["relay"], &["relay", "--json"]] {
        let ran = sandbox.run(args);
        let text = format!("{}{}", ran.stdout, ran.stderr);
        assert!(!text.contains(PASSWORD), "{text}");
        assert!(args[0] == "config" || text.contains("127.0.0.1:1"), "the node is named: {text}");
    }
}
