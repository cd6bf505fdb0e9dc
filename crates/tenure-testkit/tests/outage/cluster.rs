//! A cluster of which a part is gone, and one that is not up yet.

use tenure::Protection;
use tenure::engine::{Name, Space};
use tenure_testkit::servers::Cluster;

use super::events::{changes, keep, written};
use super::policies::until_protected;
use crate::redis_site::*;

/// Partitions fail separately: the reachable ones protect as usual.
#[tokio::test(flavor = "multi_thread")]
async fn the_reachable_part_of_a_cluster_still_protects() {
    keep();
    let cluster = Cluster::start().unwrap();
    for node in cluster.nodes() {
        node.command(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]).unwrap();
    }
    let url = format!("{}?on_outage=local", cluster.url());
    let (tenure, engine) = (connect(&url).await, engine(&cluster.url()).await);
    let lost = cluster.owner_of(0).unwrap();
    let replica = cluster.replica_of(lost).unwrap();
    let (mut there, mut gone) = (Vec::new(), Vec::new());
    for number in 0..30 {
        let name = format!("n{number}");
        let partition = engine.shard(&Name::new(Space::Lock, &name).unwrap());
        let slot = cluster.slot_of(&format!("{{{partition}}}")).unwrap();
        let is_lost = cluster.owner_of(slot).unwrap().port() == lost.port();
        if is_lost {
            gone.push(name)
        } else {
            there.push(name)
        }
        if gone.len() >= 3 && there.len() >= 3 {
            break;
        }
    }
    replica.pause().unwrap();
    lost.pause().unwrap();
    let mut fences = Vec::new();
    for name in gone.iter().take(3) {
        let hold = soon(tenure.mutex(name).acquire()).await.unwrap();
        assert_eq!(hold.protection(), Protection::Local, "{name}");
        fences.push(hold.fence());
    }
    for name in there.iter().take(3) {
        let hold = soon(tenure.mutex(name).acquire()).await.unwrap();
        assert_eq!(hold.protection(), Protection::Engine, "{name}");
    }
    lost.resume().unwrap();
    replica.resume().unwrap();
    for (name, fence) in gone.iter().zip(fences) {
        assert!(until_protected(&tenure, name).await.fence() > fence);
    }
    // Several partitions were down, which is one outage.
    let label = &tenure.profile().label;
    assert_eq!(written("engine", label, &["engine.down", "engine.up"]), changes(1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_that_is_down_at_the_start_is_found_when_it_is_up() {
    let cluster = Cluster::start().unwrap();
    cluster.nodes().iter().for_each(|node| node.pause().unwrap());
    let tenure = connect(&format!("{}?on_outage=open&connect_timeout=2s", cluster.url())).await;
    for name in ["x", "y", "z"] {
        let hold = soon(tenure.mutex(name).acquire()).await.unwrap();
        assert_eq!(hold.protection(), Protection::None);
    }
    cluster.nodes().iter().for_each(|node| node.resume().unwrap());
    for name in ["x", "y", "z"] {
        drop(until_protected(&tenure, name).await);
    }
}
