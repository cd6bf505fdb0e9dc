//! The line: who comes next, who may join, and what a caller hears when the wait is over.

use crate::fixtures;

use std::sync::Arc;
use std::time::{Duration, Instant};

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, soon, view, waiting};
use tenure::engines::memory::Memory;
use tenure::{Begun, ErrorKind, Tenure};

/// The same lines under another owner's name.
fn called(tenure: &Tenure, owner: &str) -> Tenure {
    let mut options = tenure.defaults();
    options.details_mut().owner = owner.into();
    tenure.clone().with_defaults(options).unwrap()
}

#[test]
fn a_place_is_taken_when_join_is_called_not_when_it_is_polled() {
    let tenure = memory();
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    let mut line: Vec<_> = (0..10)
        .map(|n| {
            let caller = called(&tenure, &format!("caller-{n}"));
            Box::pin(caller.mutex("a").join())
        })
        .collect();
    for joined in line.iter_mut().rev() {
        assert!(poll_once(joined).is_pending());
    }
    let owners: Vec<_> =
        view(&tenure, "a").waiters.iter().map(|w| w.details.owner.clone()).collect();
    assert_eq!(owners, (0..10).map(|n| format!("caller-{n}")).collect::<Vec<_>>());
    let mut last = holder.fence();
    drop(holder);
    // Polled in reverse order all the time; served in the order of the calls.
    while !line.is_empty() {
        for joined in line.iter_mut().skip(1).rev() {
            assert!(poll_once(joined).is_pending());
        }
        let served = now(line.remove(0)).unwrap();
        assert!(served.fence() > last);
        last = served.fence();
    }
}

