//! Friday, 20:14: what happened can be reconstructed afterwards, from the log alone.

use crate::fixtures;

use std::collections::BTreeMap;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::log_recorder::{keep, lines, written};
use fixtures::{ms, soon};
use tenure::{Released, Tenure};

/// One line of a log, as text: all that is left on Monday.
fn log(name: &str) -> Vec<String> {
    let of_name = lines().iter().filter(|line| line.is("name", name)).cloned().collect::<Vec<_>>();
    let pair = |(key, value): (&&str, &String)| format!("{key:?}:{value:?}");
    let object = |fields: &BTreeMap<&'static str, String>| {
        format!("{{{}}}", fields.iter().map(pair).collect::<Vec<_>>().join(","))
    };
    of_name.iter().map(|line| object(&line.fields)).collect()
}

fn field<'a>(line: &'a str, key: &str) -> &'a str {
    let (_, rest) =
        line.split_once(&format!("{key:?}:\"")).unwrap_or_else(|| panic!("{key}: {line}"));
    rest.split('"').next().unwrap()
}

/// Who held what, in which order, and how each hold ended, according to the log.
fn story(log: &[String]) -> Vec<String> {
    let mut story = Vec::new();
    for line in log {
        let owner = field(line, "owner");
        let fence = || field(line, "fence");
        story.push(match field(line, "event") {
            "lock.granted" => format!("{owner} holds {}", fence()),
            "lock.queued" => format!(
                "{owner} waits for {}, who holds {}",
                field(line, "blocked_by.owner"),
                field(line, "blocked_by.fence")
            ),
            "lock.renew_late" => format!("{owner} cannot renew {}", fence()),
            "lock.lost" => format!("{owner} has lost {}", fence()),
            "lock.expired_before_release" => format!("{owner} comes too late with {}", fence()),
            "lock.released" => format!("{owner} releases {}", fence()),
            "lock.renewed" => continue,
            other => panic!("{other}: {line}"),
        });
    }
    story
}

#[tokio::test]
async fn who_held_what_when_is_rebuilt_from_the_log() {
    keep();
    let engine = ControlledEngine::new();
    let (web_1, web_2) =
        (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine.beside()));
    let ask = |tenure: &Tenure, owner: &str| tenure.mutex("table:12").owner(owner).ttl(ms(1_000));
    let first = ask(&web_1, "web-1").acquire().await.unwrap();
    let next = tokio::spawn(ask(&web_2, "web-2").join());
    written("table:12", "lock.queued");
    engine.be_deaf();
    soon(first.lost()).await;
    let second = soon(next).await.unwrap().unwrap();
    let fences = [first.fence(), second.fence()];
    assert_eq!(soon(first.release()).await.unwrap(), Released::Late);
    assert_eq!(soon(second.release()).await.unwrap(), Released::InTime);
    written("table:12", "lock.expired_before_release");
    written("table:12", "lock.released");

    let log = log("table:12");
    let [one, two] = fences;
    let expected = [
        format!("web-1 holds {one}"),
        format!("web-2 waits for web-1, who holds {one}"),
        format!("web-1 cannot renew {one}"),
        format!("web-1 has lost {one}"),
        format!("web-2 holds {two}"),
        format!("web-1 comes too late with {one}"),
        format!("web-2 releases {two}"),
    ];
    assert_eq!(story(&log), expected, "{log:#?}");
    assert!(two > one);
    // Each line shows by itself what it is about, and how long things took.
    for line in &log {
        assert_eq!((field(line, "kind"), field(line, "group")), ("lock", "table"), "{line}");
        assert_eq!(field(line, "engine"), "memory", "{line}");
        assert_eq!(field(line, "claim").len(), 8, "{line}");
    }
    let of = |event: &str| log.iter().find(|line| field(line, "event") == event).unwrap();
    let number = |event: &str, key: &str| field(of(event), key).parse::<u64>().unwrap();
    assert!(number("lock.renew_late", "left_ms") <= 1_000);
    assert!((700..20_000).contains(&number("lock.lost", "hold_ms")), "{log:#?}");
    assert!(number("lock.expired_before_release", "hold_ms") >= number("lock.lost", "hold_ms"));
    assert_eq!(number("lock.lost", "ttl_ms"), 1_000);
    let granted: Vec<_> =
        log.iter().filter(|line| field(line, "event") == "lock.granted").collect();
    assert!(field(granted[1], "wait_ms").parse::<u64>().unwrap() >= 100, "{log:#?}");
    assert!(field(of("lock.lost"), "reason").contains("time ran out"), "{log:#?}");
}
