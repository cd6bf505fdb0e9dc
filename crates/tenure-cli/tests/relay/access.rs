//! Who may ask, and how much.

use tenure_testkit::node::Conduct;
use tenure_testkit::servers::Certificates;

use super::{HASH, call, call_with, first_line, get, listens, node, send_with, start, stop};
use crate::sandbox::{Sandbox, eventually};

const SHOP: &str = "planted-shop-4f7d0a1e9b6c4c1f8a52d3e6b7f80911";
const DESK: &str = "planted-desk-7b1f8a52d3e6b7f809114f7d0a1e9b6c";
/// What `printf %s planted-desk-… | sha256sum` says.
const DESK_DIGEST: &str = "5cea74f1c2ff4a2dd6b7a05196150cf8c15f057e12081da4f3f41ceb9719d7bc";
const ECHO: &str = "test_echo";

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

fn asks(address: &str, head: &str) -> bool {
    let answer = call_with(address, head, ECHO, "[5]");
    let was_asked = answer.starts_with("HTTP/1.1 200") && answer.contains("[5]");
    assert!(was_asked || answer.starts_with("HTTP/1.1 401"), "{answer}");
    assert!(was_asked || answer.contains("www-authenticate: Bearer\r\n"), "{answer}");
    was_asked
}

#[test]
fn only_those_with_a_token_may_ask_and_no_token_is_seen() {
    let lines = format!("# who\nshop {SHOP}\ndesk sha256:{DESK_DIGEST} # hashed\n");
    for from_file in [true, false] {
        let node = node();
        let name = format!("relay-tokens-{from_file}");
        let sandbox = Sandbox::new(&name).with("TENURE_LOG_LEVEL", "trace");
        let file = sandbox.folder().join("tokens");
        std::fs::write(&file, &lines).unwrap();
        let sandbox = match from_file {
            true => sandbox.with("TENURE_TOKENS_FILE", file.to_str().unwrap()),
            false => sandbox.with("TENURE_TOKENS", &lines),
        };
        let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
        let wrong =
            ["", "authorization: Basic c2hvcA==\r\n", &bearer("planted-wrong"), &bearer("")];
        for head in wrong {
            assert!(!asks(&address, head), "{head}");
        }
        assert!(asks(&address, &bearer(SHOP)) && asks(&address, &bearer(DESK)));
        assert!(send_with(&address, &bearer(SHOP)).contains(HASH));
        assert!(!asks(&address, &bearer(&format!("sha256:{DESK_DIGEST}"))), "a digest is no token");
        // Everybody may ask whether it is alive; only clients with a token may see its state.
        assert!(get(&address, "/healthz").starts_with("HTTP/1.1 200"));
        assert!(get(&address, "/readyz").starts_with("HTTP/1.1 401"));
        assert!(get(&address, "/metrics").starts_with("HTTP/1.1 401"));
        let metrics = super::exchange(
            &address,
            &format!(
                "GET /metrics HTTP/1.1\r\nhost: x.example\r\n{}connection: close\r\n\r\n",
                bearer(DESK)
            ),
        );
        assert!(
            super::metric(&metrics, "tenure_relay_unauthorized_total") >= Some(5.0),
            "{metrics}"
        );
        let line = std::fs::read(format!("/proc/{}/cmdline", relay.id())).unwrap();
        stop(&relay);
        let ended = relay.ended();
        assert!(ended.stderr.contains("client=shop"), "{}", ended.stderr);
        let config = sandbox.run(&["config"]);
        assert_eq!(config.exit, Some(0), "{config:?}");
        let line = String::from_utf8_lossy(&line).into_owned();
        let seen = [metrics, line, ended.stdout, ended.stderr, config.stdout, config.stderr];
        for text in seen {
            assert!(!text.contains("planted") && !text.contains(DESK_DIGEST), "{text}");
        }
    }
}

