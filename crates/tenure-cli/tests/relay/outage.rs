//! Redis is down, and the relay reports it: in the log, in its metrics, and to senders.

use std::time::{Duration, Instant};

use tenure_testkit::servers::{Redis, ServerError};

use super::{HASH, get, metric, node, send, start, stop};
use crate::sandbox::{Sandbox, eventually};

#[test]
fn an_engine_that_is_killed_is_logged_once_shown_and_answered_fast() {
    through_an_outage("killed", Redis::kill, Redis::restart);
}

/// Its connections are open, and nothing comes.
#[test]
fn so_is_one_that_hangs() {
    through_an_outage("hung", Redis::pause, Redis::resume);
}

type Act = fn(&Redis) -> Result<(), ServerError>;

fn through_an_outage(name: &str, goes: Act, comes_back: Act) {
    let (node, redis) = (node(), Redis::build().start().unwrap());
    let sandbox = Sandbox::new(&format!("relay-outage-{name}")).with("TENURE_URL", &redis.url());
    let (relay, address) = start(&sandbox, &["--upstream", &node.url()]);
    let gauge = format!(r#"tenure_engine_up{{engine="{}/0"}}"#, redis.url());
    let up = || metric(&get(&address, "/metrics"), &gauge);
    assert_eq!(up(), Some(1.0), "{}", get(&address, "/metrics"));

    // Nobody sends anything: it shows all the same.
    goes(&redis).unwrap();
    let began = Instant::now();
    eventually("the gauge says so", || up() == Some(0.0));
    println!("{name}: seen after {:?} without a transaction", began.elapsed());
    let took: Vec<_> = (0..5)
        .map(|_| {
            let began = Instant::now();
            let refused = send(&address);
            assert!(refused.contains(r#""reason":"engine_down""#), "{refused}");
            began.elapsed()
        })
        .collect();
    println!("{name}: refused after {took:?}");
    // Far below the 5 s of an engine that may still answer.
    assert!(took.iter().all(|took| *took < Duration::from_secs(2)), "{took:?}");
    assert!(took.iter().min() < Some(&Duration::from_secs(1)), "{took:?}");
    assert!(node.sent().is_empty());

    comes_back(&redis).unwrap();
    eventually("the gauge says that it is back", || up() == Some(1.0));
    let sent = send(&address);
    assert!(sent.contains(HASH), "{sent}");
    stop(&relay);
    let ended = relay.ended();
    for event in ["engine.down", "engine.up"] {
        let many = ended.stderr.lines().filter(|line| line.contains(event)).count();
        assert_eq!(many, 1, "{event}: {}", ended.stderr);
    }
}
