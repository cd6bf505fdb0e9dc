//! `?wait_replicas=1`: a grant that the replica does not have does not count.

use tenure::{ErrorKind, Released, Tenure};
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::{Redis, eventually};

use crate::redis_site::*;

/// A primary, and a replica behind a network that can be cut.
struct Pair {
    primary: Redis,
    link: Proxy,
    _replica: Redis,
}

fn pair() -> Pair {
    let primary = server();
    let link = Proxy::start(primary.port()).unwrap();
    let replica = Redis::build().replica_of(link.port()).start().unwrap();
    // The primary counts a replica from its first acknowledgement.
    eventually("the replica counts", BOUND, || {
        let mut connection = primary.connect().unwrap();
        connection.command(&["SET", "foreign", "x"]).unwrap();
        connection.command(&["WAIT", "1", "200"]).unwrap().int() == Some(1)
    })
    .unwrap();
    Pair { primary, link, _replica: replica }
}

const QUERY: &str = "?wait_replicas=1&wait_timeout=500ms&connect_timeout=2s";

async fn client(pair: &Pair) -> Tenure {
    connect(&format!("{}{QUERY}", pair.primary.url())).await
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_replicas_grants_renews_and_hands_over_while_the_replica_is_there() {
    let pair = pair();
    let (ours, theirs) = (client(&pair).await, client(&pair).await);
    let hold = ours.mutex("x").ttl(secs(1)).acquire().await.unwrap();
    let line = line_up(&[&theirs, &ours], "x", secs(1)).await;
    pause(ms(1200)).await;
    assert!(hold.is_live());
    assert_eq!(hold.release().await.unwrap(), Released::InTime);
    for waiter in line {
        let hold = served(waiter).await;
        pause(ms(1200)).await;
        assert_eq!(hold.release().await.unwrap(), Released::InTime);
    }
    assert!(calls(&pair.primary, "wait") >= 5);
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_replicas_a_claim_that_the_replica_does_not_have_fails_and_leaves_nothing() {
    let pair = pair();
    let (ours, watch) = (client(&pair).await, connect(&pair.primary.url()).await);
    let hold = ours.mutex("x").ttl(ms(1500)).acquire().await.unwrap();
    // The replica's acknowledgements do not get through.
    pair.link.hold(Direction::Upstream);
    let error = within(secs(10), ours.mutex("y").try_acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    until_free(&watch, "y").await;
    let error = within(secs(10), ours.mutex("y").wait(secs(2)).acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    until_free(&watch, "y").await;
    // Renewals that are not acknowledged do not count, and the hold is lost on time.
    soon(hold.lost()).await;
    pair.link.pass().unwrap();
    drop(soon(ours.mutex("y").acquire()).await.unwrap());
    drop(soon(ours.mutex("x").acquire()).await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_replicas_a_pushed_turn_counts_only_when_the_replica_has_it() {
    let pair = pair();
    let (ours, theirs) = (client(&pair).await, client(&pair).await);
    let hold = ours.mutex("x").ttl(secs(30)).acquire().await.unwrap();
    let next = wait_for(&theirs, "x", secs(30));
    until_waiting(&ours, "x", 1).await;
    pair.link.hold(Direction::Upstream);
    drop(hold);
    // The push arrives, the acknowledgement does not: nobody who may work holds it.
    pause(ms(1500)).await;
    assert!(!next.is_finished());
    pair.link.pass().unwrap();
    let next = served(next).await;
    assert!(next.is_live());
    assert_eq!(next.release().await.unwrap(), Released::InTime);
}
