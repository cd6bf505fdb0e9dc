//! A program that keeps its own tasks from running has no outage, and a hold without the engine never wins over one
//! with it.

use std::sync::Arc;
use std::thread;

use tenure::Protection;
use tenure_testkit::proxy::Direction;

use super::events::{keep, written};
use super::policies::POLICIES;
use crate::redis_site::*;

/// The answer was there all the time, but nobody read it.
#[test]
fn a_runtime_that_is_blocked_is_no_outage() {
    keep();
    for (_, policy, _) in POLICIES {
        let server = server();
        let around = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let theirs = around.block_on(connect(&server.url()));
        let held = around.block_on(theirs.mutex("x").ttl(secs(60)).acquire()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let proxy = Arc::new(proxy(&server));
        runtime.block_on(async {
            let ours = connect(&through(&proxy, &format!("?on_outage={policy}"))).await;
            let label = ours.profile().label.clone();
            drop(soon(ours.mutex("warm").acquire()).await.unwrap());
            for busy in [ms(1500), ms(3000)] {
                // Its thread is blocked after it has begun to wait for its answer, which comes soon after.
                proxy.hold(Direction::Downstream);
                let mut waits = tokio::spawn(ours.mutex("x").join());
                tokio::task::yield_now().await;
                let answers = thread::spawn({
                    let proxy = proxy.clone();
                    move || {
                        thread::sleep(ms(100));
                        proxy.pass().unwrap();
                    }
                });
                thread::sleep(busy);
                let early = tokio::time::timeout(ms(800), &mut waits).await;
                assert!(early.is_err(), "two hold at once after {busy:?}: {early:?}");
                answers.join().unwrap();
                waits.abort();
                let _ = waits.await;
                let free = soon(ours.mutex("free").acquire()).await.unwrap();
                assert_eq!(free.protection(), Protection::Engine);
            }
            assert_eq!(written("engine", &label, &["engine.down"]), []);
        });
        assert!(held.is_live());
        drop(held);
    }
}

/// Its writes are refused wherever a newer fence was seen.
#[tokio::test(flavor = "multi_thread")]
async fn a_hold_without_the_engine_never_has_the_higher_fence() {
    for (_, policy, protection) in POLICIES {
        let server = server();
        let proxy = proxy(&server);
        let ours = connect(&through(&proxy, &format!("?on_outage={policy}"))).await;
        let theirs = connect(&server.url()).await;
        let last = soon(ours.mutex("x").acquire()).await.unwrap().fence();
        // A name in another part of the engine, whose numbers are far ahead.
        drop(soon(ours.mutex("y").acquire()).await.unwrap());
        until_free(&theirs, "x").await;
        proxy.refuse().unwrap();
        proxy.reset();
        let held = soon(theirs.mutex("x").acquire()).await.unwrap();
        let new = soon(theirs.mutex("new").acquire()).await.unwrap();
        for _ in 0..3 {
            let hold = soon(ours.mutex("x").acquire()).await.unwrap();
            assert_eq!(hold.protection(), protection);
            assert!(hold.fence() <= last && last < held.fence(), "{} of {last}", hold.fence());
            let hold = soon(ours.mutex("new").acquire()).await.unwrap();
            assert!(hold.fence() < new.fence(), "{}", hold.fence());
        }
        drop((held, new));
        proxy.pass().unwrap();
        let back = super::policies::until_protected(&ours, "x").await;
        assert!(back.fence() > last);
    }
}

/// The server answers: it has too few replicas, and says so.
#[tokio::test(flavor = "multi_thread")]
async fn too_few_replicas_are_no_outage() {
    keep();
    for (policy, word, _) in POLICIES {
        for query in ["wait_replicas=1&wait_timeout=100ms", ""] {
            let server = server();
            let ours = connect(&format!("{}?on_outage={word}&{query}", server.url())).await;
            let label = ours.profile().label.clone();
            if query.is_empty() {
                server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
            }
            for round in 0..4 {
                let lock = ours.mutex(format!("x{}", round % 2)).on_outage(policy);
                let said = match round < 2 {
                    true => soon(lock.wait(ms(2500)).acquire()).await.map(|hold| hold.protection()),
                    false => soon(lock.try_acquire()).await.map(|hold| hold.unwrap().protection()),
                };
                let error = said.expect_err("nobody has granted it");
                assert_eq!(error.kind(), tenure::ErrorKind::Unavailable, "{error}");
                let words = if query.is_empty() { "NOREPLICAS" } else { "0 of 1 replicas" };
                assert!(error.to_string().contains(words), "{error}");
            }
            assert_eq!(written("engine", &label, &["engine.down", "engine.up"]), []);
        }
    }
}
