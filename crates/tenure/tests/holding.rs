//! What a hold does while it lasts: extend, max_hold, hold_for, run.

use crate::fixtures;

use std::future::poll_fn;
use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::mpsc;
use std::task::Poll;
use std::time::{Duration, Instant};

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, soon, until, view, waiting};
use tenure::engine::Ended;
use tenure::{Broken, ErrorKind, Released, Tenure};

#[tokio::test]
async fn extend_makes_a_hold_last_longer_and_never_shorter() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(1_000)).acquire().await.unwrap();
    assert!(hold.remaining() <= ms(1_000));
    hold.extend(ms(60_000)).await.unwrap();
    assert!(hold.remaining() > ms(50_000), "{:?}", hold.remaining());
    assert!(view(&tenure, "a").holders[0].remaining > ms(50_000));
    hold.extend(ms(100)).await.unwrap();
    assert!(hold.remaining() > ms(50_000), "{:?}", hold.remaining());
    assert!(view(&tenure, "a").holders[0].remaining > ms(50_000));
}

#[tokio::test]
async fn a_hold_that_is_not_renewed_lives_on_by_extend() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(600)).renew(false).acquire().await.unwrap();
    for _ in 0..10 {
        tokio::time::sleep(ms(100)).await;
        hold.extend(ms(600)).await.unwrap();
    }
    assert!(hold.is_live());
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
}

#[tokio::test]
async fn a_hold_extended_beyond_its_ttl_is_not_cut_short_by_renewal() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(60)).acquire().await.unwrap();
    hold.extend(ms(30_000)).await.unwrap();
    tokio::time::sleep(ms(200)).await;
    assert!(hold.remaining() > ms(20_000), "{:?}", hold.remaining());
}

#[tokio::test]
async fn extend_beyond_max_hold_is_refused_and_changes_nothing() {
    let tenure = memory();
    let asking = tenure.mutex("a").ttl(ms(1_000)).max_hold(ms(5_000));
    let hold = asking.acquire().await.unwrap();
    let error = hold.extend(ms(6_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("extend \"a\" on memory") && text.contains("max_hold 5s"), "{text}");
    assert!(hold.is_live() && hold.remaining() <= ms(1_000));
    hold.extend(ms(3_000)).await.unwrap();
    assert!(hold.remaining() > ms(2_000));
}

#[tokio::test]
async fn extend_out_of_range_is_refused() {
    let tenure = memory();
    let hold = tenure.mutex("a").acquire().await.unwrap();
    for ttl in [Duration::ZERO, ms(1), Duration::from_secs(100 * 365 * 86_400), Duration::MAX] {
        let error = hold.extend(ttl).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
        assert!(error.to_string().contains("50ms to 86400s"), "{error}");
    }
    assert!(hold.is_live());
}

#[tokio::test]
async fn extend_after_the_loss_is_lost_even_if_the_name_is_free() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(60)).renew(false).acquire().await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    until("the name is free", || now(tenure.inspect("a")).unwrap().is_none());
    let error = hold.extend(ms(1_000)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost, "{error}");
    assert!(!hold.is_live());
    assert_eq!(tenure.inspect("a").await.unwrap(), None, "it has not come back");
}

#[tokio::test]
async fn extend_of_several_names_extends_each() {
    let tenure = memory();
    let hold = tenure.all(["a", "b"]).ttl(ms(1_000)).acquire().await.unwrap();
    hold.extend(ms(60_000)).await.unwrap();
    for name in ["a", "b"] {
        assert!(view(&tenure, name).holders[0].remaining > ms(50_000));
    }
    assert!(hold.remaining() > ms(50_000));
}

