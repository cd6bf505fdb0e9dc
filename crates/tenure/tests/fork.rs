//! After a fork the child has a copy of everything, and owns none of it.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]
#![allow(unsafe_code, reason = "there is no safe fork")]

mod fixtures;

use std::collections::HashSet;
use std::io::{Read, Write, pipe};
use std::sync::mpsc::{self, TryRecvError};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::thread;

use fixtures::controlled_engine::ControlledEngine;
use fixtures::{is_free, memory, ms, now, poll_once, waiting};
use tenure::engine::{SystemWorld, World};
use tenure::{Error, ErrorKind, Fence, Released, Result, Tenure};

/// A fork copies one thread, whatever state the others are in, so only one test runs at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `inside` in a forked child, and returns what it wrote. The child must end by itself, successfully and soon.
fn forked(inside: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    let (mut reader, mut writer) = pipe().unwrap();
    // SAFETY: the child runs `inside` and ends with `_exit`; it never returns into the test harness,
    // and touches no lock that another thread may hold: the tests run one by one.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: a call without pointers. A child that hangs is ended by its alarm.
        unsafe { libc::alarm(10) };
        let wrote = std::panic::catch_unwind(std::panic::AssertUnwindSafe(inside))
            .is_ok_and(|said| writer.write_all(&said).is_ok());
        // SAFETY: a call without pointers. Nothing of the parent's is run or flushed at the exit.
        unsafe { libc::_exit(if wrote { 0 } else { 1 }) };
    }
    drop(writer);
    let mut said = Vec::new();
    reader.read_to_end(&mut said).unwrap();
    let mut status = 0;
    // SAFETY: the child is this function's own and `status` lives until the call returns.
    let ended = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child failed or hung");
    said
}

fn is_closed<T>(answer: Result<T>) -> u8 {
    u8::from(answer.is_err_and(|error: Error| error.kind() == ErrorKind::Closed))
}

#[test]
fn every_call_in_the_child_fails_with_closed() {
    let _alone = alone();
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    let said = forked(|| {
        vec![
            is_closed(now(tenure.mutex("b").acquire())),
            is_closed(now(tenure.mutex("b").try_acquire())),
            is_closed(now(tenure.mutex("b").join())),
            is_closed(now(tenure.semaphore("b", 2).acquire())),
            is_closed(now(tenure.semaphore("b", 2).resize(3))),
            is_closed(now(tenure.rwlock("b").read())),
            is_closed(now(tenure.all(["b", "c"]).acquire())),
            is_closed(now(tenure.inspect("a"))),
            is_closed(now(tenure.list(""))),
            is_closed(now(tenure.health())),
            is_closed(now(tenure.break_hold("a", Fence::new(1), "x"))),
            is_closed(now(hold.extend(ms(60_000)))),
            is_closed(now(tenure.mutex("b").run(async |_| ()))),
        ]
    });
    assert_eq!(said, [1; 13], "by call");
    assert!(hold.is_live(), "and the parent goes on");
    assert_eq!(now(hold.release()).unwrap(), Released::InTime);
}

/// The lines of `memory:` are copied too, so what the child did can be seen in its copy.
#[test]
fn what_is_dropped_or_released_in_the_child_is_not_left() {
    let _alone = alone();
    let engine = ControlledEngine::new();
    let tenure = Tenure::with_engine(engine.clone());
    let mut held = ["a", "b"].map(|name| Some(now(tenure.mutex(name).acquire()).unwrap()));
    let mut both = Some(now(tenure.all(["c", "d"]).acquire()).unwrap());
    let mut waiter = Some(waiting(tenure.mutex("a").join()));
    let said = forked(|| {
        drop((held[0].take(), both.take(), waiter.take()));
        let closed = is_closed(now(held[1].take().unwrap().release()));
        vec![closed, engine.leaves() as u8]
    });
    assert_eq!(said, [1, 0], "release is closed, nobody has left");
    for name in ["a", "b", "c", "d"] {
        assert!(!is_free(&tenure, name), "{name} was given away by the child");
    }
    let [first, second] = held.map(|hold| hold.unwrap());
    assert!(first.is_live() && second.is_live() && both.unwrap().is_live());
    drop(first);
    assert!(now(waiter.unwrap()).unwrap().is_live(), "its place was the parent's too");
}

