//! The spans around a wait and around a hold, and how one leads from a waiter to its holder.

use crate::fixtures;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::log_recorder::{Line, closed, expect, keep, lines, written};
use fixtures::{memory, ms, now, soon, waiting};
use tenure::Tenure;
use tracing::Level;

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

fn kept() -> Tenure {
    keep();
    memory()
}

/// Whether the event was reported inside that span.
fn within(event: &Line, span: &Line) -> bool {
    event.within.is_some_and(|index| lines()[index].fields == span.fields)
}

#[test]
fn a_hold_of_a_free_name_has_both_spans_at_once() {
    let tenure = kept();
    let hold = now(tenure.mutex("free:1").owner("web-1").acquire()).unwrap();
    let fence = hold.fence().to_string();
    let common = [
        ("tenure.name", "free:1"),
        ("tenure.kind", "lock"),
        ("tenure.group", "free"),
        ("tenure.engine", "memory"),
        ("tenure.owner", "web-1"),
        ("tenure.fence", &*fence),
    ];
    let acquire = closed("free:1", "tenure.acquire");
    expect(&acquire, Level::DEBUG, &common);
    expect(&acquire, Level::DEBUG, &[("tenure.outcome", "granted"), ("tenure.wait.ms", "0")]);
    assert_eq!(acquire.target, "tenure");
    assert!(within(&written("free:1", "lock.granted"), &acquire));
    drop(hold);
    let hold = closed("free:1", "tenure.hold");
    expect(&hold, Level::DEBUG, &common);
    expect(&hold, Level::DEBUG, &[("tenure.end", "released")]);
    assert!(hold.fields.contains_key("tenure.hold.ms"), "{hold:?}");
    assert!(!hold.fields.contains_key("tenure.lost.reason"), "{hold:?}");
    let released = written("free:1", "lock.released");
    assert!(released.within.is_some_and(|index| lines()[index].span == "tenure.hold"));
}

#[test]
fn a_waiter_is_led_to_the_holders_trace() {
    let tenure = kept();
    let ask = |owner: &str| tenure.mutex("linked").owner(owner);
    let holder = now(ask("web-1").trace(TRACE).acquire()).unwrap();
    let fence = holder.fence().to_string();
    let next = waiting(ask("web-2").join());
    let last = waiting(ask("web-3").join());
    let blocked = [
        ("blocked_by.owner", "web-1"),
        ("blocked_by.fence", &*fence),
        ("blocked_by.trace", TRACE),
        ("queue", "0"),
    ];
    expect(&written("linked", "lock.queued"), Level::DEBUG, &blocked);
    drop(last);
    let quit = closed("linked", "tenure.acquire");
    // The first to close is the holder's own, which nobody blocked.
    assert!(!quit.fields.contains_key("tenure.blocked_by.trace"), "{quit:?}");
    drop(holder);
    let second = now(next).unwrap();
    let all = lines().clone();
    let of = |owner: &str| {
        let mut spans = all.iter().filter(|line| line.span == "tenure.acquire");
        spans.find(|l| l.is("tenure.name", "linked") && l.is("tenure.owner", owner)).unwrap()
    };
    let blocked = [
        ("tenure.blocked_by.owner", "web-1"),
        ("tenure.blocked_by.fence", &*fence),
        ("tenure.blocked_by.trace", TRACE),
    ];
    expect(of("web-2"), Level::DEBUG, &blocked);
    let fence = second.fence().to_string();
    let granted = [("tenure.wait.position", "1"), ("tenure.fence", &*fence)];
    expect(of("web-2"), Level::DEBUG, &granted);
    expect(of("web-2"), Level::DEBUG, &[("tenure.outcome", "granted")]);
    expect(of("web-3"), Level::DEBUG, &blocked);
    let cancelled = [("tenure.wait.position", "2"), ("tenure.outcome", "cancelled")];
    expect(of("web-3"), Level::DEBUG, &cancelled);
    expect(&written("linked", "lock.quit"), Level::DEBUG, &[("owner", "web-3")]);
}

#[test]
fn a_refused_claim_hears_whose_work_is_in_the_way() {
    let tenure = kept();
    let holder = now(tenure.mutex("taken").owner("web-1").trace(TRACE).acquire()).unwrap();
    assert!(now(tenure.mutex("taken").try_acquire()).unwrap().is_none());
    let busy = written("taken", "lock.busy");
    let fence = holder.fence().to_string();
    let blocked = [
        ("blocked_by.owner", "web-1"),
        ("blocked_by.fence", &*fence),
        ("blocked_by.trace", TRACE),
        ("wait_ms", "0"),
    ];
    expect(&busy, Level::DEBUG, &blocked);
    assert!(busy.within.is_some_and(|index| lines()[index].is("tenure.outcome", "busy")));
}

#[tokio::test]
async fn a_wait_that_is_over_says_so_and_behind_whom() {
    let tenure = kept();
    let _holder = tenure.mutex("slow").owner("web-1").trace(TRACE).acquire().await.unwrap();
    assert!(soon(tenure.mutex("slow").owner("web-2").wait(ms(20)).acquire()).await.is_err());
    let busy = written("slow", "lock.busy");
    assert!(busy.fields["wait_ms"].parse::<u64>().unwrap() >= 20, "{busy:?}");
    let span = lines()[busy.within.unwrap()].clone();
    let said = [("tenure.outcome", "timeout"), ("tenure.blocked_by.trace", TRACE)];
    expect(&span, Level::DEBUG, &said);
}

#[tokio::test]
async fn a_hold_that_is_lost_closes_its_span_with_the_reason() {
    keep();
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.mutex("span lost").ttl(ms(200)).acquire().await.unwrap();
    engine.be_deaf();
    soon(hold.lost()).await;
    let span = closed("span lost", "tenure.hold");
    expect(&span, Level::DEBUG, &[("tenure.end", "expired")]);
    assert!(span.fields["tenure.lost.reason"].contains("time ran out"), "{span:?}");
    assert!(within(&written("span lost", "lock.lost"), &span));
    assert!(within(&written("span lost", "lock.renew_late"), &span));
}

#[tokio::test]
async fn the_source_of_a_trace_is_asked_at_each_claim_unless_the_claim_has_its_own() {
    let count = std::sync::atomic::AtomicU32::new(0);
    let next = move || {
        let number = count.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        // A text with a control character cannot be passed on to others.
        if number == 2 { Some("bad\n".into()) } else { Some(format!("trace-{number}")) }
    };
    let tenure = kept().with_trace_source(next);
    let of = |name: &'static str| {
        let view = now(tenure.inspect(name)).unwrap().unwrap();
        view.holders[0].details.trace.clone()
    };
    let ask = tenure.mutex("sourced");
    drop(now(ask.clone().acquire()).unwrap());
    let _again = now(ask.acquire()).unwrap();
    assert_eq!(of("sourced").as_deref(), Some("trace-1"));
    let _bad = now(tenure.mutex("no trace").acquire()).unwrap();
    assert_eq!(of("no trace"), None);
    let _own = now(tenure.mutex("own trace").trace(TRACE).acquire()).unwrap();
    assert_eq!(of("own trace").as_deref(), Some(TRACE));
    expect(&written("own trace", "lock.granted"), Level::DEBUG, &[("trace", TRACE)]);
}
