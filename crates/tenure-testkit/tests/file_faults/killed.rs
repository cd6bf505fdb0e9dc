//! Processes that are killed: the next one is served at once, rather than when a ttl is over.

use std::future::Future;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Wake, Waker};

use crate::file_site::*;

/// Far longer than a test waits: nothing may depend on this time being over.
const TTL: &str = "600000";

#[tokio::test(flavor = "multi_thread")]
async fn s111_the_next_is_served_at_once_when_a_holder_is_killed() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    for round in 0..5 {
        let name = format!("x{round}");
        let mut holder = ChildProcess::on(&site).await;
        let mut waiter = ChildProcess::on(&site).await;
        holder.tell(&format!("claim a {name} {TTL}"));
        let fence = holder.hears("held a").await.fence();
        waiter.tell(&format!("claim b {name} {TTL}"));
        until_waiting(&tenure, &name, 1).await;
        // Its zombie stays until the end: nobody reaps it.
        let killed = holder.kill();
        let held = waiter.hears_within("held b", AT_ONCE).await;
        assert!(held.fence() > fence);
        assert!(killed.until(held.at()) < AT_ONCE, "{:?}", killed.until(held.at()));
        assert_eq!(holder.state(), 'Z');
    }
    site.is_sound();
}

#[tokio::test(flavor = "multi_thread")]
async fn s111_whatever_comes_first_finds_that_a_holder_was_killed() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut holder = ChildProcess::on(&site).await;
    for (tag, name) in [("a", "x"), ("b", "y"), ("c", "z")] {
        holder.tell(&format!("claim {tag} {name} {TTL}"));
        holder.hears(&format!("held {tag}")).await;
    }
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_none());
    holder.kill();
    holder.reap();
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some(), "by a try");
    assert_eq!(view(&tenure, "y").await, None, "by a look");
    drop(within(AT_ONCE, tenure.mutex("z").acquire()).await.unwrap());
}

/// A try that comes while the worker thread is still busy with the previous one: the holder, which the thread
/// watches, was killed in between.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_try_finds_a_holder_that_was_killed_just_now() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut holder = ChildProcess::on(&site).await;
    holder.tell(&format!("claim a x {TTL}"));
    holder.hears("held a").await;
    let (worker, go_on) = Busy::new();
    let mut first = pin!(tenure.mutex("x").try_acquire());
    let waker = Waker::from(worker.clone());
    // This keeps it from being answered before it is asked for.
    let lock = site.lock_writers();
    assert!(first.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(lock);
    until("the worker has answered", async || worker.answered.load(Ordering::SeqCst)).await;
    holder.kill();
    holder.reap();
    let mut second = pin!(tenure.mutex("x").try_acquire());
    assert!(second.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    go_on.send(()).unwrap();
    assert!(soon(second).await.unwrap().is_some());
    assert!(soon(first).await.unwrap().is_none());
}

/// Keeps the thread that brings an answer until it may continue.
struct Busy {
    answered: AtomicBool,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Busy {
    fn new() -> (Arc<Busy>, mpsc::Sender<()>) {
        let (sender, go_on) = mpsc::channel();
        (Arc::new(Busy { answered: AtomicBool::new(false), go_on: Mutex::new(go_on) }), sender)
    }
}

impl Wake for Busy {
    fn wake(self: Arc<Self>) {
        self.answered.store(true, Ordering::SeqCst);
        let _ = self.go_on.lock().unwrap().recv();
    }
}

/// A holds, B to E wait; two of them are killed at once, in every order, and each time the first
/// of those that live is served.
#[tokio::test(flavor = "multi_thread")]
async fn s111_the_line_moves_on_whichever_of_its_processes_is_killed() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let pairs = (0..5).flat_map(|one| (0..5).map(move |two| (one, two)));
    for (round, (one, two)) in pairs.filter(|(one, two)| one != two).enumerate() {
        let name = format!("x{round}");
        let mut line = Vec::new();
        for place in 0..5 {
            let mut other = ChildProcess::on(&site).await;
            other.tell(&format!("claim t {name} {TTL}"));
            match place {
                0 => drop(other.hears("held t").await),
                _ => until_waiting(&tenure, &name, place).await,
            }
            line.push(Some(other));
        }
        let mut gone = [line[one].take().unwrap(), line[two].take().unwrap()];
        for other in &mut gone {
            other.kill();
        }
        let mut last = 0;
        for (place, other) in line.iter_mut().enumerate() {
            let Some(mut other) = other.take() else { continue };
            let held = other.hears_within("held t", AT_ONCE).await;
            assert!(held.fence() > last, "{place} of {one} and {two}");
            last = held.fence();
            // By release and by death alternately.
            if place % 2 == 0 {
                other.tell("release t");
                other.hears("released t").await;
            } else {
                other.kill();
            }
        }
        assert_eq!(view(&tenure, &name).await, None);
    }
    site.is_sound();
}

/// A client with a guard is gone when both processes are, in either order.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_guard_keeps_what_is_held_until_it_ends_too() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    for guard_first in [false, true] {
        let name = format!("x{guard_first}");
        let mut guard = ChildProcess::start(&[]).await;
        let mut holder = ChildProcess::at(&format!("{}?guard={}", site.url(), guard.pid())).await;
        holder.tell(&format!("claim a {name} {TTL}"));
        holder.hears("held a").await;
        let next = wait_for(&tenure, &name, secs(600));
        until_waiting(&tenure, &name, 1).await;
        let (first, second) = match guard_first {
            true => (&mut guard, &mut holder),
            false => (&mut holder, &mut guard),
        };
        first.kill();
        first.reap();
        pause(ms(300)).await;
        assert!(!next.is_finished(), "one of them lives");
        assert_eq!(holders(&tenure, &name).await.len(), 1);
        second.kill();
        drop(within(AT_ONCE, next).await.unwrap().unwrap());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s111_a_guard_that_is_not_a_process_is_refused() {
    let site = FileSite::new();
    let mut gone = ChildProcess::start(&[]).await;
    gone.kill();
    gone.reap();
    for guard in [gone.pid().to_string(), "me".to_owned(), "-1".to_owned()] {
        let connected = tenure::Tenure::connect(&format!("{}?guard={guard}", site.url())).await;
        let error = connected.unwrap_err();
        assert!(!error.is_retryable(), "{guard}: {error}");
    }
}

/// The pid now belongs to another process.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_reused_pid_is_not_taken_for_the_holder() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut holder = ChildProcess::on(&site).await;
    holder.tell(&format!("claim a x {TTL}"));
    holder.hears("held a").await;
    holder.kill();
    holder.reap();
    let (own, was) = (std::process::id(), holder.pid());
    let changed = site.sql().execute("UPDATE process SET pid = ?1 WHERE pid = ?2", [own, was]);
    assert_eq!(changed.unwrap(), 1);
    assert!(tenure.mutex("x").try_acquire().await.unwrap().is_some());
}

