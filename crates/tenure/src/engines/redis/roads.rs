//! Which connection a step takes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::Shared;
use super::config::{Address, Topology};
use super::link::{Duty, Link, Target};
use super::resp::Value;
use super::wire::PARTITIONS;
use crate::model::error::{Error, ErrorKind, Result};

/// The connections of one side: the callers', or the watchdog's.
pub(super) struct Roads {
    shared: Arc<Shared>,
    duty: Duty,
    links: Links,
}

enum Links {
    One {
        commands: Arc<Link>,
        /// The same, unless commands wait for replicas there.
        pushes: Arc<Link>,
    },
    Cluster(Mutex<HashMap<Address, Arc<Link>>>),
}

impl Roads {
    pub(super) fn new(shared: Arc<Shared>, duty: Duty) -> Roads {
        let target = || match &shared.config.topology {
            Topology::Single(address) => Some(Target::Fixed(address.clone())),
            Topology::Sentinel { .. } => Some(Target::Sentinels),
            Topology::Cluster(_) => None,
        };
        let links = match (target(), target()) {
            (Some(one), Some(other)) => {
                let pushes = Link::new(shared.clone(), one, duty);
                // A command behind a WAIT would wait with it.
                let commands = match shared.config.wait_replicas > 0 && duty == Duty::Data {
                    true => Link::new(shared.clone(), other, Duty::Commands),
                    false => pushes.clone(),
                };
                Links::One { commands, pushes }
            }
            _ => Links::Cluster(Mutex::default()),
        };
        Roads { shared, duty, links }
    }

    /// The way to the server that keeps the partition.
    pub(super) fn to(&self, partition: u16) -> Result<Arc<Link>> {
        match &self.links {
            Links::One { commands, pushes } => {
                if !Arc::ptr_eq(commands, pushes) {
                    pushes.wake_up();
                }
                Ok(commands.clone())
            }
            Links::Cluster(_) => match self.shared.map.owner(partition) {
                Some(address) => Ok(self.at(&address)),
                None if self.shared.map.len() == 0 => Err(not_reached()),
                None => Err(nobody(partition)),
            },
        }
    }

    /// The way to a server by its address; in a cluster only.
    pub(super) fn at(&self, address: &Address) -> Arc<Link> {
        match &self.links {
            Links::One { commands, .. } => commands.clone(),
            Links::Cluster(links) => {
                let mut links = lock(links);
                let fresh =
                    || Link::new(self.shared.clone(), Target::Fixed(address.clone()), self.duty);
                links.entry(address.clone()).or_insert_with(fresh).clone()
            }
        }
    }

    /// One way to each server.
    pub(super) fn all(&self) -> Vec<Arc<Link>> {
        match &self.links {
            Links::One { commands, .. } => vec![commands.clone()],
            Links::Cluster(_) => {
                self.shared.map.owners().iter().map(|address| self.at(address)).collect()
            }
        }
    }

    pub(super) fn close(&self) {
        match &self.links {
            Links::One { commands, pushes } => {
                commands.close();
                pushes.close();
            }
            Links::Cluster(links) => lock(links).values().for_each(|link| link.close()),
        }
    }
}

fn not_reached() -> Error {
    Error::new(ErrorKind::Unavailable, "no server of the cluster was reached yet")
}