#[test]
fn a_joined_claim_holds_without_being_polled() {
    let tenure = memory();
    let joined = tenure.mutex("a").join();
    assert!(!is_free(&tenure, "a"));
    assert!(now(joined).unwrap().is_live());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_are_served_in_the_order_they_came() {
    let tenure = memory();
    let holder = tenure.mutex("a").acquire().await.unwrap();
    let (tell, served) = std::sync::mpsc::channel();
    let tasks: Vec<_> = (0..100)
        .map(|n| {
            let (joined, tell) = (tenure.mutex("a").join(), tell.clone());
            tokio::spawn(async move {
                let hold = joined.await.unwrap();
                tell.send(n).unwrap();
                drop(hold);
            })
        })
        .collect();
    drop((holder, tell));
    for task in tasks {
        soon(task).await.unwrap();
    }
    assert_eq!(served.iter().collect::<Vec<_>>(), (0..100).collect::<Vec<_>>());
}

#[test]
fn a_try_does_not_pass_waiters() {
    let tenure = memory();
    let two = now(tenure.semaphore("a", 3).acquire_many(2)).unwrap();
    let heavy = waiting(tenure.semaphore("a", 3).join_many(3));
    // One unit is free, but it is not this one's turn.
    assert!(now(tenure.semaphore("a", 3).try_acquire()).unwrap().is_none());
    assert_eq!(view(&tenure, "a").waiters.len(), 1, "and a try does not stay in line");
    drop(heavy);
    assert!(now(tenure.semaphore("a", 3).try_acquire()).unwrap().is_some());
    drop(two);
}

#[test]
fn a_full_line_refuses_at_once_and_accepts_again_when_it_has_drained() {
    let tenure = memory();
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    let ask = || tenure.mutex("a").max_waiters(2);
    let first = waiting(ask().join());
    let second = waiting(ask().join());
    let error = now(ask().acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Full);
    assert!(error.is_retryable());
    let text = error.to_string();
    assert!(
        text.starts_with("acquire \"a\" on memory: the line is full: its limit is 2"),
        "{text}"
    );
    assert_eq!(view(&tenure, "a").waiters.len(), 2, "who was refused has no place");
    drop(holder);
    let first = now(first).unwrap();
    let third = waiting(ask().join());
    drop(first);
    drop(now(second).unwrap());
    assert!(now(third).unwrap().is_live());
    let nobody = tenure.mutex("b").max_waiters(0);
    assert!(now(nobody.acquire()).unwrap().is_live(), "no need to wait for what is free");
}

#[tokio::test]
async fn a_wait_that_is_over_names_who_holds_it_for_how_long_and_who_is_ahead() {
    let tenure = memory();
    let asked = called(&tenure, "web-1").mutex("a").reason("nightly export");
    let holder = asked.acquire().await.unwrap();
    let ahead = waiting(tenure.mutex("a").join());
    let error = soon(tenure.mutex("a").wait(ms(50)).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    assert!(error.is_retryable() && !error.may_have_happened());
    let text = error.to_string();
    for part in [
        "acquire \"a\" on memory: waited 50ms",
        "held by web-1 (\"nightly export\") for ",
        &format!("fence {}", holder.fence()),
        "1 were ahead in line",
        "not re-entrant",
    ] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(view(&tenure, "a").waiters.len(), 1, "it has left the line");
    drop(ahead);
}

/// The first time in a text after `word`, in whatever unit it is written.
fn spoken_time(text: &str, word: &str) -> Duration {
    let (_, after) = text.split_once(word).unwrap();
    let (spoken, _) = after.split_once(',').unwrap();
    let parts = spoken.trim().split(' ').map(|part| {
        let digits = part.find(|c: char| !c.is_ascii_digit()).unwrap();
        let number = part[..digits].parse().unwrap();
        match &part[digits..] {
            "ms" => ms(number),
            "s" => ms(number * 1_000),
            unit => panic!("{unit} in {text}"),
        }
    });
    parts.sum()
}

#[tokio::test]
async fn a_wait_that_is_over_says_how_long_it_has_been_held_by_now() {
    let tenure = memory();
    let _holder = tenure.mutex("a").owner("web-1").acquire().await.unwrap();
    let error = soon(tenure.mutex("a").wait(ms(300)).acquire()).await.unwrap_err();
    let text = error.to_string();
    assert!(spoken_time(&text, "held by web-1 for ") >= ms(300), "{text}");
}

#[tokio::test]
async fn a_wait_that_is_over_describes_the_line_as_it_is_by_now() {
    let tenure = memory();
    let first = tenure.mutex("a").owner("first").acquire().await.unwrap();
    let second = waiting(tenure.mutex("a").owner("second").join());
    let third = tokio::spawn(tenure.mutex("a").wait(ms(300)).join());
    drop(first);
    let second = now(second).unwrap();
    let text = soon(third).await.unwrap().unwrap_err().to_string();
    assert!(text.contains("held by second"), "{text}");
    assert!(text.contains(&format!("fence {}", second.fence())), "{text}");
    assert!(!text.contains("ahead in line"), "nobody is ahead any more: {text}");
}

#[test]
fn a_claim_that_does_not_wait_hears_who_holds_it() {
    let tenure = memory();
    let holder = now(tenure.mutex("a").owner("web-1").acquire()).unwrap();
    let error = now(tenure.mutex("a").wait(Duration::ZERO).acquire()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::WaitOver);
    let text = error.to_string();
    let holds = format!("fence {}", holder.fence());
    for part in ["did not wait", "held by web-1 for ", &holds, "not re-entrant"] {
        assert!(text.contains(part), "{part:?} is not in: {text}");
    }
    assert_eq!(view(&tenure, "a").waiters, []);
    drop(holder);
    assert!(now(tenure.mutex("a").wait(Duration::ZERO).acquire()).unwrap().is_live());
}

#[tokio::test]
async fn a_hold_of_somebody_else_is_not_called_re_entrant() {
    let engine = Arc::new(Memory::new());
    let (mine, theirs) = (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine));
    let _hold = theirs.mutex("a").acquire().await.unwrap();
    let error = soon(mine.mutex("a").wait(ms(20)).acquire()).await.unwrap_err();
    assert!(!error.to_string().contains("re-entrant"), "{error}");
}

#[tokio::test]
async fn short_waits_end_when_they_should_and_leave_nothing() {
    let tenure = memory();
    let _holder = tenure.mutex("a").acquire().await.unwrap();
    for round in 0..200 {
        let wait = ms([0, 1, 5][round % 3]);
        let asked = Instant::now();
        let error = soon(tenure.mutex("a").wait(wait).acquire()).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::WaitOver);
        assert!(asked.elapsed() >= wait, "{:?} of {wait:?}", asked.elapsed());
        assert_eq!(view(&tenure, "a").waiters, []);
    }
}

