//! The watchdog's thread: it exists while there is something to watch, and no longer.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

mod fixtures;

use std::fs;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fixtures::{memory, ms, now, until};
use tenure::Tenure;
use tenure::engines::memory::Memory;

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
fn the_watchdog_stays_for_the_last_hold_and_not_for_observers() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let tenure = memory();
    let hold = now(tenure.mutex("a").ttl(ms(1_000)).acquire()).unwrap();
    let lost = hold.lost();
    drop(tenure);
    // Twice the ttl.
    std::thread::sleep(ms(2_000));
    assert!(hold.is_live() && watchdogs() == 1);
    drop(hold);
    until("the watchdog ends", || watchdogs() == 0);
    drop(lost);
}

#[test]
fn the_watchdog_stays_until_what_was_released_early_is_free() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let engine = Arc::new(Memory::new());
    let (tenure, other) = (Tenure::with_engine(engine.clone()), Tenure::with_engine(engine));
    let hold = now(tenure.mutex("a").ttl(ms(700)).hold_for(ms(1_200)).acquire()).unwrap();
    until("the thread has its name", || watchdogs() == 1);
    drop((hold, tenure));
    assert!(now(other.inspect("a")).unwrap().is_some(), "kept for a while");
    until("the watchdog ends", || watchdogs() == 0);
    assert_eq!(now(other.inspect("a")).unwrap(), None, "it ended before its work");
}

#[test]
fn the_watchdog_ends_even_if_a_hold_was_lost() {
    let _alone = alone();
    until("watchdogs of other tests end", || watchdogs() == 0);
    let tenure = memory();
    let hold = now(tenure.mutex("a").ttl(ms(60)).renew(false).acquire()).unwrap();
    until("it is lost", || !hold.is_live());
    drop((hold, tenure));
    until("the watchdog ends", || watchdogs() == 0);
}