fn nobody(partition: u16) -> Error {
    let reason = format!("no server of the cluster keeps partition {partition}");
    Error::new(ErrorKind::Unavailable, reason).not_now()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Which server of a cluster keeps which partition, as far as we know.
#[derive(Default)]
pub(super) struct Map(Mutex<HashMap<u16, Address>>);

impl Map {
    pub(super) fn owner(&self, partition: u16) -> Option<Address> {
        lock(&self.0).get(&partition).cloned()
    }

    /// Returns whether that is news.
    pub(super) fn set(&self, partition: u16, address: Address) -> bool {
        lock(&self.0).insert(partition, address.clone()) != Some(address)
    }

    /// A partition that the server keeps.
    pub(super) fn kept_by(&self, address: &Address) -> Option<u16> {
        lock(&self.0).iter().find(|(_, owner)| *owner == address).map(|(partition, _)| *partition)
    }

    pub(super) fn all_kept_by(&self, address: &Address) -> Vec<u16> {
        let map = lock(&self.0);
        map.iter().filter(|(_, owner)| *owner == address).map(|(partition, _)| *partition).collect()
    }

    /// How many partitions have an owner.
    pub(super) fn len(&self) -> usize {
        lock(&self.0).len()
    }

    pub(super) fn owners(&self) -> Vec<Address> {
        let mut all: Vec<Address> = lock(&self.0).values().cloned().collect();
        all.sort_by_key(Address::to_string);
        all.dedup();
        all
    }
}

impl Shared {
    /// Asks the servers, one after the other, who keeps what, until one knows.
    ///
    /// # Cancel safety
    /// Safe: what was not heard is not changed.
    pub(super) async fn learn_map(&self) -> Result<()> {
        let Topology::Cluster(seeds) = &self.config.topology else { return Ok(()) };
        let mut failure = None;
        for address in self.map.owners().iter().chain(seeds) {
            let limit = self.config.connect_timeout / 4;
            match tokio::time::timeout(limit, self.ask_for_map(address)).await {
                Ok(Ok(slots)) => {
                    self.take_map(address, &slots);
                    return Ok(());
                }
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {
                    let reason = format!("{address} did not answer within {limit:?}");
                    failure = Some(Error::new(ErrorKind::Unavailable, reason));
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::invalid("no server of the cluster is named")))
    }

    /// Learns the map if nothing is known: the cluster was out of reach when it was opened.
    ///
    /// # Cancel safety
    /// Safe: what was not heard is not changed.
    pub(super) async fn know_map(&self) -> Result<()> {
        match self.has_no_map() {
            true => self.learn_map().await,
            false => Ok(()),
        }
    }

    /// Whether this is a cluster of which nothing is known.
    pub(super) fn has_no_map(&self) -> bool {
        self.is_cluster && self.map.len() == 0
    }

    pub(super) async fn ask_for_map(&self, address: &Address) -> Result<Value> {
        let config = &self.config;
        let mut talk = self.talk(address).await?;
        talk.log_in(config.user.as_deref(), config.password.as_ref(), &config.client_name).await?;
        talk.ask(&[b"CLUSTER", b"SLOTS"]).await.map_err(|error| match error.kind() {
            ErrorKind::Internal => {
                let reason = "the server is not part of a cluster";
                Error::new(ErrorKind::Unsupported, reason).next("use redis://")
            }
            _ => error,
        })
    }

    /// Each item: first slot, last slot, the primary as host and port, and the replicas.
    pub(super) fn take_map(&self, asked: &Address, slots: &Value) {
        let mut moved = Vec::new();
        for range in slots.as_list().unwrap_or_default() {
            let Some([first, last, primary, ..]) = range.as_list() else { continue };
            let (Some(first), Some(last)) = (first.as_int(), last.as_int()) else { continue };
            let Some(owner) = primary.as_list().and_then(|it| node(asked, it)) else { continue };
            for partition in 0..PARTITIONS {
                let slot = i64::from(slot(self.layout.tag(partition)));
                if (first..=last).contains(&slot) && self.map.set(partition, owner.clone()) {
                    moved.push(partition);
                }
            }
        }
        self.taken_over(&moved);
    }
}

pub(super) fn node(asked: &Address, item: &[Value]) -> Option<Address> {
    let port = u16::try_from(item.get(1)?.as_int()?).ok()?;
    let host = item.first()?.as_str().unwrap_or_default().to_owned();
    Some(beside(asked, Address::Tcp { host, port }))
}

/// A server that does not know its own host is where it was asked.
pub(super) fn beside(asked: &Address, named: Address) -> Address {
    match (asked, named) {
        (Address::Tcp { host, .. }, Address::Tcp { host: unnamed, port })
            if unnamed.is_empty() || unnamed == "?" =>
        {
            Address::Tcp { host: host.clone(), port }
        }
        (_, named) => named,
    }
}

/// The slot of a key with a hash tag: CRC-16 (XMODEM) of what is between the braces.
fn slot(key: &str) -> u16 {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    let tag = tag.map_or(key, |(tag, _)| tag);
    let crc = tag.bytes().fold(0u16, |crc, byte| {
        (0..8).fold(crc ^ u16::from(byte) << 8, |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { crc << 1 ^ 0x1021 }
        })
    });
    crc % 16384
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_servers() {
        assert_eq!(slot("123456789"), 0x31C3);
        assert_eq!(slot("foo{bar}{zap}"), slot("bar"));
        assert_eq!(slot("tenure:{17}:l:x}{y"), slot("17"));
    }
}
