//! What names leave behind in memory: nothing.
#![allow(unsafe_code, reason = "an allocator that counts is one")]

mod fixtures;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicIsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use fixtures::{memory, now, waiting};
use tenure::Tenure;

struct Counting;

static LIVE: AtomicIsize = AtomicIsize::new(0);

// SAFETY: every call goes to the system's allocator as it came; counting touches no memory of it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the contract of `dealloc`, which is the same.
        unsafe { System.dealloc(at, layout) }
    }

    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        LIVE.fetch_add(size as isize - layout.size() as isize, Relaxed);
        // SAFETY: the caller keeps the contract of `realloc`, which is the same.
        unsafe { System.realloc(at, layout, size) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Bytes are counted for the whole process, so the tests run one by one.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection whose watchdog is running, and how many bytes are live then.
fn begun() -> (Tenure, isize) {
    let tenure = memory();
    for n in 0..1_000 {
        pass(&tenure, n);
    }
    // The watchdog allocates when its thread begins.
    std::thread::sleep(fixtures::ms(50));
    (tenure, LIVE.load(Relaxed))
}

fn pass(tenure: &Tenure, n: u32) {
    drop(now(tenure.mutex(format!("name-{n}")).acquire()).expect("it is free"));
}

fn kept_since(start: isize) -> isize {
    LIVE.load(Relaxed) - start
}

#[test]
fn a_million_names_used_once_leave_nothing() {
    let _alone = alone();
    let (tenure, start) = begun();
    for n in 0..1_000_000 {
        pass(&tenure, n);
    }
    assert!(kept_since(start) < 64 << 10, "{} bytes", kept_since(start));
}

#[test]
fn a_hundred_thousand_names_held_at_once_leave_little() {
    let _alone = alone();
    let (tenure, start) = begun();
    let name = |n| format!("name-{n}");
    let holds: Vec<_> =
        (0..100_000).map(|n| now(tenure.mutex(name(n)).acquire()).unwrap()).collect();
    let most = kept_since(start);
    drop(holds);
    assert!(kept_since(start) < 1 << 20, "{} of {most} bytes", kept_since(start));
}

#[test]
fn a_hundred_thousand_waiters_for_one_name_leave_little() {
    let _alone = alone();
    let (tenure, start) = begun();
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    let line: Vec<_> = (0..100_000).map(|_| waiting(tenure.mutex("a").join())).collect();
    let most = kept_since(start);
    drop((line, holder));
    assert!(kept_since(start) < 1 << 20, "{} of {most} bytes", kept_since(start));
}

#[test]
fn a_hundred_thousand_readers_of_one_name_leave_little() {
    let _alone = alone();
    let (tenure, start) = begun();
    let readers: Vec<_> = (0..100_000).map(|_| now(tenure.rwlock("a").read()).unwrap()).collect();
    let most = kept_since(start);
    drop(readers);
    assert!(kept_since(start) < 1 << 20, "{} of {most} bytes", kept_since(start));
}

#[test]
fn refused_claims_leave_nothing() {
    let _alone = alone();
    let (tenure, start) = begun();
    let holder = now(tenure.mutex("a").acquire()).unwrap();
    for _ in 0..20_000 {
        assert!(now(tenure.mutex("a").try_acquire()).unwrap().is_none());
        assert!(now(tenure.mutex("a").wait(fixtures::ms(0)).acquire()).is_err());
        assert!(now(tenure.mutex("a").max_waiters(0).acquire()).is_err());
        assert!(now(tenure.semaphore("a", 2).acquire()).is_err());
        assert!(now(tenure.mutex("").acquire()).is_err());
    }
    assert!(kept_since(start) < 64 << 10, "{} bytes", kept_since(start));
    drop(holder);
}

#[test]
fn holds_are_never_evicted_by_passing_names() {
    let _alone = alone();
    let tenure = memory();
    let holds: Vec<_> =
        (0..10).map(|n| now(tenure.mutex(format!("held-{n}")).acquire()).unwrap()).collect();
    let waiter = waiting(tenure.mutex("held-0").join());
    for n in 0..1_000_000 {
        pass(&tenure, n);
    }
    for hold in &holds {
        assert!(hold.is_live());
        assert!(now(tenure.mutex(hold.name()).try_acquire()).unwrap().is_none());
    }
    drop(holds);
    assert!(now(waiter).unwrap().is_live());
}

#[test]
fn a_tenure_that_is_gone_leaves_nothing() {
    let _alone = alone();
    begun();
    let start = LIVE.load(Relaxed);
    for _ in 0..20 {
        let (tenure, _) = begun();
        let hold = now(tenure.mutex("a").acquire()).unwrap();
        drop((tenure, hold));
    }
    fixtures::until("the memory of twenty connections is free", || kept_since(start) < 64 << 10);
}