#[tokio::test]
async fn max_hold_counts_from_the_grant_so_that_every_waiter_has_its_full_time() {
    let tenure = memory();
    // Long enough for a busy machine to renew in time.
    let ask = || tenure.mutex("a").ttl(ms(700)).max_hold(ms(1_000));
    std::mem::forget(ask().acquire().await.unwrap());
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let joined = ask().join();
            tokio::spawn(async move {
                let hold = joined.await.unwrap();
                let granted = Instant::now();
                (hold.lost().await, granted.elapsed(), hold.fence())
            })
        })
        .collect();
    let mut fences = Vec::new();
    for waiter in waiters {
        let (ended, held_for, fence) = soon(waiter).await.unwrap();
        assert_eq!(ended, Ended::MaxHold);
        assert!(held_for >= ms(800), "only {held_for:?}");
        fences.push(fence);
    }
    assert!(fences.is_sorted(), "{fences:?}");
}

#[tokio::test]
async fn a_hold_that_reached_max_hold_cannot_be_extended_and_its_release_is_late() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(700)).max_hold(ms(800)).acquire().await.unwrap();
    assert_eq!(soon(hold.lost()).await, Ended::MaxHold);
    assert!(hold.remaining().is_zero());
    let late = hold.extend(ms(200)).await.unwrap_err();
    assert_eq!(late.kind(), ErrorKind::Lost, "it is lost, however the ttl compares: {late}");
    assert_eq!(soon(hold.release()).await.unwrap(), Released::Late);
}

#[tokio::test]
async fn hold_for_keeps_the_name_taken_after_an_early_release() {
    let tenure = memory();
    let granted = Instant::now();
    let hold = tenure.mutex("a").ttl(ms(700)).hold_for(ms(1_500)).acquire().await.unwrap();
    let answer = soon(hold.release()).await.unwrap();
    assert_eq!(answer, Released::InTime);
    assert!(granted.elapsed() < ms(1_400), "the release does not wait for it");
    assert!(!is_free(&tenure, "a"));
    let next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(granted.elapsed() >= ms(1_500), "after {:?}", granted.elapsed());
    assert!(next.is_live());
}

#[tokio::test]
async fn hold_for_also_keeps_what_was_dropped() {
    let tenure = memory();
    let granted = Instant::now();
    drop(tenure.mutex("a").ttl(ms(700)).hold_for(ms(1_000)).acquire().await.unwrap());
    let _next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(granted.elapsed() >= ms(1_000), "after {:?}", granted.elapsed());
}

#[tokio::test]
async fn hold_for_that_has_passed_costs_nothing() {
    let tenure = memory();
    let hold = tenure.mutex("a").ttl(ms(1_000)).hold_for(ms(50)).acquire().await.unwrap();
    tokio::time::sleep(ms(60)).await;
    let next = waiting(tenure.mutex("a").join());
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    assert!(now(next).unwrap().is_live());
}

#[tokio::test]
async fn hold_for_is_kept_beyond_the_ttl_even_without_renewal() {
    let tenure = memory();
    let granted = Instant::now();
    let asking = tenure.mutex("a").ttl(ms(700)).renew(false).hold_for(ms(1_000));
    drop(asking.acquire().await.unwrap());
    let _next = soon(tenure.mutex("a").acquire()).await.unwrap();
    assert!(granted.elapsed() >= ms(1_000), "after {:?}", granted.elapsed());
}

#[tokio::test]
async fn what_is_kept_for_hold_for_was_released_and_is_never_lost() {
    let tenure = memory();
    let asking = tenure.mutex("a").ttl(ms(700)).max_hold(ms(1_000)).hold_for(ms(1_000));
    let hold = asking.acquire().await.unwrap();
    let lost = hold.lost();
    assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
    let _next = soon(tenure.mutex("a").acquire()).await.unwrap();
    let mut lost = lost;
    assert!(poll_once(&mut lost).is_pending());
}

/// Granted by a push for two seconds; one renewal makes it five, and then no more.
#[tokio::test]
async fn a_pushed_turn_gets_its_full_ttl_even_without_renewal() {
    let tenure = memory();
    let holder = tenure.mutex("a").acquire().await.unwrap();
    let waiter = tokio::spawn(tenure.mutex("a").ttl(ms(5_000)).renew(false).join());
    drop(holder);
    let hold = soon(waiter).await.unwrap().unwrap();
    assert!(hold.remaining() <= ms(2_000), "a first life");
    until("it has been renewed", || hold.remaining() > ms(3_000));
}

