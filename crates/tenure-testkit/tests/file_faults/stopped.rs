//! Processes that are stopped: holders, waiters, and processes in the middle of a step.

use tenure::{Ended, ErrorKind, Released};

use crate::file_site::*;

/// More messages than a socket holds, for a process that does not read.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_does_not_read_holds_up_nobody() {
    let site = FileSite::new();
    let tenure = site.connect().await;
    let mut other = ChildProcess::on(&site).await;
    let names: Vec<_> = (0..60).map(|n| format!("x{n}")).collect();
    let mut holds = Vec::new();
    for name in &names {
        holds.push(tenure.mutex(name).ttl(secs(600)).acquire().await.unwrap());
        other.tell(&format!("claim {name} {name} 600000"));
    }
    until("all are there", async || site.number("SELECT count(*) FROM claim") == 120).await;
    other.stop();
    for hold in holds {
        assert_eq!(within(AT_ONCE, hold.release()).await.unwrap(), Released::InTime);
    }
    drop(within(AT_ONCE, tenure.mutex("y").acquire()).await.unwrap());
    other.go_on();
    for name in &names {
        other.hears(&format!("held {name}")).await;
    }
}

/// A process is stopped while it has the writer lock: nobody hangs, everybody is told which process it is, no hold is
/// good for longer than its holder can be sure of, and then everything continues.
#[tokio::test(flavor = "multi_thread")]
async fn a_process_stopped_with_the_writer_lock_is_named_and_nobody_hangs() {
    let site = FileSite::new();
    let (ours, theirs) = (site.connect().await, site.connect().await);
    let short = ours.mutex("short").ttl(secs(2)).acquire().await.unwrap();
    let long = ours.mutex("long").ttl(secs(60)).acquire().await.unwrap();
    let next = wait_for(&theirs, "short", secs(60));
    until_waiting(&ours, "short", 1).await;
    let behind = wait_for(&theirs, "long", secs(60));
    until_waiting(&ours, "long", 1).await;
    let lock = site.lock_writers();
    let began = now();
    // Nor can anybody be reached, or come back before the lock is free.
    std::fs::remove_dir_all(site.beside("-sockets")).unwrap();
    // Several at once, and some later: none waits until the others give up.
    let mut asks = Vec::new();
    for number in 0..40 {
        let mutex = ours.mutex(format!("y{number}"));
        asks.push(tokio::spawn(async move {
            let began = now();
            (mutex.acquire().await.unwrap_err(), began.until(now()))
        }));
        if number == 20 {
            pause(ms(2500)).await;
        }
    }
    let ended = soon(short.lost()).await;
    let lost = now();
    assert_eq!(ended, Ended::Expired);
    for ask in asks {
        let (error, took) = soon(ask).await.unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
        let own = format!("process {} has had the writer lock", std::process::id());
        assert!(error.to_string().contains(&own), "{error}");
        assert!(took < secs(12), "after {took:?}");
    }
    assert!(began.until(now()) < secs(16), "they waited for each other");
    assert!(!next.is_finished());
    drop(lock);
    let next = served(next).await;
    assert!(lost < now() && next.is_live() && long.is_live());
    drop(within(AT_ONCE, ours.mutex("y").acquire()).await.unwrap());
    // By then they are back.
    pause(ms(1500)).await;
    assert_eq!(long.release().await.unwrap(), Released::InTime);
    drop(within(AT_ONCE, behind).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn processes_that_are_stopped_all_the_time_leave_everyone_else_running() {
    let site = FileSite::new();
    let mut others = Vec::new();
    for _ in 0..4 {
        let mut other = ChildProcess::on(&site).await;
        other.tell("storm 3 2 60000");
        others.push(other);
    }
    for round in 0..60 {
        let other = &others[round % 4];
        other.stop();
        pause(ms(10)).await;
        other.go_on();
    }
    for other in &mut others {
        other.tell("calm");
        let stormed = other.hears("stormed").await;
        assert!(stormed.number(1) > 10, "{stormed:?}");
        assert_eq!(other.all("failed").len(), 0, "{:?}", other.all("failed"));
    }
    site.is_sound();
}
