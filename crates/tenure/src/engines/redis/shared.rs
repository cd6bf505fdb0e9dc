//! What the callers' connections and the watchdog's share, and what to do when a server turns out to be
//! another one than before.

use std::sync::{Arc, OnceLock, Weak};

use super::cluster::ClusterMap;
use super::config::{Address, RedisConfig};
use super::connection::registry::Registry;
use super::connection::server_clock::Clocks;
use super::connection::{Connection, Purpose, Target};
use super::numbers::Numbers;
use super::protocol::refusal::Refusal;
use super::sentinels::Sentinels;
use super::setup::Setup;
use super::steps::Steps;
use super::turns::WaitingClaims;
use crate::model::error::Result;

pub(super) struct Shared {
    pub(super) setup: Arc<Setup>,
    pub(super) cluster: ClusterMap,
    pub(super) sentinels: Sentinels,
    pub(super) registry: Registry,
    pub(super) clocks: Clocks,
    pub(super) waiting: WaitingClaims,
    pub(super) numbers: Numbers,
    /// The callers' steps, whose connections receive the pushes.
    callers: OnceLock<Weak<Steps>>,
}

impl Shared {
    pub(super) fn new(config: RedisConfig) -> Result<Shared> {
        let setup = Arc::new(Setup::new(config)?);
        Ok(Shared {
            cluster: ClusterMap::new(setup.clone()),
            sentinels: Sentinels::new(setup.clone()),
            registry: Registry::default(),
            clocks: Clocks::default(),
            waiting: WaitingClaims::default(),
            numbers: Numbers::default(),
            callers: OnceLock::new(),
            setup,
        })
    }

    pub(super) fn set_callers(&self, steps: &Arc<Steps>) {
        let _ = self.callers.set(Arc::downgrade(steps));
    }

    /// Makes sure that the connection for pushes is up. Does nothing outside of a runtime.
    pub(super) fn listen(&self) {
        let connections = self.registry.all();
        let hears = |connection: &&Arc<Connection>| connection.purpose == Purpose::Turns;
        connections.iter().filter(hears).for_each(Connection::wake_up);
    }

    /// Asks the servers of a cluster for its map.
    ///
    /// # Cancel safety
    /// Safe: without an answer nothing changes.
    pub(super) async fn learn_map(&self) -> Result<()> {
        let moved = self.cluster.learn().await?;
        self.taken_over(&moved);
        Ok(())
    }

    /// The same, but only if no map is known: the cluster was unreachable when the engine was opened.
    ///
    /// # Cancel safety
    /// Safe: without an answer nothing changes.
    pub(super) async fn know_map(&self) -> Result<()> {
        match self.cluster.is_unknown() {
            true => self.learn_map().await,
            false => Ok(()),
        }
    }

    /// The server at the other end of `connection` may no longer be the primary: reconnects everything that
    /// is connected to it.
    pub(super) fn primary_changed(&self, connection: &Connection, why: &Refusal) {
        if self.setup.is_cluster {
            if *why == Refusal::NotPrimary {
                connection.reconnect();
            }
            return;
        }
        // Reconnecting helps only where sentinels may name another server, and is done at most once a second.
        let asks = *why == Refusal::NotPrimary || matches!(connection.target, Target::Sentinels);
        if asks {
            self.registry.reconnect_all(self.setup.now());
        }
    }

    /// The partitions of a cluster whose pushes this connection must receive, because claims wait there.
    pub(super) fn waited_for_at(&self, connection: &Connection) -> Vec<u16> {
        let Target::Fixed(address) = &connection.target else { return Vec::new() };
        if !self.setup.is_cluster || connection.purpose != Purpose::Turns {
            return Vec::new();
        }
        let mut waited_for = self.waiting.places.partitions();
        waited_for.retain(|partition| self.cluster.owner(*partition).as_ref() == Some(address));
        waited_for
    }

    /// The partition is now kept at `address`: pushes to the claims that wait there come from that server.
    pub(super) fn moved(&self, partition: u16, address: Address) {
        if self.cluster.set(partition, address) {
            self.taken_over(&[partition]);
        }
    }

    /// Other servers now keep these partitions, and may not know everything that was granted. A server that
    /// keeps a partition for the second time needs another hello, which raises its numbers.
    pub(super) fn taken_over(&self, partitions: &[u16]) {
        let connections = self.registry.all();
        for partition in partitions {
            connections.iter().for_each(|connection| connection.greet_again(*partition));
            self.follow(*partition);
        }
        self.waiting.check_holds_in(partitions);
    }

    /// Subscribes to the partition's pushes at the server that now keeps it, if claims wait there.
    fn follow(&self, partition: u16) {
        let steps = self.callers.get().and_then(Weak::upgrade);
        if let Some(steps) = steps.filter(|_| self.waiting.places.partitions().contains(&partition))
            && let Ok(connection) = steps.router.to(partition)
        {
            connection.subscribe(partition);
        }
    }

    /// The server at the other end of `connection` is not the one from before: it may not know the last grants.
    pub(super) fn is_another(&self, connection: &Connection) {
        match (&connection.target, self.setup.is_cluster) {
            (Target::Fixed(address), true) => {
                self.waiting.check_holds_in(&self.cluster.all_kept_by(address));
            }
            _ => self.waiting.check_holds_in(&[0]),
        }
    }

    /// The server at the other end of `connection` no longer keeps the partition.
    pub(super) fn unsubscribed(&self, connection: &Connection, channel: &str) {
        let tag = channel.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        if let Some(partition) = tag.and_then(|(partition, _)| partition.parse().ok()) {
            connection.unsubscribed(partition);
            self.follow(partition);
        }
    }
}