/// The parent holds; if both believed that they hold, both would work.
#[test]
fn a_hold_is_not_live_in_the_child() {
    let _alone = alone();
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    let said = forked(|| {
        let lost = poll_once(&mut hold.lost()).is_ready();
        vec![u8::from(hold.is_live()), u8::from(hold.remaining().is_zero()), u8::from(lost)]
    });
    assert_eq!(said, [0, 1, 1], "live, nothing remains, lost");
    assert!(hold.is_live());
}

/// Nobody in the child would ever wake it.
#[test]
fn a_waiting_claim_is_closed_in_the_child() {
    let _alone = alone();
    let tenure = memory();
    let _hold = now(tenure.mutex("a").acquire()).unwrap();
    let mut waiter = waiting(tenure.mutex("a").join());
    let said = forked(|| match poll_once(&mut waiter) {
        Poll::Ready(answer) => vec![is_closed(answer)],
        Poll::Pending => vec![2],
    });
    assert_eq!(said, [1], "2 is: it goes on waiting");
    assert!(poll_once(&mut waiter).is_pending(), "and the parent goes on waiting");
}

#[test]
fn a_child_that_drops_everything_does_not_disturb_the_watchdog() {
    let _alone = alone();
    let tenure = memory();
    let hold = now(tenure.mutex("a").ttl(ms(1_000)).acquire()).unwrap();
    let (mut tenure, mut hold) = (Some(tenure), Some(hold));
    let said = forked(|| {
        drop(hold.take());
        now(tenure.as_ref().unwrap().close());
        drop(tenure.take());
        vec![7]
    });
    assert_eq!(said, [7]);
    let (tenure, hold) = (tenure.unwrap(), hold.unwrap());
    // Twice the ttl.
    thread::sleep(ms(2_000));
    assert!(hold.is_live() && !is_free(&tenure, "a"));
    assert_eq!(now(hold.release()).unwrap(), Released::InTime);
}

#[test]
fn a_child_connects_for_itself() {
    let _alone = alone();
    let tenure = memory();
    let hold = now(tenure.mutex("a").acquire()).unwrap();
    let said = forked(|| {
        let own = memory();
        let first = now(own.mutex("a").ttl(ms(1_000)).acquire()).unwrap();
        // Its watchdog is a thread of the child: the hold outlives its ttl.
        thread::sleep(ms(1_500));
        let mut second = Box::pin(own.mutex("a").acquire());
        let waits = poll_once(&mut second).is_pending();
        let lives = first.is_live();
        drop(first);
        vec![u8::from(waits), u8::from(lives), u8::from(now(second).is_ok())]
    });
    assert_eq!(said, [1; 3]);
    assert!(hold.is_live());
}

#[test]
fn parent_and_child_never_mint_the_same_id() {
    let _alone = alone();
    let mint = || -> Vec<[u8; 16]> {
        (0..100).map(|_| SystemWorld.mint().expect("random bytes").to_bytes()).collect()
    };
    let before = mint();
    let child = forked(|| mint().concat());
    let second_child = forked(|| mint().concat());
    let parent = mint();
    let children = child.chunks(16).chain(second_child.chunks(16));
    let all = before.iter().chain(&parent).map(|id| &id[..]).chain(children);
    let different: HashSet<_> = all.collect();
    assert_eq!(different.len(), 400);
}

/// Whatever locks the other threads have at the fork, the child needs none of them.
#[test]
fn a_child_in_a_storm_of_claims_ends_by_itself() {
    let _alone = alone();
    let tenure = memory();
    let mut kept = Some(now(tenure.mutex("b").acquire()).unwrap());
    let (go_on, over) = mpsc::channel::<()>();
    let storm = thread::spawn({
        let tenure = tenure.clone();
        move || {
            while over.try_recv() == Err(TryRecvError::Empty) {
                drop(now(tenure.mutex("a").acquire()));
            }
        }
    });
    for _ in 0..50 {
        let said = forked(|| {
            drop(kept.take());
            vec![is_closed(now(tenure.mutex("a").acquire()))]
        });
        assert_eq!(said, [1]);
    }
    drop(go_on);
    storm.join().unwrap();
    assert!(kept.unwrap().is_live());
}
