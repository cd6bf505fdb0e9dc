//! The local line while the engine is there: its order, what is left behind, who is told what.

use crate::fixtures;

use std::time::Duration;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{ms, now, soon, view, waiting};
use tenure::{ErrorKind, OnOutage, Protection, Tenure};

fn local() -> Tenure {
    now(Tenure::connect("memory:?on_outage=local")).unwrap()
}

#[test]
fn a_hold_of_the_engine_says_so_whatever_the_policy() {
    for policy in ["closed", "local", "open"] {
        let tenure = now(Tenure::connect(&format!("memory:?on_outage={policy}"))).unwrap();
        let hold = now(tenure.mutex("x").acquire()).unwrap();
        assert_eq!(hold.protection(), Protection::Engine);
        assert_eq!(now(tenure.all(["a", "b"]).acquire()).unwrap().protection(), Protection::Engine);
    }
}

#[test]
fn only_the_first_of_this_process_stands_in_the_engines_line() {
    let tenure = local();
    let hold = now(tenure.mutex("x").on_outage(OnOutage::Closed).acquire()).unwrap();
    let mut waiters: Vec<_> = (0..5).map(|_| waiting(tenure.mutex("x").join())).collect();
    assert_eq!(view(&tenure, "x").waiters.len(), 1);
    drop(hold);
    // In the order of calls.
    for _ in 0..5 {
        let first = now(waiters.remove(0)).unwrap();
        assert_eq!(view(&tenure, "x").holders.len(), 1);
        waiters.iter_mut().for_each(|waiter| assert!(fixtures::poll_once(waiter).is_pending()));
        drop(first);
    }
    assert!(now(tenure.inspect("x")).unwrap().is_none());
}

#[test]
fn giving_up_in_the_local_line_does_not_involve_the_engine() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let ask = || tenure.mutex("x").on_outage(OnOutage::Local);
    let hold = now(ask().acquire()).unwrap();
    drop(waiting(ask().join()));
    assert!(now(ask().try_acquire()).unwrap().is_none());
    assert!(now(ask().wait(Duration::ZERO).acquire()).is_err());
    let full = now(ask().max_waiters(0).acquire()).unwrap_err();
    assert_eq!(full.kind(), ErrorKind::Full, "{full}");
    assert_eq!(engine.leaves(), 0);
    drop(hold);
    assert_eq!(engine.leaves(), 1);
    drop(now(ask().acquire()).unwrap());
}

#[tokio::test]
async fn the_error_after_the_wait_says_who_of_this_process_has_it() {
    let tenure = local();
    let _hold = tenure.mutex("x").owner("web-1").reason("nightly").acquire().await.unwrap();
    let _first = waiting(tenure.mutex("x").join());
    let error = soon(tenure.mutex("x").wait(ms(30)).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    let said = error.to_string();
    assert!(said.contains("waited 30ms, and 1 were ahead in line"), "{said}");
    assert!(said.contains("held by web-1 (\"nightly\")"), "{said}");
    assert!(said.contains("not re-entrant"), "{said}");
    let error = soon(tenure.mutex("x").wait(Duration::ZERO).acquire()).await.unwrap_err();
    assert!(error.to_string().contains("did not wait; held by web-1"), "{error}");
}

/// A future that is kept but not polled, as in a blocked runtime.
#[tokio::test]
async fn a_turn_of_this_process_that_nobody_takes_passes_on() {
    let tenure = local();
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let stuck = waiting(tenure.mutex("x").join());
    let next = tokio::spawn(tenure.mutex("x").join());
    drop(hold);
    let next = soon(next).await.unwrap().unwrap();
    assert!(next.is_live());
    drop(next);
    // It has not lost its place.
    drop(soon(stuck).await.unwrap());
}

#[tokio::test]
async fn several_names_at_once_do_not_wait_for_each_other() {
    let tenure = local();
    let asks: Vec<_> = (0..50)
        .map(|number| {
            let names = ["a", "b", "c", "d"];
            let tenure = tenure.clone();
            tokio::spawn(async move {
                let two = [names[number % 4], names[(number / 4) % 4]];
                let hold = tenure.all(two).acquire().await.unwrap();
                tokio::task::yield_now().await;
                hold.release().await.unwrap()
            })
        })
        .collect();
    for ask in asks {
        soon(ask).await.unwrap();
    }
}

/// The engine forgets a hold that was broken; its work may still run.
#[tokio::test]
async fn a_hold_that_was_broken_keeps_others_of_this_process_out_until_it_is_dropped() {
    let tenure = local();
    let hold = tenure.mutex("x").acquire().await.unwrap();
    tenure.break_hold("x", hold.fence(), "drill").await.unwrap();
    assert!(!hold.is_live());
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());
    let other = tenure.mutex("x").on_outage(OnOutage::Closed).try_acquire().await.unwrap();
    drop(other.expect("the engine grants it to others"));
    drop(hold);
    let hold = tenure.mutex("x").try_acquire().await.unwrap().expect("it is free");
    // A hold that was handed over is no longer this process's.
    let detached = hold.detach().await.unwrap();
    let waits = tenure.mutex("x").wait(ms(30)).acquire().await.unwrap_err();
    assert!(!waits.to_string().contains("in this process"), "{waits}");
    drop(tenure.attach(&detached).await.unwrap());
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
}
