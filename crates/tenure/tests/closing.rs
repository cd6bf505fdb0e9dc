//! The end of a `Tenure`: by `close`, and by being let go.

mod probe;

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use probe::between::Between;
use probe::{is_free, memory, ms, now, poll_once, soon, until, view, waiting};
use tenure::engine::Ended;
use tenure::engines::memory::Memory;
use tenure::{Error, ErrorKind, Fence, Released, Tenure};

/// The tests here count the threads of the process, so they run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn watchdogs() -> usize {
    let threads = fs::read_dir("/proc/self/task").unwrap();
    // A thread may end between being listed and being read.
    let names =
        threads.filter_map(|thread| fs::read_to_string(thread.unwrap().path().join("comm")).ok());
    names.filter(|name| name.trim() == "tenure-watchdog").count()
}

fn two_on_one_engine() -> (Tenure, Tenure) {
    let engine = Arc::new(Memory::new());
    (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine))
}

#[tokio::test]
async fn close_ends_waiting_claims_and_live_holds() {
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
    let engine = Between::new();
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
    let _alone = alone();
    let engine = Between::new();
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
    let _alone = alone();
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
    let _alone = alone();
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
    let _alone = alone();
    let (tenure, other) = two_on_one_engine();
    let hold = now(other.mutex("a").acquire()).unwrap();
    let waiter = waiting(tenure.mutex("a").join());
    now(tenure.close());
    drop(hold);
    let answer = now(waiter).map_err(|error| error.kind());
    assert_eq!(answer.map(|hold| hold.fence()), Err(ErrorKind::Closed));
    assert!(is_free(&other, "a"));
}

#[test]
fn the_watchdog_begins_with_the_first_claim_and_serves_all_clones() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let tenure = memory();
    let clone = tenure.clone();
    assert_eq!(now(tenure.inspect("a")).unwrap(), None);
    assert_eq!(watchdogs(), 0, "nothing to watch yet");
    let holds = [
        now(tenure.mutex("a").acquire()).unwrap(),
        now(clone.mutex("b").acquire()).unwrap(),
        now(clone.semaphore("c", 2).acquire()).unwrap(),
    ];
    until("the thread has its name", || watchdogs() == 1);
    drop((tenure, holds));
    drop(clone);
    until("the watchdog ends", || watchdogs() == 0);
}

#[test]
fn the_watchdog_stays_for_the_last_hold_and_not_for_who_only_watches() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let tenure = memory();
    let hold = now(tenure.mutex("a").ttl(ms(200)).acquire()).unwrap();
    let lost = hold.lost();
    drop(tenure);
    // Three times the ttl.
    std::thread::sleep(ms(600));
    assert!(hold.is_live() && watchdogs() == 1);
    drop(hold);
    until("the watchdog ends", || watchdogs() == 0);
    drop(lost);
}

#[test]
fn the_watchdog_stays_until_what_was_released_early_is_free() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let (tenure, other) = two_on_one_engine();
    let hold = now(tenure.mutex("a").ttl(ms(200)).hold_for(ms(500)).acquire()).unwrap();
    until("the thread has its name", || watchdogs() == 1);
    drop((hold, tenure));
    assert!(now(other.inspect("a")).unwrap().is_some(), "kept for a while");
    until("the watchdog ends", || watchdogs() == 0);
    assert_eq!(now(other.inspect("a")).unwrap(), None, "it ended before its work");
}

#[test]
fn the_watchdog_ends_although_a_hold_of_its_was_lost() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let tenure = memory();
    let hold = now(tenure.mutex("a").ttl(ms(60)).renew(false).acquire()).unwrap();
    until("it is lost", || !hold.is_live());
    drop((hold, tenure));
    until("the watchdog ends", || watchdogs() == 0);
}