#[tokio::test]
async fn a_waiting_claim_is_served_when_the_holder_before_it_runs_out() {
    let tenure = memory();
    std::mem::forget(tenure.mutex("a").ttl(ms(100)).renew(false).acquire().await.unwrap());
    let line: Vec<_> = (0..5).map(|_| tokio::spawn(tenure.mutex("a").join())).collect();
    for waiter in line {
        drop(soon(waiter).await.unwrap().unwrap());
    }
}

/// The turn goes to a task that is stuck. When it has run out, the one behind it is served.
#[tokio::test]
async fn a_turn_that_nobody_takes_passes_on_when_it_has_run_out() {
    let tenure = memory();
    let holder = tenure.mutex("a").acquire().await.unwrap();
    let stuck = waiting(tenure.mutex("a").ttl(ms(60)).join());
    let behind = tokio::spawn(tenure.mutex("a").join());
    drop(holder);
    let behind = tokio::time::timeout(Duration::from_secs(5), behind).await;
    let behind = behind.expect("served within five seconds, which is 80 times the ttl");
    assert!(behind.unwrap().unwrap().is_live());
    drop(stuck);
}

/// The task was stuck when its turn came and when its wait ended. Nobody else wants the name, so it is not "held by
/// others": the engine's answer to one more request decides.
#[tokio::test]
async fn a_turn_that_came_within_the_wait_is_taken_after_it() {
    let engine = ControlledEngine::new();
    let (theirs, mine) =
        (Tenure::with_engine(engine.beside()), Tenure::with_engine(engine.clone()));
    let holder = theirs.mutex("a").acquire().await.unwrap();
    let Begun::Mine(work) = theirs.once("a").begin().await.unwrap() else {
        panic!("nobody ran it")
    };
    let lock = waiting(mine.mutex("a").ttl(ms(400)).wait(ms(50)).join());
    let mut once = Box::pin(mine.once("a").wait(ms(50)).begin());
    assert!(poll_once(&mut once).is_pending());
    holder.release().await.unwrap();
    work.undo().await.unwrap();
    // More than half of the ttl is over: both turns must be confirmed.
    std::thread::sleep(ms(250));
    engine.renew_late(1);
    assert!(soon(lock).await.unwrap().is_live());
    assert!(matches!(soon(once).await, Ok(Begun::Mine(_))));
}

/// The same with an engine that does not answer: that is the reason given, and the wait ends all the same.
#[tokio::test]
async fn a_turn_that_nobody_confirms_is_not_held_by_others() {
    let engine = ControlledEngine::new();
    let (theirs, mine) =
        (Tenure::with_engine(engine.beside()), Tenure::with_engine(engine.clone()));
    let Begun::Mine(work) = theirs.once("a").begin().await.unwrap() else {
        panic!("nobody ran it")
    };
    let mut once = Box::pin(mine.once("a").wait(ms(50)).begin());
    assert!(poll_once(&mut once).is_pending());
    work.undo().await.unwrap();
    engine.renew_late(u32::MAX);
    let error = soon(once).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().contains("the turn came"), "{error}");
}

#[tokio::test]
async fn a_claim_that_takes_its_turn_too_late_comes_back_by_its_ticket() {
    let tenure = memory();
    let holder = tenure.mutex("a").acquire().await.unwrap();
    let mut stuck = waiting(tenure.mutex("a").ttl(ms(60)).join());
    drop(holder);
    // Its turn runs out; nobody was behind it. Then somebody else holds, and another waits.
    tokio::time::sleep(ms(100)).await;
    let passing = tenure.mutex("a").try_acquire().await.unwrap().expect("that turn is over");
    let later = waiting(tenure.mutex("a").join());
    assert!(poll_once(&mut stuck).is_pending(), "its turn is gone");
    drop(passing);
    let served = now(stuck).unwrap();
    assert!(served.is_live());
    drop(served);
    assert!(now(later).unwrap().is_live());
}
