//! Loss comes before the next grant: by its own clock, the old holder has lost before the next one holds.

use std::sync::Arc;

use tenure::{Ended, Hold, Tenure};
use tenure_testkit::proxy::Direction;
use tokio::task::JoinHandle;

use crate::redis_site::*;

/// Waits for the name, and checks at the moment of the grant that the old hold is over.
fn follow(tenure: &Tenure, old: &Arc<Hold>) -> JoinHandle<()> {
    let (turn, old) = (tenure.mutex(old.name()).ttl(secs(30)).join(), old.clone());
    tokio::spawn(async move {
        let new = turn.await.unwrap();
        assert!(!old.is_live(), "two holders of {}", old.name());
        assert!(new.fence() > old.fence());
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn s47_a_holder_that_is_cut_off_has_lost_before_the_next_one_holds() {
    let server = server();
    let proxy = proxy(&server);
    let (far, near) = (connect(&through(&proxy, "")).await, connect(&server.url()).await);
    let mut pairs = Vec::new();
    for number in 0..40 {
        let lock = far.mutex(format!("x{number}")).ttl(ms(400 + 37 * number));
        let old = Arc::new(lock.acquire().await.unwrap());
        pairs.push((follow(&near, &old), old));
    }
    pause(ms(200)).await;
    proxy.swallow(Direction::Upstream);
    proxy.swallow(Direction::Downstream);
    for (next, old) in pairs {
        soon(next).await.unwrap();
        assert_eq!(soon(old.lost()).await, Ended::Expired);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s11_a_server_that_was_stopped_has_granted_nothing_twice() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let old = Arc::new(ours.mutex("x").ttl(ms(1000)).acquire().await.unwrap());
    let next = follow(&theirs, &old);
    until_waiting(&ours, "x", 1).await;
    server.pause().unwrap();
    assert_eq!(soon(old.lost()).await, Ended::Expired);
    assert!(!next.is_finished());
    pause(ms(500)).await;
    server.resume().unwrap();
    soon(next).await.unwrap();
    assert!(soon(ours.mutex("x").acquire()).await.unwrap().fence() > old.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn s81_client_pause_is_like_a_server_that_is_stopped() {
    let server = server();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let old = Arc::new(ours.mutex("x").ttl(ms(1000)).acquire().await.unwrap());
    let next = follow(&theirs, &old);
    until_waiting(&ours, "x", 1).await;
    server.command(&["CLIENT", "PAUSE", "3000", "ALL"]).unwrap();
    assert_eq!(soon(old.lost()).await, Ended::Expired);
    soon(next).await.unwrap();
    drop(soon(ours.mutex("x").acquire()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s69_a_server_without_its_replicas_is_named_and_the_hold_is_lost_on_time() {
    let server = server();
    let tenure = connect(&format!("{}?connect_timeout=500ms", server.url())).await;
    let hold = tenure.mutex("x").ttl(ms(1500)).acquire().await.unwrap();
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    let error = soon(tenure.mutex("y").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), tenure::ErrorKind::Unavailable);
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
    assert_eq!(soon(hold.lost()).await, Ended::Expired);
    // A claim that is willing to wait still waits.
    let waits = tokio::spawn(tenure.mutex("z").wait(secs(15)).join());
    pause(ms(1000)).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "0"]).unwrap();
    drop(served(waits).await);
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn s69_the_end_of_a_wait_says_what_the_server_said() {
    let server = server();
    let tenure = connect(&server.url()).await;
    server.command(&["CONFIG", "SET", "min-replicas-to-write", "1"]).unwrap();
    let error = soon(tenure.mutex("y").wait(ms(700)).acquire()).await.unwrap_err();
    assert!(error.to_string().contains("NOREPLICAS"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s67_a_foreign_script_that_never_ends_is_waited_out() {
    let server = tenure_testkit::servers::Redis::build()
        .setting("busy-reply-threshold", "50")
        .start()
        .unwrap();
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let old = Arc::new(ours.mutex("x").ttl(ms(1000)).acquire().await.unwrap());
    let next = follow(&theirs, &old);
    until_waiting(&ours, "x", 1).await;
    let mut foreign = server.connect().unwrap();
    foreign.send(&["EVAL", "while true do end", "0"]).unwrap();
    pause(ms(200)).await;
    let waits = tokio::spawn(ours.mutex("y").wait(secs(15)).join());
    assert_eq!(soon(old.lost()).await, Ended::Expired);
    assert!(!next.is_finished() && !waits.is_finished());
    server.command(&["SCRIPT", "KILL"]).unwrap().accepted().unwrap();
    drop(served(waits).await);
    soon(next).await.unwrap();
}
