//! How holds end: by drop, by panic, by time, with their runtime; and what continues without them.

use crate::fixtures;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, soon, view};
use tenure::engine::Ended;
use tenure::engines::memory::Memory;
use tenure::{ErrorKind, Released, Risk, Tenure};
use tokio::runtime;

#[test]
fn a_hold_dropped_where_there_is_no_runtime_is_released() {
    let tenure = memory();
    let runtime = runtime::Builder::new_current_thread().build().unwrap();
    let hold = runtime.block_on(tenure.mutex("a").acquire()).unwrap();
    drop(runtime);
    assert!(!is_free(&tenure, "a"));
    thread::spawn(move || drop(hold)).join().unwrap();
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_hold_dropped_on_a_plain_thread_wakes_the_next_in_line() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    let next = tokio::spawn(tenure.mutex("a").join());
    let first = hold.fence();
    thread::spawn(move || drop(hold));
    let next = soon(next).await.unwrap().unwrap();
    assert!(next.fence() > first);
}

#[test]
fn a_drop_and_a_try_right_after_it_keep_their_order() {
    let tenure = memory();
    for round in 0..1_000 {
        let hold = now(tenure.mutex("a").try_acquire()).unwrap();
        assert!(hold.is_some(), "round {round}");
        drop(hold);
    }
}

#[test]
fn a_panic_in_the_critical_section_releases() {
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    let panicked = catch_unwind(AssertUnwindSafe(move || {
        let _hold = hold;
        panic!("the work went wrong, as it should in this test");
    }));
    assert!(panicked.is_err());
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_task_that_panics_hands_over_to_the_next_in_line() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    let next = tokio::spawn(tenure.mutex("a").join());
    let task = tokio::spawn(async move {
        let _hold = hold;
        tokio::task::yield_now().await;
        panic!("the work went wrong, as it should in this test");
    });
    assert!(task.await.unwrap_err().is_panic());
    assert!(soon(next).await.unwrap().unwrap().is_live());
}

#[tokio::test]
async fn a_forgotten_hold_ends_at_max_hold_and_the_next_in_line_has_it() {
    let tenure = memory();
    let asked = Instant::now();
    let hold = tenure.mutex("a").ttl(ms(700)).max_hold(ms(1_200)).acquire().await.unwrap();
    let (lost, first) = (hold.lost(), hold.fence());
    std::mem::forget(hold);
    let next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(asked.elapsed() >= ms(1_200), "renewed all the while");
    assert!(next.fence() > first);
    assert_eq!(soon(lost).await, Ended::MaxHold);
}

/// A is slow, its time runs out, B gets the name, and then A tries to release.
#[tokio::test]
async fn a_release_after_the_ttl_is_late_and_does_not_touch_the_new_holder() {
    let tenure = memory();
    let stolen = tenure.mutex("a").ttl(ms(200)).renew(false).acquire().await.unwrap();
    assert!(stolen.is_live() && !stolen.remaining().is_zero());
    let next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(!stolen.is_live() && stolen.remaining().is_zero());
    assert_eq!(poll_once(&mut stolen.lost()), std::task::Poll::Ready(Ended::Expired));
    assert!(next.fence() > stolen.fence());

    assert_eq!(soon(stolen.release()).await.unwrap(), Released::Late);
    assert!(next.is_live());
    assert_eq!(view(&tenure, "a").holders[0].fence, next.fence());
    assert!(!is_free(&tenure, "a"));
    assert_eq!(soon(next.release()).await.unwrap(), Released::InTime);
    assert!(is_free(&tenure, "a"));
}

