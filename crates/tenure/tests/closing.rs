//! The end of a `Tenure` by `close`.

use crate::fixtures;

use std::sync::Arc;
use std::task::Poll;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, soon, view, waiting};
use tenure::engine::Ended;
use tenure::engines::memory::Memory;
use tenure::{Error, ErrorKind, Fence, Released, Tenure};

fn two_on_one_engine() -> (Tenure, Tenure) {
    let engine = Arc::new(Memory::new());
    (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine))
}

#[tokio::test]
async fn close_ends_waiting_claims_and_live_holds() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    let waiters: Vec<_> = (0..3).map(|_| tokio::spawn(tenure.mutex("a").join())).collect();
    let lost = tokio::spawn(hold.lost());
    soon(tenure.close()).await;
    for waiter in waiters {
        let error = soon(waiter).await.unwrap().unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Closed, "{error}");
    }
    assert_eq!(soon(lost).await.unwrap(), Ended::Closed);
    assert!(!hold.is_live() && hold.remaining().is_zero());
    let error = soon(hold.extend(ms(1_000))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Closed);
}

#[tokio::test]
async fn after_close_every_call_fails_with_closed() {
    let tenure = memory();
    let clone = tenure.clone();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    tenure.close().await;
    let failures: [Option<Error>; 9] = [
        clone.mutex("b").acquire().await.err(),
        clone.mutex("b").try_acquire().await.err(),
        clone.semaphore("b", 2).acquire().await.err(),
        clone.semaphore("b", 2).resize(3).await.err(),
        clone.rwlock("b").read().await.err(),
        clone.all(["b", "c"]).acquire().await.err(),
        clone.inspect("a").await.err(),
        clone.break_hold("a", Fence::new(1), "x").await.err(),
        hold.release().await.err(),
    ];
    for (call, failure) in failures.into_iter().enumerate() {
        let error = failure.unwrap_or_else(|| panic!("call {call} went through"));
        assert_eq!(error.kind(), ErrorKind::Closed, "call {call}: {error}");
        assert!(error.to_string().contains("connect again"), "call {call}: {error}");
    }
    assert_eq!(clone.list("").await.unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(clone.health().await.unwrap_err().kind(), ErrorKind::Closed);
    soon(clone.close()).await;
}

#[tokio::test]
async fn close_waits_for_queued_releases() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.mutex("a").acquire().await.unwrap();
    engine.shut();
    drop(hold);
    let mut close = waiting(tenure.close());
    engine.open();
    assert_eq!(poll_once(&mut close), Poll::Ready(()));
    let other = Tenure::with_engine(engine);
    assert!(is_free(&other, "a"));
}

#[tokio::test]
async fn a_close_that_is_dropped_has_closed_all_the_same() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.mutex("a").acquire().await.unwrap();
    engine.shut();
    drop(hold);
    drop(waiting(tenure.close()));
    assert_eq!(tenure.mutex("a").acquire().await.unwrap_err().kind(), ErrorKind::Closed);
    engine.open();
    let other = Tenure::with_engine(engine);
    assert!(is_free(&other, "a"), "the release goes out without anybody waiting for it");
}

#[tokio::test]
async fn a_hold_that_was_live_at_close_ends_with_its_ttl() {
    let (tenure, other) = two_on_one_engine();
    let hold = tenure.mutex("a").ttl(ms(300)).acquire().await.unwrap();
    tenure.close().await;
    assert!(!is_free(&other, "a"), "its work may still run");
    let next = soon(other.mutex("a").acquire()).await.unwrap();
    drop(hold);
    assert!(next.is_live() && !is_free(&other, "a"));
}

#[test]
fn a_claim_that_waited_at_close_leaves_the_line() {
    let (tenure, other) = two_on_one_engine();
    let hold = now(other.mutex("a").acquire()).unwrap();
    let waiter = waiting(tenure.mutex("a").join());
    now(tenure.close());
    assert_eq!(now(waiter).unwrap_err().kind(), ErrorKind::Closed);
    assert_eq!(view(&other, "a").waiters, []);
    assert_eq!(now(hold.release()).unwrap(), Released::InTime);
}

#[test]
fn a_turn_that_comes_after_close_is_not_taken() {
    let (tenure, other) = two_on_one_engine();
    let hold = now(other.mutex("a").acquire()).unwrap();
    let waiter = waiting(tenure.mutex("a").join());
    now(tenure.close());
    drop(hold);
    let answer = now(waiter).map_err(|error| error.kind());
    assert_eq!(answer.map(|hold| hold.fence()), Err(ErrorKind::Closed));
    assert!(is_free(&other, "a"));
}