#[test]
fn tokens_that_cannot_be_read_stop_the_start_and_are_not_shown() {
    let node = node();
    for (name, lines) in [
        ("short", "shop planted"),
        ("none", "# nobody\n"),
        ("limit", &format!("shop {SHOP} rate=x")),
    ] {
        let sandbox =
            Sandbox::new(&format!("relay-bad-tokens-{name}")).with("TENURE_TOKENS", lines);
        let ran = sandbox.run(&["relay", "--listen", "127.0.0.1:0", "--upstream", &node.url()]);
        ran.failed(78);
        assert!(!ran.stderr.contains("planted"), "{ran:?}");
    }
    let sandbox = Sandbox::new("relay-no-tokens").with("TENURE_TOKENS_FILE", "/does/not/exist");
    sandbox.run(&["relay", "--listen", "127.0.0.1:0", "--upstream", &node.url()]).failed(78);
}

#[test]
fn tokens_can_be_exchanged_while_it_runs() {
    let (node, sandbox) = (node(), Sandbox::new("relay-tokens-again"));
    let file = sandbox.folder().join("tokens");
    std::fs::write(&file, format!("shop {SHOP}\n")).unwrap();
    let with = ["--upstream", &node.url(), "--tokens-file", file.to_str().unwrap()];
    let (relay, address) = start(&sandbox, &with);
    assert!(asks(&address, &bearer(SHOP)) && !asks(&address, &bearer(DESK)));
    let pid = rustix::process::Pid::from_child(&relay);
    let read_again = || {
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).unwrap();
    };
    std::fs::write(&file, format!("desk {DESK}\n")).unwrap();
    read_again();
    eventually("the new one is let in", || asks(&address, &bearer(DESK)));
    assert!(!asks(&address, &bearer(SHOP)), "the old one is not");
    // What cannot be read changes nothing, and is said.
    std::fs::write(&file, "desk planted\n").unwrap();
    read_again();
    read_again();
    assert!(asks(&address, &bearer(DESK)));
    std::fs::write(&file, format!("shop {SHOP}\n")).unwrap();
    read_again();
    eventually("the other is let in again", || asks(&address, &bearer(SHOP)));
    stop(&relay);
    let ended = relay.ended();
    assert_eq!(ended.exit, Some(0), "{ended:?}");
    assert!(!ended.stderr.contains("planted"), "{ended:?}");
}

