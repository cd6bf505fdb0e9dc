//! Processes that are killed: this test program, started again as another process.

use tenure::engine::{Claim, Name, Space, SystemWorld, Verdict, World};
use tenure_testkit::servers::{Clock, Redis};

use crate::redis_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn s26_the_line_passes_over_a_waiter_that_was_killed() {
    let server = server();
    let tenure = connect(&server.url()).await;
    for round in 0..2 {
        let name = format!("x{round}");
        let hold = tenure.mutex(&name).acquire().await.unwrap();
        let mut other = ChildProcess::on(&server).await;
        other.tell(&format!("claim a {name} 30000"));
        until_waiting(&tenure, &name, 1).await;
        let next = wait_for(&tenure, &name, secs(30));
        until_waiting(&tenure, &name, 2).await;
        other.kill();
        // A server that has just come up passes over nobody.
        pause(ms(1100)).await;
        hold.release().await.unwrap();
        // Not only after the first life of an untaken turn, which is two seconds.
        drop(within(ms(1500), next).await.unwrap().unwrap());
    }
}

/// A waiter at the head whose weight does not fit is handed nothing: the claims behind it must find out that it is dead.
#[tokio::test(flavor = "multi_thread")]
async fn s26_a_waiter_for_many_units_that_was_killed_holds_up_nobody() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let units = || tenure.semaphore("x", 4);
    let held = units().acquire_many(2).await.unwrap();
    let mut wide = ChildProcess::on(&server).await;
    wide.tell("units a x 4 4 30000");
    until_waiting(&tenure, "x", 1).await;
    let behind = [(); 2].map(|()| tokio::spawn(units().join()));
    until_waiting(&tenure, "x", 3).await;
    assert!(
        units().try_acquire().await.unwrap().is_none(),
        "it waits for its turn, and comes first"
    );
    wide.kill();
    // The server knows once it has seen that the connection is closed.
    until_waiting(&tenure, "x", 2).await;
    let asked = now();
    // The next claim finds out, and serves the waiters; then there are none left.
    let newcomer = soon(units().try_acquire()).await.unwrap();
    assert!(newcomer.is_none(), "those who were there before it come first");
    let mut served = Vec::new();
    for waiter in behind {
        served.push(within(secs(10), waiter).await.unwrap().unwrap());
    }
    let took = now().since(asked);
    println!("units behind a dead waiter were taken after {took:?}");
    // Not only when they would have looked by themselves, which is after two seconds.
    assert!(took < ms(1500), "{took:?}");
    drop((held, served));
}

/// The same, and nobody else asks.
#[tokio::test(flavor = "multi_thread")]
async fn s26_those_behind_a_dead_waiter_find_that_out_by_themselves() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let units = || tenure.semaphore("x", 4);
    let held = units().acquire_many(2).await.unwrap();
    let mut wide = ChildProcess::on(&server).await;
    wide.tell("units a x 4 4 30000");
    until_waiting(&tenure, "x", 1).await;
    let behind = [(); 2].map(|()| tokio::spawn(units().join()));
    until_waiting(&tenure, "x", 3).await;
    wide.kill();
    let killed = now();
    for waiter in behind {
        drop(within(secs(12), waiter).await.unwrap().unwrap());
    }
    println!("units behind a dead waiter were taken after {:?}", now().since(killed));
    drop(held);
}

#[tokio::test(flavor = "multi_thread")]
async fn s26_the_line_moves_on_even_if_the_server_has_just_come_up() {
    let server = server();
    let (tenure, other) = (connect(&server.url()).await, connect(&server.url()).await);
    // An engine without a client above it: nobody leaves its claims when it dies.
    let dies = engine(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let name = Name::new(Space::Lock, "x").unwrap();
    let claim = Claim::new(name, SystemWorld.mint().unwrap());
    assert!(matches!(dies.claim(&claim).await.unwrap(), Verdict::Waiting(_)));
    let next = wait_for(&other, "x", secs(30));
    until_waiting(&tenure, "x", 2).await;
    drop(dies);
    pause(ms(50)).await;
    // No waiter is skipped in the first second, so that returning clients keep their places.
    hold.release().await.unwrap();
    drop(within(secs(6), next).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s39_nothing_is_left_of_processes_that_were_killed() {
    let clock = Clock::new().unwrap();
    let server = Redis::build().clock(&clock).start().unwrap();
    let tenure = connect(&server.url()).await;
    let mut others = Vec::new();
    for name in ["x", "x", "y"] {
        let mut other = ChildProcess::on(&server).await;
        other.tell(&format!("claim a {name} 1000"));
        until_held(&tenure, name).await;
        others.push(other);
    }
    until_waiting(&tenure, "x", 1).await;
    drop(others);
    assert!(!keys_of_names(&server).is_empty());
    // Places last one minute, and keys less than two.
    clock.advance(120_000).unwrap();
    until("the keys are gone", async || keys_of_names(&server).is_empty()).await;
    assert!(keys(&server).len() <= 2, "one key for each partition that was used");
    for name in ["x", "y"] {
        assert!(tenure.mutex(name).try_acquire().await.unwrap().is_some());
    }
}
