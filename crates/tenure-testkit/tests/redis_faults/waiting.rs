//! The line and the hand-over: lost pushes, lost connections, limits, and turns that others find.

use tenure::Ended;
use tenure::engine::{Claim, Leave, Left, Name, Space, SystemWorld, World};
use tenure_testkit::proxy::Direction;

use crate::redis_site::*;

#[tokio::test(flavor = "multi_thread")]
async fn s19_a_push_that_is_lost_costs_a_reconnect_and_no_more() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    for round in 0..12 {
        let hold = ours.mutex("x").acquire().await.unwrap();
        let (first, second) = (wait_for(&theirs, "x", secs(30)), wait_for(&ours, "x", secs(30)));
        until_waiting(&ours, "x", 2).await;
        let kill = || server.command(&["CLIENT", "KILL", "TYPE", "pubsub"]).unwrap();
        if round % 2 == 0 {
            kill();
            drop(hold);
        } else {
            drop(hold);
            kill();
        }
        let mut both = [Some(first), Some(second)];
        while both.iter().any(Option::is_some) {
            pause(ms(1)).await;
            for waiter in &mut both {
                if waiter.as_ref().is_some_and(|waiter| waiter.is_finished()) {
                    drop(served(waiter.take().unwrap()).await);
                }
            }
        }
    }
}

/// Its turn came and went while it could not be reached: it asks as soon as it can, rather than when it would have.
#[tokio::test(flavor = "multi_thread")]
async fn s19_a_waiter_whose_connection_was_lost_asks_as_soon_as_it_has_another() {
    let server = server();
    let proxy = proxy(&server);
    let (ours, theirs) = (connect(&server.url()).await, connect(&through(&proxy, "")).await);
    let hold = ours.mutex("x").acquire().await.unwrap();
    let waiter = wait_for(&theirs, "x", secs(30));
    until_waiting(&ours, "x", 1).await;
    // By then it has looked for the first time; on its own it asks again after twenty seconds.
    pause(LOOKED).await;
    proxy.refuse().unwrap();
    proxy.reset();
    until("it cannot be reached", async || {
        view(&ours, "x").await.is_some_and(|view| view.waiters.is_empty())
    })
    .await;
    hold.release().await.unwrap();
    assert!(view(&ours, "x").await.is_none(), "nobody could be told");
    proxy.pass().unwrap();
    drop(within(secs(8), waiter).await.unwrap().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s34_a_waiter_that_loses_its_connections_keeps_its_place() {
    let server = server();
    let hold = connect(&server.url()).await;
    let watch = hold.clone();
    let hold = hold.mutex("x").acquire().await.unwrap();
    let mut clients = Vec::new();
    let mut line = Vec::new();
    for number in 0..6 {
        let client = connect(&format!("{}?client_name=w{number}", server.url())).await;
        line.push(wait_for(&client, "x", secs(30)));
        clients.push(client);
        until_waiting(&watch, "x", number + 1).await;
    }
    assert!(cut_off(&server, "w1") >= 1);
    hold.release().await.unwrap();
    let mut last = None;
    for (number, waiter) in line.into_iter().enumerate() {
        let hold = served(waiter).await;
        // It is this one's turn, and no later claim was served before it.
        assert!(last < Some(hold.fence()), "{number} was not served in its turn");
        last = Some(hold.fence());
        // Time for the others to come back while the first one holds.
        pause(if number == 0 { ms(1500) } else { ms(0) }).await;
        hold.release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s31_neither_readers_nor_writers_keep_the_others_out() {
    let server = server();
    let tenure = connect(&server.url()).await;
    for readers in [true, false] {
        let name = format!("x{readers}");
        let crowd: Vec<_> = (0..4)
            .map(|_| {
                let lock = tenure.rwlock(&name);
                tokio::spawn(async move {
                    loop {
                        let lock = lock.clone();
                        let hold = if readers { lock.read().await } else { lock.write().await };
                        pause(ms(2)).await;
                        hold.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let lock = tenure.rwlock(&name);
            drop(match readers {
                true => within(secs(5), lock.write()).await.unwrap(),
                false => within(secs(5), lock.read()).await.unwrap(),
            });
        }
        crowd.iter().for_each(|task| task.abort());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s37_units_of_the_dead_come_back_one_by_one_and_never_twice() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let unit = |ttl: u64| tenure.semaphore("x", 4).ttl(ms(ttl)).renew(false).join();
    for dead in [400, 700, 1000, 1300] {
        std::mem::forget(soon(unit(dead)).await.unwrap());
    }
    let waiting: Vec<_> = (0..6).map(|_| tokio::spawn(unit(30_000))).collect();
    until("four of them are in", async || {
        let view = view(&tenure, "x").await.unwrap();
        assert!(view.holders.iter().map(|it| it.weight).sum::<u32>() <= 4);
        view.waiters.len() == 2
    })
    .await;
    let ready = waiting.iter().filter(|task| task.is_finished()).count();
    assert!(ready <= 4, "{ready}");
    for task in waiting {
        served(task).await.release().await.unwrap();
    }
    let engine = engine(&server.url()).await;
    let name = Name::new(Space::Lock, "x").unwrap();
    let mut claim = Claim::new(name.clone(), SystemWorld.mint().unwrap());
    (claim.capacity, claim.fixed) = (4, false);
    let _ = engine.claim(&claim).await.unwrap();
    let leave = Leave::new(name, claim.id);
    assert_eq!(engine.leave(&leave).await.unwrap(), Left::Released);
    for _ in 0..3 {
        assert_eq!(engine.leave(&leave).await.unwrap(), Left::Gone(Ended::Expired));
    }
    let mut units = Vec::new();
    while let Some(unit) = tenure.semaphore("x", 4).try_acquire().await.unwrap() {
        units.push(unit);
    }
    assert_eq!(units.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn s40_a_release_before_five_hundred_waiters_tells_three_at_most() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let hold = ours.mutex("x").acquire().await.unwrap();
    let mut line = Vec::new();
    for number in 0..500 {
        let client = if number % 2 == 0 { &ours } else { &theirs };
        line.push(Box::pin(client.mutex("x").join()));
    }
    until_waiting(&ours, "x", 500).await;
    let before = calls(&server, "publish");
    hold.release().await.unwrap();
    // The server decides the order of the two clients.
    let mut first = None;
    until("one of them is served", async || {
        for (at, waiter) in line.iter_mut().enumerate().take(4) {
            if let std::task::Poll::Ready(hold) = poll_once(waiter) {
                first = Some((at, hold.unwrap()));
                return true;
            }
        }
        false
    })
    .await;
    let said = calls(&server, "publish") - before;
    assert!((1..=3).contains(&said), "{said}");
    let (at, first) = first.unwrap();
    drop(line.remove(at));
    drop(line);
    drop(first);
    until("they are gone", async || view(&ours, "x").await.is_none()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s42_a_turn_that_someone_else_finds_reaches_an_owner_that_cannot_ask() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    for round in 0..3 {
        let name = format!("x{round}");
        let dead = hold_like_the_dead(&near, &name, ms(600)).await;
        let first = wait_for(&far, &name, secs(30));
        until_waiting(&near, &name, 1).await;
        let second = wait_for(&near, &name, secs(30));
        until_waiting(&near, &name, 2).await;
        // The first one can no longer send, but still receives.
        proxy.hold(Direction::Upstream);
        let hold = within(secs(10), first).await.unwrap().unwrap();
        assert!(hold.fence().get() > dead && !second.is_finished());
        proxy.pass().unwrap();
        hold.release().await.unwrap();
        drop(served(second).await);
    }
}