/// The loss is declared a little before the engine ends the hold; the release comes in between.
#[tokio::test]
async fn a_release_after_the_loss_is_late_even_if_nobody_else_came() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(600)).renew(false).acquire().await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    assert_eq!(soon(hold.release()).await.unwrap(), Released::Late);
    assert!(is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_hold_dropped_after_it_was_lost_does_not_touch_the_new_holder() {
    let tenure = memory();
    let stolen = tenure.mutex("a").ttl(ms(100)).renew(false).acquire().await.unwrap();
    let next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert_eq!(soon(stolen.lost()).await, Ended::Expired);
    drop(stolen);
    assert!(next.is_live() && !is_free(&tenure, "a"));
}

#[tokio::test]
async fn a_hold_that_is_lost_is_lost_before_the_engine_gives_it_away() {
    let tenure = memory();
    for round in 0..5 {
        let asking = tenure.mutex("a").ttl(ms(100)).renew(false);
        let hold = soon(asking.acquire()).await.unwrap();
        let next = tenure.mutex("a").join();
        // Nobody polls the hold's own futures: the clock alone says so.
        let next = soon(next).await.unwrap();
        assert!(!hold.is_live(), "round {round}");
        drop((hold, next));
    }
}

#[test]
fn a_runtime_that_is_dropped_releases_what_its_tasks_hold_and_wait_for() {
    let tenure = memory();
    let runtime = runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    for name in ["a", "b", "c"] {
        let hold = now(tenure.mutex(name).acquire()).unwrap();
        runtime.spawn(async move {
            std::future::pending::<()>().await;
            drop(hold);
        });
        for _ in 0..5 {
            let joined = tenure.mutex(name).join();
            runtime.spawn(async move { drop(joined.await) });
        }
        assert_eq!(view(&tenure, name).waiters.len(), 5);
    }
    drop(runtime);
    assert_eq!(now(tenure.list("")).unwrap(), []);
    let second = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    second.block_on(async {
        for name in ["a", "b", "c"] {
            assert!(soon(tenure.mutex(name).acquire()).await.unwrap().is_live());
        }
    });
}

#[tokio::test]
async fn a_hold_outlives_its_tenure_and_is_still_renewed() {
    let engine = Arc::new(Memory::new());
    let other = Tenure::with_engine(engine.clone());
    let hold = {
        let tenure = Tenure::with_engine(engine);
        tenure.mutex("a").ttl(ms(1_000)).acquire().await.unwrap()
    };
    let until = Instant::now() + ms(2_000);
    while Instant::now() < until {
        assert!(!is_free(&other, "a"));
        tokio::time::sleep(ms(20)).await;
    }
    assert!(hold.is_live());
    drop(hold);
    assert!(is_free(&other, "a"));
}

#[test]
fn blocked_user_code_does_not_starve_renewal() {
    let tenure = memory();
    let other = tenure.clone();
    let (tell, over) = mpsc::channel::<()>();
    let outsider = thread::spawn(move || {
        let mut tries = 0;
        while over.recv_timeout(ms(10)) == Err(RecvTimeoutError::Timeout) {
            assert!(!is_free(&other, "a"), "given away after {tries} tries");
            tries += 1;
        }
        tries
    });
    let runtime = runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        // Long enough that a busy machine runs the watchdog in time.
        let hold = tenure.mutex("a").ttl(ms(3_000)).acquire().await.unwrap();
        // The only thread of the runtime, for twice the ttl.
        thread::sleep(ms(6_000));
        assert!(hold.is_live());
        tell.send(()).unwrap();
        assert!(outsider.join().unwrap() > 0);
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    });
}

