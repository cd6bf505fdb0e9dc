//! Several servers: each that matters is examined, and named where it differs.

use tenure::Mark;
use tenure_testkit::servers::{Clock, Cluster, Redis, Sentinels};

use super::{about, examined, one, says};
use crate::redis_site::until;

fn configure(server: &Redis, setting: &str, value: &str) {
    server.command(&["CONFIG", "SET", setting, value]).unwrap().accepted().unwrap();
}

fn may_evict(server: &Redis) -> String {
    configure(server, "maxmemory", "200mb");
    configure(server, "maxmemory-policy", "allkeys-lru");
    format!("127.0.0.1:{}", server.port())
}

#[tokio::test(flavor = "multi_thread")]
async fn behind_sentinels_the_primary_and_its_replicas_are_examined() {
    let group = Sentinels::start(1).unwrap();
    let (primary, replica) = (&group.nodes()[0], &group.nodes()[1]);
    let found = examined(&group.url()).await;
    let named = format!("3 of 3 name 127.0.0.1:{}", primary.port());
    says(one(&found, "sentinels"), Mark::Good, &[&named]);
    says(one(&found, "version"), Mark::Good, &["(all servers)"]);
    says(one(&found, "replication"), Mark::Warning, &["1 replica", "two holders"]);
    let roles: Vec<_> = about(&found, "role").iter().map(|role| role.what.clone()).collect();
    assert_eq!(roles.len(), 2);
    // The replica may be the next primary.
    let named = may_evict(replica);
    let found = examined(&group.url()).await;
    let eviction = about(&found, "eviction");
    says(eviction[0], Mark::Problem, &["allkeys-lru", &named, "removes any key"]);
    assert_eq!(eviction[1].mark, Mark::Good);
    // A sentinel that is gone is named, and so is a replica.
    let gone = &group.sentinels()[0];
    gone.kill().unwrap();
    replica.kill().unwrap();
    let found = examined(&group.url()).await;
    let silent = format!("127.0.0.1:{} cannot be asked", gone.port());
    says(one(&found, "sentinels"), Mark::Warning, &["2 of 3 name", &silent]);
    group.sentinels()[1..].iter().for_each(|sentinel| sentinel.kill().unwrap());
    assert!(tenure::Tenure::examine_at(&group.url()).await.is_err());
    let other = group.url().replace("/mymaster", "/theirs");
    assert!(tenure::Tenure::examine_at(&other).await.is_err());
}

/// A failover between them would be a step of the clock.
#[tokio::test(flavor = "multi_thread")]
async fn clocks_of_servers_and_sentinels_are_compared() {
    let clock = Clock::new().unwrap();
    let group = Sentinels::start_with_clock(1, &clock).unwrap();
    let found = examined(&group.url()).await;
    assert!(about(&found, "clock").iter().all(|clock| clock.mark == Mark::Good), "{found:?}");
    // The primary agrees with this machine, and so do the sentinels.
    clock.offset(300).unwrap();
    let ahead = format!("127.0.0.1:{} is ", group.nodes()[1].port());
    let found = examined(&group.url()).await;
    let clocks = about(&found, "clock");
    says(clocks[0], Mark::Warning, &[&ahead, " ms ahead of ", "a failover between them"]);
    assert_eq!(clocks[1].mark, Mark::Good);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_server_of_a_cluster_is_examined() {
    let cluster = Cluster::start().unwrap();
    let found = examined(&cluster.url()).await;
    says(one(&found, "cluster"), Mark::Good, &["3 primaries keep all slots"]);
    says(one(&found, "reach"), Mark::Good, &["(all servers)"]);
    says(one(&found, "version"), Mark::Good, &["part of a cluster", "(all servers)"]);
    says(one(&found, "scripts"), Mark::Good, &["scripts run"]);
    assert_eq!(one(&found, "persistence").mark, Mark::Warning);
    let evicting = may_evict(&cluster.nodes()[2]);
    let lonely = &cluster.nodes()[1];
    cluster.replica_of(lonely).unwrap().kill().unwrap();
    until("it is missed", async || lonely.info("connected_slaves").as_deref() == Some("0")).await;
    let found = examined(&cluster.url()).await;
    says(about(&found, "eviction")[0], Mark::Problem, &["allkeys-lru", &evicting]);
    let of_it = format!("no replica is in sync (127.0.0.1:{})", lonely.port());
    let replication = about(&found, "replication");
    assert!(replication.iter().any(|finding| finding.what == of_it), "{replication:#?}");
    // A primary that is gone is a problem, until another has taken over.
    lonely.kill().unwrap();
    let found = examined(&cluster.url()).await;
    let gone = format!("127.0.0.1:{}", lonely.port());
    says(about(&found, "reach")[0], Mark::Problem, &[&gone, "cannot be claimed"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_does_not_keep_all_slots_is_a_problem() {
    let cluster = Cluster::start().unwrap();
    let node = &cluster.nodes()[0];
    for node in cluster.nodes() {
        configure(node, "cluster-require-full-coverage", "no");
    }
    let range = node.command(&["CLUSTER", "SLOTS"]).unwrap();
    let range = range
        .list()
        .iter()
        .find(|range| range.list()[2].list()[1].int() == Some(i64::from(node.port())));
    let (first, last) = match range.unwrap().list() {
        [first, last, ..] => (first.int().unwrap(), last.int().unwrap()),
        _ => panic!("a range of slots"),
    };
    let (first, last) = (first.to_string(), last.to_string());
    for node in cluster.nodes() {
        node.command(&["CLUSTER", "DELSLOTSRANGE", &first, &last]).unwrap();
    }
    let found = examined(&cluster.url()).await;
    let said = one(&found, "cluster");
    says(said, Mark::Problem, &["of 256 partitions have a server", "--cluster fix"]);
}