/// It was killed after it had given the next process its turn, and before it could announce it.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_turn_that_was_given_but_not_announced_is_found() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let (mut holder, mut waiter) = (ChildProcess::on(&site).await, ChildProcess::on(&site).await);
    holder.tell(&format!("claim a x {TTL}"));
    holder.hears("held a").await;
    waiter.tell(&format!("claim b x {TTL}"));
    until_waiting(&tenure, "x", 1).await;
    {
        let _gate = site.lock_writers();
        let db = site.sql();
        db.execute_batch("DELETE FROM claim WHERE state = 2; UPDATE meta SET number = number + 1")
            .unwrap();
        let grant = "UPDATE claim SET state = 2, first_life = 1, since = ?1, until = ?2,
            fence = (SELECT number FROM meta)";
        let now = now().as_nanos() as i64;
        db.execute(grant, [now, now + 2_000_000_000]).unwrap();
        db.execute_batch("UPDATE name SET held = 1, waiting = 0, quiet_until = 0").unwrap();
    }
    holder.kill();
    waiter.hears_within("held b", AT_ONCE).await;
}

/// A claim that asks for more than is free waits at the front, and its process is killed.
#[tokio::test(flavor = "multi_thread")]
async fn s111_a_heavy_head_that_was_killed_is_in_nobodys_way() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let _one = tenure.semaphore("x", 3).acquire().await.unwrap();
    let mut heavy = ChildProcess::on(&site).await;
    heavy.tell(&format!("units a x 3 3 {TTL}"));
    until_waiting(&tenure, "x", 1).await;
    assert!(tenure.semaphore("x", 3).try_acquire().await.unwrap().is_none());
    let waits = tokio::spawn(tenure.semaphore("x", 3).ttl(secs(600)).join());
    until_waiting(&tenure, "x", 2).await;
    heavy.kill();
    let unit = within(AT_ONCE, waits).await.unwrap().unwrap();
    drop(unit);
    let mut heavy = ChildProcess::on(&site).await;
    heavy.tell(&format!("units a x 3 3 {TTL}"));
    until_waiting(&tenure, "x", 1).await;
    heavy.kill();
    heavy.reap();
    // Nobody waits behind it, so nobody has noticed.
    assert!(tenure.semaphore("x", 3).try_acquire().await.unwrap().is_some());
}

/// Hand-overs past a killed head, timed from the release.
#[tokio::test(flavor = "multi_thread")]
async fn s26_the_line_passes_over_a_head_that_was_killed() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let (mut next, mut worst) = (ChildProcess::on(&site).await, ms(0));
    for round in 0..20 {
        let (name, tag) = (format!("x{round}"), format!("t{round}"));
        let hold = tenure.mutex(&name).ttl(secs(600)).acquire().await.unwrap();
        let mut head = ChildProcess::on(&site).await;
        head.tell(&format!("claim a {name} {TTL}"));
        until_waiting(&tenure, &name, 1).await;
        next.tell(&format!("claim {tag} {name} {TTL}"));
        until_waiting(&tenure, &name, 2).await;
        head.kill();
        let released = now();
        hold.release().await.unwrap();
        let held = next.hears_within(&format!("held {tag}"), AT_ONCE).await;
        worst = worst.max(released.until(held.at()));
    }
    // 50 ms on a machine that has nothing else to do; far below the first life of a turn.
    assert!(worst < ms(1500), "{worst:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s39_nothing_is_left_of_processes_that_were_killed() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut others = Vec::new();
    for name in ["x", "x", "y", "z"] {
        let mut other = ChildProcess::on(&site).await;
        other.tell(&format!("claim a {name} {TTL}"));
        others.push(other);
    }
    until("all are there", async || site.number("SELECT count(*) FROM claim") == 4).await;
    for other in &mut others {
        other.kill();
        other.reap();
    }
    // As if the file had last been swept a minute ago.
    site.sql().execute("UPDATE meta SET swept = 0", []).unwrap();
    drop(tenure);
    let tenure = site.connect().await;
    for table in ["claim", "process", "name", "trace"] {
        assert_eq!(site.number(&format!("SELECT count(*) FROM {table}")), 0, "{table}");
    }
    let left = std::fs::read_dir(site.beside("-sockets")).unwrap().count();
    assert_eq!(left, 0, "sockets");
    assert_eq!(tenure.list("").await.unwrap().len(), 0);
}