#[test]
fn a_client_has_limits_of_its_own() {
    let node = node();
    let lines = format!("shop {SHOP} rate=3\ndesk {DESK} in-flight=1\n");
    let sandbox = Sandbox::new("relay-client-limits").with("TENURE_TOKENS", &lines);
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    // More than a machine under load lets through in a second's time, so that one of them is refused.
    let answers: Vec<_> = (0..40).map(|_| call_with(&address, &bearer(SHOP), ECHO, "[]")).collect();
    let refused = answers.iter().find(|answer| answer.starts_with("HTTP/1.1 429"));
    let refused = refused.unwrap_or_else(|| panic!("{answers:?}"));
    assert!(refused.contains("retry-after: 1\r\n"), "{refused}");
    assert!(refused.contains(r#""reason":"rate_limited""#), "{refused}");
    assert!(answers.iter().filter(|answer| answer.starts_with("HTTP/1.1 200")).count() >= 3);

    node.next("eth_sendRawTransaction", Conduct::Hang);
    let first = std::thread::spawn({
        let address = address.clone();
        move || send_with(&address, &bearer(DESK))
    });
    eventually("the first is with the node", || node.hanging() == 1);
    let second = send_with(&address, &bearer(DESK));
    assert!(second.contains(r#""reason":"busy""#) && second.contains("this client"), "{second}");
    assert!(asks(&address, &bearer(DESK)), "other calls pass");
    node.let_go();
    assert!(first.join().unwrap().contains(HASH));
    let metrics = super::exchange(
        &address,
        &format!("GET /metrics HTTP/1.1\r\n{}connection: close\r\n\r\n", bearer(DESK)),
    );
    for (client, limit) in [("shop", "rate"), ("desk", "in_flight")] {
        let name = format!(r#"tenure_relay_limited_total{{client="{client}",limit="{limit}"}}"#);
        assert!(super::metric(&metrics, &name) >= Some(1.0), "{name}: {metrics}");
    }
    stop(&relay);
    assert_eq!(relay.ended().exit, Some(0));
}

fn with<'a>(args: &[&'a str], more: &[&[&'a str]]) -> Vec<&'a str> {
    [&[args], more].concat().concat()
}

#[test]
fn other_machines_are_let_in_only_with_tls_and_tokens_or_by_insecure() {
    let (node, certificates) = (node(), Certificates::new().unwrap());
    let url = node.url();
    let sandbox = Sandbox::new("relay-outside");
    let tokens = sandbox.folder().join("tokens");
    std::fs::write(&tokens, format!("shop {SHOP}\n")).unwrap();
    let path = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    let (tokens, cert) = (path(tokens), path(certificates.server_path()));
    let (key, ca) = (path(certificates.server_key_path()), path(certificates.ca_path()));
    let tls = ["--tls-cert", &cert, "--tls-key", &key];
    let outside = ["relay", "--upstream", &url, "--listen", "0.0.0.0:0"];
    for more in [
        &[][..],
        &[&["--tokens-file", &tokens][..]],
        &[&tls[..]],
        &[&["--tls-cert", &*cert][..]],
        &[&["--tls-client-ca", &*ca][..]],
    ] {
        sandbox.run(&with(&outside, more)).failed(64);
    }
    let admin = ["relay", "--upstream", &url, "--admin-listen", "0.0.0.0:0"];
    sandbox.run(&admin).failed(64);
    for more in [
        &[&tls[..], &["--tokens-file", &tokens]][..],
        &[&tls[..], &["--tls-client-ca", &ca]],
        &[&["--insecure"][..]],
    ] {
        let mut relay = sandbox.start(&with(&outside, more));
        let line = first_line(&mut relay);
        assert!(line.starts_with("listening on http"), "{line}");
        assert_eq!(line.contains("https://"), more.len() == 2, "{line}");
        stop(&relay);
        assert_eq!(relay.ended().exit, Some(0));
    }
}

/// A page whose name points to the relay says that name.
#[test]
fn the_host_is_looked_at_also_where_other_machines_may_ask() {
    let (node, sandbox) = (node(), Sandbox::new("relay-host"));
    let url = node.url();
    let outside = ["relay", "--upstream", &url, "--listen", "0.0.0.0:0", "--insecure"];
    let ask = |address: &str, host: &str| {
        let answer = call_with(address, &format!("host: {host}\r\n"), ECHO, "[5]");
        let is_known = answer.starts_with("HTTP/1.1 200");
        assert!(is_known || answer.starts_with("HTTP/1.1 421"), "{answer}");
        is_known
    };
    let mut relay = sandbox.start(&outside);
    let address = listens(&mut relay).replace("0.0.0.0", "127.0.0.1");
    for (host, is_known) in [
        ("10.1.2.3:9545", true),
        ("localhost", true),
        ("[fd00::1]:9545", true),
        ("evil.example", false),
        ("10.1.2.3.evil.example:9545", false),
    ] {
        assert_eq!(ask(&address, host), is_known, "{host}");
    }
    let mut named = sandbox.start(&[&outside[..], &["--hosts", "relay.internal"]].concat());
    let address = listens(&mut named).replace("0.0.0.0", "127.0.0.1");
    assert!(ask(&address, "relay.internal:9545") && !ask(&address, "evil.example"));
}

#[test]
fn health_and_metrics_can_have_an_address_of_their_own() {
    let node = node();
    let sandbox = Sandbox::new("relay-admin").with("TENURE_TOKENS", &format!("shop {SHOP}"));
    let url = node.url();
    let mut relay = sandbox.start(&[
        "relay",
        "--upstream",
        &url,
        "--listen",
        "127.0.0.1:0",
        "--admin-listen",
        "127.0.0.1:0",
    ]);
    let line = first_line(&mut relay);
    let mut addresses = line.split("http://").skip(1).map(|rest| rest.split(',').next().unwrap());
    let (main, admin) = (addresses.next().unwrap(), addresses.next().unwrap());
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert!(get(admin, path).starts_with("HTTP/1.1 200"), "{path}");
    }
    assert!(get(main, "/healthz").starts_with("HTTP/1.1 200"));
    assert!(get(main, "/metrics").starts_with("HTTP/1.1 404"));
    assert!(get(main, "/readyz").starts_with("HTTP/1.1 404"));
    assert!(call(admin, ECHO, "[]").starts_with("HTTP/1.1 404"));
    assert!(asks(main, &bearer(SHOP)) && !asks(main, ""));
    stop(&relay);
    assert_eq!(relay.ended().exit, Some(0));
}
