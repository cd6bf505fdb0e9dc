//! Clusters that are rearranged while claims hold and wait.

use tenure::{Hold, Released, Tenure};
use tenure_testkit::servers::{Cluster, Redis};
use tokio::task::JoinHandle;

use crate::redis_site::*;

/// The slot of a partition. Our hash tags are the partitions' numbers.
fn slot_of(cluster: &Cluster, partition: u32) -> u16 {
    cluster.slot_of(&format!("{{{partition}}}")).unwrap()
}

/// A primary that does not keep the slot.
fn another(cluster: &Cluster, slot: u16) -> &Redis {
    let owner = cluster.owner_of(slot).unwrap().port();
    let primaries = [0, 6000, 12000].map(|slot| cluster.owner_of(slot).unwrap());
    primaries.into_iter().find(|node| node.port() != owner).unwrap()
}

/// Names of one partition, which are all in one slot.
fn names_of(cluster: &Cluster, partition: u32, count: usize) -> Vec<String> {
    let url = cluster.url();
    let engine =
        tokio::task::block_in_place(|| tokio::runtime::Handle::current().block_on(engine(&url)));
    let is_there = |name: &String| {
        let name = tenure::engine::Name::new(tenure::engine::Space::Lock, name).unwrap();
        engine.shard(&name) == partition
    };
    (0..).map(|number| format!("n{number}")).filter(is_there).take(count).collect()
}

struct Setup {
    tenure: Tenure,
    other: Tenure,
    held: Vec<Hold>,
    waited_for: Vec<(Hold, JoinHandle<tenure::Result<Hold>>)>,
}

/// Some names are held alone, and some have a waiter.
async fn setup(cluster: &Cluster, names: &[String]) -> Setup {
    let (tenure, other) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let (alone, lines) = names.split_at(names.len() * 3 / 4);
    let mut held = Vec::new();
    for name in alone {
        held.push(tenure.mutex(name).ttl(secs(2)).acquire().await.unwrap());
    }
    let mut waited_for = Vec::new();
    for name in lines {
        let hold = tenure.mutex(name).ttl(secs(2)).acquire().await.unwrap();
        let next = wait_for(&other, name, secs(2));
        until_waiting(&tenure, name, 1).await;
        waited_for.push((hold, next));
    }
    Setup { tenure, other, held, waited_for }
}

/// Nobody has lost anything, and everyone in line is served, by push.
async fn all_is_well(setup: Setup) {
    for hold in setup.held {
        assert!(hold.is_live(), "{} is lost", hold.name());
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
    }
    for (hold, next) in setup.waited_for {
        assert!(hold.is_live(), "{} is lost", hold.name());
        let fence = hold.fence();
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
        // Two seconds are the first life of a turn: without a push it would take longer.
        let next = within(secs(5), next).await.unwrap().unwrap();
        assert!(next.fence() > fence);
        assert_eq!(soon(next.release()).await.unwrap(), Released::InTime);
    }
    drop((setup.tenure, setup.other));
}

#[tokio::test(flavor = "multi_thread")]
async fn s86_a_slot_moves_while_its_names_are_held_and_waited_for() {
    let cluster = Cluster::start().unwrap();
    let names = names_of(&cluster, 7, 40);
    let setup = setup(&cluster, &names).await;
    let slot = slot_of(&cluster, 7);
    let to = another(&cluster, slot);
    // Each phase lasts longer than the ttl, so renewals must find their way during it.
    cluster.begin_move(slot, to).unwrap();
    let fresh =
        tokio::spawn(setup.other.mutex(&names_of(&cluster, 7, 41)[40]).wait(secs(18)).join());
    pause(ms(2500)).await;
    let moved = cluster.migrate_keys(slot, to).unwrap();
    assert!(moved >= 40, "{moved}");
    pause(ms(2500)).await;
    cluster.finish_move(slot, to).unwrap();
    cluster.settle().unwrap();
    drop(served(fresh).await);
    pause(ms(500)).await;
    all_is_well(setup).await;
    // Nothing of them is left where they were, or where they are now.
    let left = to.command(&["CLUSTER", "COUNTKEYSINSLOT", &slot.to_string()]).unwrap();
    assert!(left.int().unwrap() <= 1 + 1, "{left}");
}

