//! Failover behind sentinels.

use std::sync::{Arc, Mutex};

use tenure::{Fence, Hold, Tenure};
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::{Clock, Redis, Sentinels, eventually};
use tokio::task::JoinHandle;

use crate::redis_site::*;

/// Waits, and checks at the moment of the grant that the old hold is over. Records the fence.
fn follow(client: &Tenure, old: &Arc<Hold>, fences: &Fences) -> JoinHandle<()> {
    let turn = client.mutex(old.name()).ttl(secs(3)).join();
    let (old, fences) = (old.clone(), fences.clone());
    tokio::spawn(async move {
        let hold = turn.await.unwrap();
        assert!(!old.is_live(), "two holders");
        fences.lock().unwrap().push(hold.fence());
        pause(ms(50)).await;
    })
}

type Fences = Arc<Mutex<Vec<Fence>>>;

/// Waits until all replicas have everything that the primary has.
pub(super) fn replicated(primary: &Redis, replicas: usize) {
    eventually("the replicas have it all", BOUND, || {
        let mut connection = primary.connect().unwrap();
        connection.command(&["SET", "foreign", "x"]).unwrap();
        let reply = connection.command(&["WAIT", &replicas.to_string(), "500"]).unwrap();
        reply.int() == Some(replicas as i64)
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s84_a_failover_is_waited_out_and_everyone_is_served() {
    let servers = Sentinels::start(2).unwrap();
    let mut clients = Vec::new();
    for _ in 0..3 {
        clients.push(connect(&servers.url()).await);
    }
    let long = clients[0].mutex("long").ttl(secs(60)).acquire().await.unwrap();
    // Whether it outlives the failover depends on how long that takes; here it ends in any case.
    let lock = clients[0].mutex("x").ttl(secs(3)).max_hold(secs(6));
    let old = Arc::new(lock.acquire().await.unwrap());
    let fences = Fences::default();
    let mut line = Vec::new();
    for client in &clients {
        line.push(follow(client, &old, &fences));
        until_waiting(client, "x", line.len()).await;
    }
    let former = servers.primary().unwrap();
    replicated(former, 2);
    former.kill().unwrap();
    servers.await_failover(former).unwrap();
    for waiter in line {
        soon(waiter).await.unwrap();
    }
    {
        let fences = fences.lock().unwrap();
        assert!(fences.len() == 3 && fences[0] > old.fence() && fences.is_sorted(), "{fences:?}");
    }
    // A hold that has time enough is renewed on the new primary.
    assert!(long.is_live());
    assert_eq!(soon(long.release()).await.unwrap(), tenure::Released::InTime);
    assert!(soon(clients[2].mutex("long").acquire()).await.unwrap().fence() > old.fence());
}

#[tokio::test(flavor = "multi_thread")]
async fn s84_a_requested_failover_moves_holds_and_waiters() {
    let servers = Sentinels::start(2).unwrap();
    let (ours, theirs) = (connect(&servers.url()).await, connect(&servers.url()).await);
    let hold = ours.mutex("x").ttl(secs(60)).acquire().await.unwrap();
    let next = wait_for(&theirs, "x", secs(60));
    until_waiting(&ours, "x", 1).await;
    replicated(servers.primary().unwrap(), 2);
    servers.failover().unwrap();
    // The former primary lives on as a replica: connections to it are of no use.
    let other = soon(ours.mutex("y").wait(secs(19)).acquire()).await.unwrap();
    assert!(hold.is_live() && other.is_live());
    let fence = hold.fence();
    assert_eq!(soon(hold.release()).await.unwrap(), tenure::Released::InTime);
    assert!(served(next).await.fence() > fence);
}

#[tokio::test(flavor = "multi_thread")]
async fn s85_without_sentinels_the_existing_connection_continues() {
    let servers = Sentinels::start(1).unwrap();
    let tenure = connect(&servers.url()).await;
    let hold = tenure.mutex("x").ttl(secs(2)).acquire().await.unwrap();
    pause(ms(1000)).await;
    servers.sentinels().iter().for_each(|sentinel| sentinel.kill().unwrap());
    drop(soon(tenure.mutex("y").acquire()).await.unwrap());
    pause(ms(2500)).await;
    assert!(hold.is_live());
    let error = within(secs(12), reach(&servers.url())).await.unwrap_err();
    assert_eq!(error.kind(), tenure::ErrorKind::Unavailable, "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn s85_one_sentinel_that_hangs_does_not_keep_the_others_from_answering() {
    let servers = Sentinels::start(1).unwrap();
    servers.sentinels()[0].pause().unwrap();
    let tenure = within(secs(8), Tenure::connect(&servers.url())).await.unwrap();
    drop(soon(tenure.mutex("x").acquire()).await.unwrap());
    let unknown = servers.url().replace(servers.service(), "nobody");
    let error = within(secs(12), reach(&unknown)).await.unwrap_err();
    assert!(error.to_string().contains("nobody"), "{error}");
    servers.sentinels()[0].resume().unwrap();
}

/// The former primary continues to accept writes for seconds, and this holder does not hear that it was replaced:
/// renewals there do not count.
#[tokio::test(flavor = "multi_thread")]
async fn s84_a_holder_that_cannot_hear_the_sentinels_loses_its_hold_before_another_gets_it() {
    let servers = Sentinels::start_slow_to_demote(1).unwrap();
    let sentinels = servers.sentinels().iter();
    let network: Vec<_> =
        sentinels.map(|sentinel| Proxy::start(sentinel.port()).unwrap()).collect();
    let hosts: Vec<_> = network.iter().map(|it| format!("127.0.0.1:{}", it.port())).collect();
    let url = format!("redis-sentinel://{}/{}", hosts.join(","), servers.service());
    let (cut_off, other) = (connect(&url).await, connect(&servers.url()).await);
    let old = Arc::new(cut_off.mutex("x").ttl(secs(3)).acquire().await.unwrap());
    let fences = Fences::default();
    let next = follow(&other, &old, &fences);
    until_waiting(&other, "x", 1).await;
    // It has been renewed there, so the replica was seen.
    pause(ms(1500)).await;
    replicated(servers.primary().unwrap(), 1);
    for way in &network {
        way.hold(Direction::Downstream);
    }
    servers.failover().unwrap();
    assert_eq!(soon(old.lost()).await, tenure::Ended::Expired);
    soon(next).await.unwrap();
    assert!(fences.lock().unwrap()[0] > old.fence());
}

/// The former primary continues to accept writes for eight seconds. A client that is connected to it, and has no hold
/// whose renewal would show that it was replaced, hears of that from the sentinels.
#[tokio::test(flavor = "multi_thread")]
async fn s84_a_client_without_holds_follows_the_sentinels_before_the_former_primary_is_demoted() {
    let servers = Sentinels::start_slow_to_demote(1).unwrap();
    let ours = connect(&servers.url()).await;
    drop(ours.mutex("before").acquire().await.unwrap());
    replicated(servers.primary().unwrap(), 1);
    servers.failover().unwrap();
    let follows = async {
        let theirs = connect(&servers.url()).await;
        for number in 0.. {
            let hold = ours.mutex(format!("x{number}")).acquire().await.unwrap();
            if theirs.mutex(hold.name()).try_acquire().await.unwrap().is_none() {
                return;
            }
            pause(ms(50)).await;
        }
    };
    within(secs(5), follows).await;
}

/// If a replica's clock is ahead, holds seem to be over when it takes over.
#[tokio::test(flavor = "multi_thread")]
async fn s84_a_replica_whose_clock_is_ahead_does_not_end_holds_when_it_takes_over() {
    let clock = Clock::new().unwrap();
    let servers = Sentinels::start_with_clock(1, &clock).unwrap();
    clock.offset(20_000).unwrap();
    let (ours, theirs) = (connect(&servers.url()).await, connect(&servers.url()).await);
    let hold = ours.mutex("x").ttl(secs(8)).acquire().await.unwrap();
    let alone = ours.mutex("alone").ttl(secs(8)).acquire().await.unwrap();
    let next = wait_for(&theirs, "x", secs(8));
    until_waiting(&ours, "x", 1).await;
    replicated(servers.primary().unwrap(), 1);
    servers.failover().unwrap();
    assert!(soon(theirs.mutex("alone").wait(secs(4)).acquire()).await.is_err());
    assert!(hold.is_live() && alone.is_live() && !next.is_finished());
    assert_eq!(soon(hold.release()).await.unwrap(), tenure::Released::InTime);
    drop(served(next).await);
    assert_eq!(soon(alone.release()).await.unwrap(), tenure::Released::InTime);
}
