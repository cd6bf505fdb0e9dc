//! Clients that are gone, and what that costs the line if nobody hands over to them.

use std::sync::Arc;

use tenure::engine::{Claim, Engine, Fence, Leave, Left, Name, Space, SystemWorld, Verdict, World};
use tenure_testkit::servers::{Clock, Fsync, Redis};

use crate::redis_site::*;

const WRITE: u32 = 1 << 20;

/// A claim of an engine without a client above it: when it dies, nobody leaves the claim.
fn claim(name: &str, weight: u32, capacity: u32) -> Claim {
    let mut claim = Claim::new(Name::new(Space::Lock, name).unwrap(), SystemWorld.mint().unwrap());
    (claim.weight, claim.capacity) = (weight, capacity);
    claim
}

async fn stands(engine: &Arc<dyn Engine>, claim: &Claim) {
    let verdict = soon(engine.claim(claim)).await.unwrap();
    assert!(matches!(verdict, Verdict::Waiting(_)), "{verdict:?}");
}

async fn granted(engine: &Arc<dyn Engine>, claim: &Claim) -> Fence {
    match soon(engine.claim(claim)).await.unwrap() {
        Verdict::Granted(grant) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

/// Ends it, so that nobody listens for its claims any more.
async fn dies(server: &Redis, engine: Arc<dyn Engine>, listeners: i64) {
    drop(engine);
    until("its connection is closed", async || {
        let channels = server.command(&["PUBSUB", "CHANNELS"]).unwrap();
        channels.list().len() as i64 <= listeners
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_dead_writer_that_waits_holds_up_no_reader() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let lock = tenure.rwlock("x");
    let reads = lock.read().await.unwrap();
    let writer = engine(&server.url()).await;
    stands(&writer, &claim("x", WRITE, WRITE)).await;
    let before = tokio::spawn(tenure.rwlock("x").join_read());
    until_waiting(&tenure, "x", 2).await;
    dies(&server, writer, 1).await;
    // It is not shown as a waiter.
    until_waiting(&tenure, "x", 1).await;
    // The claim behind it finds out by itself, and a newcomer finds out at once.
    let began = now();
    let before = soon(before).await.unwrap().unwrap();
    assert!(now().since(began) < secs(10), "{:?}", now().since(began));
    let writer = engine(&server.url()).await;
    stands(&writer, &claim("x", WRITE, WRITE)).await;
    dies(&server, writer, 1).await;
    let at_once = soon(tenure.rwlock("x").try_read()).await.unwrap();
    assert!(at_once.is_some());
    drop((reads, before, at_once));
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_a_name_that_only_the_dead_wait_for_is_free() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let other = engine(&server.url()).await;
    stands(&other, &claim("x", 1, 1)).await;
    until_waiting(&tenure, "x", 1).await;
    dies(&server, other, 1).await;
    until("the dead are not shown", async || {
        view(&tenure, "x").await.is_some_and(|view| view.waiters.is_empty())
    })
    .await;
    hold.release().await.unwrap();
    assert!(view(&tenure, "x").await.is_none());
}

/// The waiter that cannot be reached, and the one behind it, after the server has just started.
#[tokio::test(flavor = "multi_thread")]
async fn s26_a_release_in_the_first_second_of_a_server_leaves_no_name_free() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().aof(Fsync::Always).clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let (holder, lost) = (engine(&server.url()).await, engine(&server.url()).await);
    let held = claim("x", 1, 1);
    granted(&holder, &held).await;
    stands(&lost, &claim("x", 1, 1)).await;
    until_waiting(&tenure, "x", 1).await;
    let next = wait_for(&tenure, "x", secs(30));
    until_waiting(&tenure, "x", 2).await;
    drop(lost);
    server.kill().unwrap();
    server.restart().unwrap();
    // The waiter is back; the server's first second lasts until the release is done.
    until("it listens again", async || {
        let channels = server.command(&["PUBSUB", "CHANNELS"]).unwrap();
        channels.list().len() == 2 && soon(holder.health()).await.is_ok()
    })
    .await;
    let part = keys(&server).into_iter().filter(|key| key.ends_with("}:p"));
    for part in part {
        let up = (clock.unix_millis() + 900).to_string();
        server.command(&["HSET", &part, "at", &up]).unwrap();
    }
    let released = now();
    let left = soon(holder.leave(&Leave::new(held.name.clone(), held.id))).await.unwrap();
    assert_eq!(left, Left::Released);
    drop(served(next).await);
    let waited = now().since(released);
    assert!(waited > ms(500), "the first second was over: {waited:?}");
    assert!(waited < secs(10), "{waited:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s46_databases_that_are_swapped_and_swapped_back_make_no_fence_fall() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let (ours, (theirs, _taker)) =
        (engine(&server.url()).await, engine_with_taker(&server.url()).await);
    let (first, second) = (claim("x", 1, 1), claim("x", 1, 1));
    let before = granted(&ours, &first).await;
    stands(&theirs, &second).await;
    server.command(&["SWAPDB", "0", "1"]).unwrap();
    let elsewhere = tenure.mutex("x").acquire().await.unwrap();
    let meanwhile = elsewhere.fence();
    assert!(meanwhile > before);
    elsewhere.release().await.unwrap();
    server.command(&["SWAPDB", "0", "1"]).unwrap();
    // A process that leaves has not seen the numbers that were given meanwhile.
    let left = soon(ours.leave(&Leave::new(first.name.clone(), first.id))).await.unwrap();
    assert_eq!(left, Left::Released);
    until_held(&tenure, "x").await;
    let after = holders(&tenure, "x").await[0];
    assert!(after > meanwhile.get(), "{after} after {meanwhile}");
}

/// It has not seen the numbers that were given meanwhile, and claims a free name.
#[tokio::test(flavor = "multi_thread")]
async fn s46_databases_that_are_swapped_and_swapped_back_make_no_fence_fall_for_a_newcomer() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let before = tenure.mutex("x").acquire().await.unwrap().fence();
    server.command(&["SWAPDB", "0", "1"]).unwrap();
    let meanwhile = tenure.mutex("x").acquire().await.unwrap().fence();
    assert!(meanwhile > before);
    server.command(&["SWAPDB", "0", "1"]).unwrap();
    until_free(&tenure, "x").await;
    let newcomer = connect(&server.url()).await;
    let after = newcomer.mutex("x").acquire().await.unwrap().fence();
    assert!(after > meanwhile, "{after} after {meanwhile}");
}