#[tokio::test]
async fn renewal_continues_while_other_holds_of_the_process_come_and_go() {
    let tenure = memory();
    let kept = tenure.mutex("kept").ttl(ms(2_000)).acquire().await.unwrap();
    let until = Instant::now() + ms(5_000);
    while Instant::now() < until {
        drop(soon(tenure.mutex("passing").ttl(ms(50)).acquire()).await.unwrap());
        tokio::task::yield_now().await;
    }
    assert!(kept.is_live());
    assert_eq!(kept.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn a_name_that_is_taken_again_is_renewed_again() {
    let tenure = memory();
    for _ in 0..3 {
        let hold = soon(tenure.mutex("a").ttl(ms(2_000)).acquire()).await.unwrap();
        tokio::time::sleep(ms(2_500)).await;
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    }
}

#[tokio::test]
async fn thousands_of_holds_are_all_renewed() {
    let tenure = memory();
    let mut holds = Vec::new();
    for n in 0..5_000 {
        let asking = tenure.mutex(format!("name-{n}")).ttl(ms(2_000));
        holds.push(asking.acquire().await.unwrap());
    }
    tokio::time::sleep(ms(3_000)).await;
    assert_eq!(holds.iter().filter(|hold| !hold.is_live()).count(), 0);
}

#[tokio::test]
async fn a_release_at_the_instant_of_a_renewal_is_in_time() {
    let tenure = memory();
    let tasks: Vec<_> = (0..300)
        .map(|n| {
            let tenure = tenure.clone();
            tokio::spawn(async move {
                for round in 0..4 {
                    let asking = tenure.mutex(format!("name-{n}")).ttl(ms(600));
                    let hold = asking.acquire().await.unwrap();
                    let lost = hold.lost();
                    // The renewal is due at a third of the ttl.
                    let aim = Duration::from_micros(198_000 + (n * 37 + round * 501) % 4_000);
                    tokio::time::sleep(aim).await;
                    assert_eq!(hold.release().await.unwrap(), Released::InTime);
                    let mut lost = lost;
                    assert!(poll_once(&mut lost).is_pending());
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(tenure.list("").await.unwrap(), []);
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_is_lost_without_an_answer_from_anybody() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let hold = tenure.mutex("a").ttl(ms(1_000)).acquire().await.unwrap();
    engine.be_deaf();
    match soon(hold.at_risk()).await {
        Risk::Failed(error) => {
            assert_eq!(error.kind(), ErrorKind::Unavailable);
            assert!(error.reason().contains("nobody listens"), "{error}");
        }
        other => panic!("{other}"),
    }
    assert!(hold.is_live(), "unknown is not lost");
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    assert!(matches!(soon(hold.at_risk()).await, Risk::Lost(Ended::Expired)));
    assert!(!hold.is_live());
}

/// A caller that awaits a release hears when the hold has run out or a second has passed, even if nobody answers.
#[tokio::test]
async fn a_release_that_nobody_answers_is_late_or_unknown_and_does_not_last_a_ttl() {
    for (ttl, released) in [(ms(600), Released::Late), (ms(60_000), Released::Unknown)] {
        let engine = ControlledEngine::new();
        let tenure = Tenure::with_engine(engine.clone());
        let hold = tenure.mutex("a").ttl(ttl).acquire().await.unwrap();
        let asked = std::time::Instant::now();
        engine.shut();
        assert_eq!(soon(hold.release()).await.unwrap(), released);
        assert!(asked.elapsed() < ms(3_500), "after {:?}", asked.elapsed());
        // Closing does not wait for it either.
        soon(tenure.close()).await;
        assert!(asked.elapsed() < ms(6_000), "after {:?}", asked.elapsed());
    }
}

#[tokio::test]
async fn every_observer_of_a_hold_hears_that_it_is_lost() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(100)).renew(false).acquire().await.unwrap();
    let lost = hold.lost();
    let watching: Vec<_> = (0..5).map(|_| tokio::spawn(lost.clone())).collect();
    for task in watching {
        assert_eq!(soon(task).await.unwrap(), Ended::Expired);
    }
    drop(hold);
    assert_eq!(soon(lost).await, Ended::Expired, "it stays lost");
}

#[tokio::test]
async fn a_hold_that_was_released_is_never_lost() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(50)).acquire().await.unwrap();
    let lost = hold.lost();
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    assert!(tokio::time::timeout(ms(150), lost).await.is_err());
}