/// A key that vanishes in the middle of a script cannot be touched again while its slot is leaving: the
/// last one in line hears of its turn, and the step must still be written down.
#[tokio::test(flavor = "multi_thread")]
async fn s86_the_last_in_line_is_served_while_the_slot_is_leaving() {
    let cluster = Cluster::start().unwrap();
    let names = names_of(&cluster, 7, 2);
    let (one, two) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let hold = one.mutex(&names[0]).ttl(secs(2)).acquire().await.unwrap();
    let next = tokio::spawn(two.mutex(&names[0]).ttl(secs(2)).join());
    until_waiting(&one, &names[0], 1).await;
    let unit = one.semaphore(&names[1], 2).acquire().await.unwrap();
    let slot = slot_of(&cluster, 7);
    let to = another(&cluster, slot);
    cluster.begin_move(slot, to).unwrap();
    hold.release().await.unwrap();
    let next = served(next).await;
    // Longer than the previous turn and its own first life would last without renewals.
    pause(ms(3000)).await;
    assert!(next.is_live());
    assert!(one.mutex(&names[0]).try_acquire().await.unwrap().is_none());
    unit.release().await.unwrap();
    let view = soon(one.inspect(&names[1])).await.unwrap();
    assert!(view.is_none(), "{view:?}");
    next.release().await.unwrap();
    cluster.migrate_keys(slot, to).unwrap();
    cluster.finish_move(slot, to).unwrap();
    cluster.settle().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn s86_slots_go_back_and_forth_and_nothing_is_lost() {
    let cluster = Cluster::start().unwrap();
    let names = names_of(&cluster, 19, 20);
    let setup = setup(&cluster, &names).await;
    let slot = slot_of(&cluster, 19);
    let (to, from) = (another(&cluster, slot), cluster.owner_of(slot).unwrap());
    for _ in 0..3 {
        cluster.move_slot(slot, to).unwrap();
        cluster.move_slot(slot, from).unwrap();
    }
    all_is_well(setup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s87_a_replica_takes_over_with_all_holds_and_waiters() {
    let cluster = Cluster::start().unwrap();
    let names = names_of(&cluster, 7, 12);
    let setup = setup(&cluster, &names).await;
    let primary = cluster.owner_of(slot_of(&cluster, 7)).unwrap();
    let replica = cluster.replica_of(primary).unwrap();
    let mut connection = primary.connect().unwrap();
    connection.command(&["HSET", "tenure:{7}:p", "~", "1"]).unwrap();
    assert_eq!(connection.command(&["WAIT", "1", "5000"]).unwrap().int(), Some(1));
    cluster.failover(replica).unwrap();
    pause(ms(2500)).await;
    all_is_well(setup).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn s87_a_cluster_that_is_down_is_waited_for_and_holds_are_lost_on_time() {
    let cluster = Cluster::start().unwrap();
    let names = names_of(&cluster, 7, 2);
    let tenure = connect(&cluster.url()).await;
    let hold = tenure.mutex(&names[0]).ttl(secs(1)).acquire().await.unwrap();
    let primary = cluster.owner_of(slot_of(&cluster, 7)).unwrap();
    let replica = cluster.replica_of(primary).unwrap();
    primary.kill().unwrap();
    assert_eq!(soon(hold.lost()).await, tenure::Ended::Expired);
    let waits = tokio::spawn(tenure.mutex(&names[1]).wait(secs(19)).join());
    pause(ms(500)).await;
    cluster.failover(replica).unwrap();
    let next = soon(waits).await.unwrap();
    match next {
        Ok(next) => assert!(next.is_live()),
        // Nobody answered within the connect time-out: an error, and not a hold.
        Err(error) => assert_eq!(error.kind(), tenure::ErrorKind::Unavailable, "{error}"),
    }
    assert!(soon(tenure.mutex(&names[0]).acquire()).await.unwrap().fence() > hold.fence());
}
