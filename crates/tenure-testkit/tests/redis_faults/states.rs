//! States of one server: scripts forgotten, loading, out of memory, foreign keys, rights of a replica.

use std::time::Instant;

use tenure::{Ended, ErrorKind, Released, Tenure};
use tenure_testkit::servers::Redis;

use crate::redis_site::*;

async fn take_turns(tenure: Tenure, rounds: u32) {
    for _ in 0..rounds {
        let hold = soon(tenure.mutex("x").acquire()).await.expect("a hold");
        assert_eq!(soon(hold.release()).await.expect("an answer"), Released::InTime);
        let unit = soon(tenure.semaphore("s", 2).acquire()).await.expect("a unit");
        assert!(soon(tenure.inspect("s")).await.expect("an answer").is_some());
        drop(unit);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s66_a_server_that_forgets_its_scripts_all_the_time_troubles_nobody() {
    let server = server();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(tokio::spawn(take_turns(connect(&server.url()).await, 150)));
    }
    let tenure = connect(&server.url()).await;
    let ttl = ms(2_500);
    let hold = tenure.mutex("kept").ttl(ttl).acquire().await.unwrap();
    let (began, mut flushes) = (Instant::now(), 0);
    // After its ttl, it is live only if it was renewed meanwhile.
    while tasks.iter().any(|task| !task.is_finished()) || flushes < 100 || began.elapsed() <= ttl {
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        pause(ms(20)).await;
        flushes += 1;
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert!(hold.is_live());
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
}

#[tokio::test(flavor = "multi_thread")]
async fn s67_a_server_that_loads_its_data_is_waited_for() {
    let server = Redis::build()
        .rdb()
        .setting("key-load-delay", "1500")
        .setting("loading-process-events-interval-bytes", "1024")
        .start()
        .unwrap();
    let tenure = connect(&format!("{}?connect_timeout=500ms", server.url())).await;
    let old = tenure.mutex("x").ttl(ms(800)).acquire().await.unwrap();
    server.command(&["DEBUG", "POPULATE", "1000", "k", "100"]).unwrap();
    server.command(&["SAVE"]).unwrap().accepted().unwrap();
    // It answers LOADING for seconds.
    let url = server.url();
    let restart = tokio::task::spawn_blocking(move || {
        server.restart().unwrap();
        server
    });
    let mut seen = false;
    while !seen && !restart.is_finished() {
        let refused = reach(&url).await.err();
        seen = refused.is_some_and(|error| error.to_string().contains("loading"));
    }
    assert!(seen, "it was never seen loading");
    let new = soon(tenure.mutex("x").wait(secs(15)).acquire()).await.unwrap();
    assert!(!old.is_live() && new.fence() > old.fence());
    drop(soon(restart).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn oom_a_full_server_still_renews_releases_and_hands_over() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    for (name, waits) in [("near", &ours), ("far", &theirs)] {
        let hold = ours.mutex(name).ttl(secs(1)).acquire().await.unwrap();
        let alone = ours.mutex("alone").ttl(secs(1)).acquire().await.unwrap();
        let next = wait_for(waits, name, secs(1));
        let last = wait_for(waits, name, secs(1));
        until_waiting(&ours, name, 2).await;
        server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
        pause(ms(1300)).await;
        assert!(hold.is_live() && alone.is_live(), "renewed while the server is full");
        let fence = hold.fence();
        assert_eq!(within(secs(5), hold.release()).await.unwrap(), Released::InTime);
        assert_eq!(within(secs(5), alone.release()).await.unwrap(), Released::InTime);
        // A claim that is told of its turn holds: there is no turn without a grant.
        let next = served(next).await;
        assert!(next.fence() > fence);
        assert_eq!(holders(&theirs, name).await, [next.fence().get()]);
        pause(ms(1300)).await;
        assert!(next.is_live() && !last.is_finished());
        assert_eq!(soon(next.release()).await.unwrap(), Released::InTime);
        drop(served(last).await);
        until_free(&theirs, name).await;
        server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oom_what_a_full_server_refuses_is_named_and_not_half_done() {
    let server = server();
    let tenure = connect(&format!("{}?connect_timeout=500ms", server.url())).await;
    drop(tenure.mutex("x").acquire().await.unwrap());
    until("it is left", async || keys_of_names(&server).is_empty()).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let error = within(secs(8), tenure.mutex("x").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("OOM"), "{error}");
    let error = within(secs(8), tenure.mutex("x").wait(ms(700)).acquire()).await.unwrap_err();
    assert!(error.to_string().contains("OOM"), "{error}");
    assert_eq!(keys_of_names(&server), [""; 0]);
    let waits = tokio::spawn(tenure.mutex("x").wait(secs(15)).join());
    pause(ms(300)).await;
    server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
    drop(served(waits).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s71_a_server_that_may_evict_is_refused_if_that_was_asked_for() {
    let server = Redis::build()
        .setting("maxmemory", "100mb")
        .setting("maxmemory-policy", "allkeys-lru")
        .start()
        .unwrap();
    // By default, there is a warning.
    drop(connect(&server.url()).await.mutex("x").acquire().await.unwrap());
    let strict = format!("{}?require=noeviction", server.url());
    let error = reach(&strict).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unsupported);
    assert!(error.to_string().contains("noeviction"), "{error}");
    server.command(&["CONFIG", "SET", "maxmemory-policy", "noeviction"]).unwrap();
    drop(connect(&strict).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn s79_foreign_data_under_our_keys_is_an_error_and_stays_as_it_is() {
    let server = server();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let (key, second) = (key_of(&server, "x"), tenure.mutex("x").wait(secs(1)).acquire().await);
    assert!(second.is_err());
    let line = keys(&server).into_iter().find(|key| key.contains(":z:")).unwrap();
    hold.release().await.unwrap();
    let partition = keys(&server).into_iter().find(|key| key.ends_with("}:p")).unwrap();
    for foreign in [
        vec!["SET", "theirs"],
        vec!["RPUSH", "theirs", "too"],
        vec!["HSET", "theirs", "too"],
        vec!["SADD", "theirs"],
    ] {
        for place in [&key, &line, &partition] {
            server.command(&["FLUSHALL"]).unwrap();
            let write: Vec<&str> = [&foreign[..1], &[place.as_str()], &foreign[1..]].concat();
            server.command(&write).unwrap().accepted().unwrap();
            let before = server.command(&["DUMP", place]).unwrap();
            if place == &partition && foreign[0] == "HSET" {
                continue;
            }
            let first = soon(tenure.mutex("x").acquire()).await;
            let waits = soon(tenure.mutex("x").wait(secs(1)).acquire()).await;
            let error = first.as_ref().err().or(waits.as_ref().err()).expect("a refusal");
            assert_eq!(error.kind(), ErrorKind::Conflict, "{foreign:?} at {place}: {error}");
            drop((first, waits));
            pause(ms(50)).await;
            let after = server.command(&["DUMP", place]).unwrap();
            assert_eq!(before, after, "{foreign:?} at {place} was changed");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s78_a_replica_is_refused_with_the_reason() {
    let primary = server();
    let replica = Redis::build().replica_of(primary.port()).start().unwrap();
    tenure_testkit::servers::eventually("in sync", BOUND, || replica.is_synced_replica()).unwrap();
    let error = within(secs(10), reach(&replica.url())).await.unwrap_err();
    assert!(error.to_string().contains("replica"), "{error}");
    let error = reach(&primary.url().replace("redis://", "redis-cluster://")).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Unsupported);
}

#[tokio::test(flavor = "multi_thread")]
async fn readonly_a_primary_that_was_demoted_is_waited_out() {
    let (server, other) = (server(), server());
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").ttl(ms(1000)).acquire().await.unwrap();
    let keeps = tenure.mutex("y").ttl(secs(60)).acquire().await.unwrap();
    let next = wait_for(&tenure, "y", secs(30));
    until_waiting(&tenure, "y", 1).await;
    let port = other.port().to_string();
    // Nothing is replicated from there: what this one knows stays.
    other.command(&["CONFIG", "SET", "requirepass", "unknown"]).unwrap();
    server.command(&["REPLICAOF", "127.0.0.1", &port]).unwrap();
    let waits = tokio::spawn(tenure.mutex("z").wait(secs(18)).join());
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    pause(ms(300)).await;
    assert!(!waits.is_finished() && keeps.is_live());
    server.command(&["REPLICAOF", "NO", "ONE"]).unwrap();
    drop(served(waits).await);
    assert_eq!(soon(keeps.release()).await.unwrap(), Released::InTime);
    drop(served(next).await);
}
