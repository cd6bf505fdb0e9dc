//! A cluster, and an operator's changes to it.

use std::time::Duration;

use super::redis::find_field;
use super::slots::{self, SLOTS};
use super::{Flavour, Redis, ServerError, eventually};

const PRIMARIES: usize = 3;
const PATIENCE: Duration = Duration::from_secs(30);

/// Three primaries with a replica each. A node counts as down after a second.
#[derive(Debug)]
pub struct Cluster {
    nodes: Vec<Redis>,
}

impl Cluster {
    /// Starts six nodes of Debian's Redis and forms the cluster. It is ready when all nodes see the same
    /// cluster, its state is ok, and the replicas are in sync.
    pub fn start() -> Result<Cluster, ServerError> {
        Cluster::start_with(Flavour::Debian)
    }

    /// The same with another program.
    pub fn start_with(flavour: Flavour) -> Result<Cluster, ServerError> {
        let node = |_| {
            let build = Redis::build().flavour(flavour).cluster();
            build.setting("cluster-announce-ip", "127.0.0.1").start()
        };
        let nodes = (0..PRIMARIES * 2).map(node).collect::<Result<_, _>>()?;
        let cluster = Cluster { nodes };
        cluster.form()?;
        Ok(cluster)
    }

    /// `redis-cluster://127.0.0.1:PORT,127.0.0.1:PORT`, with the first two nodes.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.nodes.iter().take(2).map(|node| format!("127.0.0.1:{}", node.port()));
        format!("redis-cluster://{}", hosts.collect::<Vec<_>>().join(","))
    }

    /// All nodes; the first three started as primaries.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The running node that owns a slot. If two nodes claim it, the one with the later epoch.
    pub fn owner_of(&self, slot: u16) -> Result<&Redis, ServerError> {
        let claims = self.running().filter_map(|node| Some((node, slots::itself(node).ok()?)));
        let owners = claims.filter(|(_, itself)| itself.owns(slot));
        let owner = owners.max_by_key(|(_, itself)| itself.epoch).map(|(node, _)| node);
        owner.ok_or_else(|| ServerError::new(format!("no running node owns slot {slot}")))
    }

    /// The slot of a key.
    pub fn slot_of(&self, key: &str) -> Result<u16, ServerError> {
        let node = self.running().next().ok_or_else(|| ServerError::new("no node runs"))?;
        let slot = node.command(&["CLUSTER", "KEYSLOT", key])?.accepted()?.int();
        let slot = slot.and_then(|slot| u16::try_from(slot).ok());
        slot.ok_or_else(|| ServerError::new(format!("no slot for {key:?}")))
    }

    /// A running replica of a primary, which may be down.
    pub fn replica_of(&self, primary: &Redis) -> Result<&Redis, ServerError> {
        let is_replica = |node: &&Redis| {
            let nodes = slots::seen_by(node).unwrap_or_default();
            let id = nodes.iter().find(|seen| seen.port == primary.port()).map(|seen| &seen.id);
            let mine = nodes.iter().find(|seen| seen.is_myself).and_then(|me| me.primary.as_ref());
            id.is_some() && mine == id
        };
        let replica = self.running().find(is_replica);
        replica.ok_or_else(|| ServerError::new("the primary has no running replica"))
    }

    /// Moves a slot with its keys as an operator does, and waits until all nodes know.
    pub fn move_slot(&self, slot: u16, to: &Redis) -> Result<(), ServerError> {
        self.begin_move(slot, to)?;
        self.migrate_keys(slot, to)?;
        self.finish_move(slot, to)?;
        self.settle()
    }

    /// First phase: from now on the owner redirects clients with `ASK` for keys that it does not have.
    pub fn begin_move(&self, slot: u16, to: &Redis) -> Result<(), ServerError> {
        let from = self.owner_of(slot)?;
        let (from_id, to_id) = (slots::itself(from)?.id, slots::itself(to)?.id);
        let slot = slot.to_string();
        to.command(&["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id])?.accepted()?;
        from.command(&["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id])?.accepted()?;
        Ok(())
    }

    /// Second phase: moves the keys that are there now, and returns their number.
    pub fn migrate_keys(&self, slot: u16, to: &Redis) -> Result<usize, ServerError> {
        let from = self.owner_of(slot)?;
        let (slot, port) = (slot.to_string(), to.port().to_string());
        let mut moved = 0;
        loop {
            let reply = from.command(&["CLUSTER", "GETKEYSINSLOT", &slot, "100"])?.accepted()?;
            let keys: Vec<_> = reply.list().iter().filter_map(|key| key.text()).collect();
            if keys.is_empty() {
                return Ok(moved);
            }
            let migrate = ["MIGRATE", "127.0.0.1", &port, "", "0", "5000", "KEYS"];
            from.command(&[migrate.as_slice(), &keys].concat())?.accepted()?;
            moved += keys.len();
        }
    }

    /// Last phase: tells the new owner first, then the old one, then the other primaries. The other nodes learn
    /// it from them; [`settle`](Cluster::settle) waits for that.
    pub fn finish_move(&self, slot: u16, to: &Redis) -> Result<(), ServerError> {
        let from = self.owner_of(slot)?;
        let id = slots::itself(to)?.id;
        let rest = self.running().filter(|node| {
            let is_primary = slots::itself(node).is_ok_and(|itself| itself.primary.is_none());
            is_primary && ![from.port(), to.port()].contains(&node.port())
        });
        let slot = slot.to_string();
        for node in [to, from].into_iter().chain(rest) {
            node.command(&["CLUSTER", "SETSLOT", &slot, "NODE", &id])?.accepted()?;
        }
        Ok(())
    }

    /// Makes a replica the primary of its slots without a vote, and waits until all running nodes know. The
    /// primary may be down; if it is up, it becomes the replica.
    pub fn failover(&self, replica: &Redis) -> Result<(), ServerError> {
        replica.command(&["CLUSTER", "FAILOVER", "TAKEOVER"])?.accepted()?;
        eventually("the replica took over", PATIENCE, || {
            slots::itself(replica).is_ok_and(|itself| !itself.slots.is_empty())
        })?;
        self.settle()
    }

    /// Waits until all running nodes see the same cluster with state ok, and their replicas are in sync. At
    /// most 30 s.
    pub fn settle(&self) -> Result<(), ServerError> {
        eventually("all nodes see the same cluster, in order", PATIENCE, || self.is_settled())
    }

    fn running(&self) -> impl Iterator<Item = &Redis> {
        self.nodes.iter().filter(|node| node.is_running())
    }

    fn form(&self) -> Result<(), ServerError> {
        let (primaries, replicas) = self.nodes.split_at(PRIMARIES);
        let each = SLOTS.div_ceil(PRIMARIES as u16);
        for (number, node) in (0..).zip(primaries) {
            let range = number * each..SLOTS.min((number + 1) * each);
            let slots: Vec<_> = range.map(|slot| slot.to_string()).collect();
            let words = ["CLUSTER", "ADDSLOTS"].into_iter().chain(slots.iter().map(|s| &**s));
            node.command(&words.collect::<Vec<_>>())?.accepted()?;
        }
        for (epoch, node) in (1..).zip(&self.nodes) {
            // A different epoch for each from the start: otherwise they have to resolve conflicts first.
            let epoch = epoch.to_string();
            node.command(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch])?.accepted()?;
        }
        self.meet()?;
        for (primary, replica) in primaries.iter().zip(replicas) {
            let id = slots::itself(primary)?.id;
            replica.command(&["CLUSTER", "REPLICATE", &id])?.accepted()?;
        }
        eventually("the replicas replicate", PATIENCE, || {
            replicas.iter().all(Redis::is_synced_replica)
        })?;
        self.settle()
    }

    /// Introduces every node to every other: gossip alone would take seconds.
    fn meet(&self) -> Result<(), ServerError> {
        for (index, node) in self.nodes.iter().enumerate() {
            let (port, bus) = (node.port().to_string(), bus_port(node)?);
            for other in &self.nodes[..index] {
                other.command(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus])?.accepted()?;
            }
        }
        let mut ids = Vec::new();
        for node in &self.nodes {
            ids.push(slots::itself(node)?.id);
        }
        ids.sort();
        // While a node is being met, it has a temporary id.
        eventually("all nodes have met", PATIENCE, || {
            self.nodes.iter().all(|node| {
                let seen = slots::seen_by(node).unwrap_or_default();
                let mut seen: Vec<_> = seen.into_iter().map(|seen| seen.id).collect();
                seen.sort();
                seen == ids
            })
        })
    }

    /// Epochs count, too: a node that does not know the newest epoch uses the same one for its next slot, and
    /// then the nodes never agree on the owner.
    fn is_settled(&self) -> bool {
        let ports: Vec<_> = self.running().map(Redis::port).collect();
        let mut views = self.running().map(|node| {
            let seen = slots::seen_by(node).unwrap_or_default();
            let running = seen.into_iter().filter(|seen| ports.contains(&seen.port));
            running.map(|seen| (seen.id, seen.primary, seen.epoch, seen.slots)).collect::<Vec<_>>()
        });
        let first = views.next().unwrap_or_default();
        first.len() == ports.len() && views.all(|view| view == first) && self.running().all(is_well)
    }
}

/// Whether a node reports the cluster state ok, and is in sync with its primary.
fn is_well(node: &Redis) -> bool {
    let Ok(info) = node.command(&["CLUSTER", "INFO"]) else { return false };
    let state = find_field(info.text().unwrap_or_default(), "cluster_state");
    let is_replica = node.info("role").as_deref() == Some("slave");
    state.as_deref() == Some("ok") && (!is_replica || node.is_synced_replica())
}

/// The port of the cluster bus.
fn bus_port(node: &Redis) -> Result<String, ServerError> {
    let reply = node.command(&["CONFIG", "GET", "cluster-port"])?.accepted()?;
    // Before 7.0 it cannot be configured.
    let default = || (node.port() + 10_000).to_string();
    Ok(reply.list().get(1).and_then(|port| port.text()).map_or_else(default, str::to_owned))
}