#[tokio::test]
async fn run_returns_the_value_and_releases() {
    let tenure = memory();
    let seen = tenure.mutex("a").run(async |hold| (hold.fence(), hold.is_live())).await.unwrap();
    assert!(seen.0.get() > 0 && seen.1);
    assert!(is_free(&tenure, "a"));
    let two = tenure.all(["a", "b"]).run(async |hold| hold.fences().count()).await.unwrap();
    assert_eq!(two, 2);
    let three = tenure.semaphore("c", 3).run(async |_| 3).await.unwrap();
    assert_eq!(three, 3);
    assert_eq!(tenure.list("").await.unwrap(), []);
}

#[tokio::test]
async fn run_releases_even_after_an_early_return() {
    async fn work(fail: bool) -> Result<u32, &'static str> {
        if fail { Err("no") } else { Ok(1) }
    }
    let tenure = memory();
    let out = tenure.mutex("a").run(async |_| Ok::<_, &str>(work(true).await? + 1)).await.unwrap();
    assert_eq!(out, Err("no"));
    assert!(is_free(&tenure, "a"));
    let out = tenure.mutex("a").run(async |_| Ok::<_, &str>(work(false).await? + 1)).await.unwrap();
    assert_eq!(out, Ok(2));
}

#[tokio::test]
async fn run_drops_the_work_when_the_hold_is_lost() {
    let tenure = memory();
    let (inside, outside) = mpsc::channel::<()>();
    let run = tokio::spawn({
        let tenure = tenure.clone();
        async move {
            let work = tenure.mutex("a").run(async move |_| {
                let _inside = inside;
                std::future::pending::<()>().await;
            });
            work.await
        }
    });
    tokio::task::yield_now().await;
    let fence = view(&tenure, "a").holders[0].fence;
    assert_eq!(tenure.break_hold("a", fence, "wedged").await.unwrap(), Broken::Done);
    let error = soon(run).await.unwrap().unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Lost);
    assert!(error.to_string().contains("wedged"), "{error}");
    assert_eq!(outside.try_recv(), Err(mpsc::TryRecvError::Disconnected), "the work is gone");
    assert!(is_free(&tenure, "a"));
}

/// The work is ready to continue at the very poll that finds the hold lost.
#[test]
fn run_does_not_take_another_step_after_a_pause_beyond_the_ttl() {
    let tenure = memory();
    let steps = AtomicU32::new(0);
    let asking = tenure.mutex("a").ttl(ms(60)).renew(false);
    let mut run = waiting(asking.run(async |_| {
        let one_more =
            || if steps.fetch_add(1, SeqCst) == 0 { Poll::Pending } else { Poll::Ready(()) };
        poll_fn(|_| one_more()).await;
    }));
    // Nobody polls it for longer than the hold lasts, as if the process had been stopped.
    std::thread::sleep(ms(120));
    let error = now(&mut run).unwrap_err();
    assert_eq!((error.kind(), steps.load(SeqCst)), (ErrorKind::Lost, 1), "{error}");
}

#[tokio::test]
async fn run_of_work_that_panics_releases() {
    let tenure = memory();
    let inner = tenure.clone();
    let task = tokio::spawn(async move {
        inner.mutex("a").run(async |_| panic!("as it should in this test")).await
    });
    assert!(soon(task).await.is_err_and(|error| error.is_panic()));
    assert!(is_free(&tenure, "a"));
}

/// At a third of the ttl the fifth renewal would come after more than 13 s.
#[tokio::test]
async fn a_hold_is_renewed_as_often_as_requested() {
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let ask = tenure.mutex("a").ttl(ms(9_000)).renew_every(ms(50));
    let _hold = ask.acquire().await.unwrap();
    until("the fifth renewal", || engine.renewals() >= 5);
}
