//! Which server of a cluster keeps which partition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{Address, Topology};
use super::connection::handshake::SerialConnection;
use super::protocol::layout::PARTITIONS;
use super::protocol::resp::Value;
use super::router::beside;
use super::setup::Setup;
use crate::model::error::{Error, ErrorKind, Result};

/// A map from partitions to servers, as far as it is known.
pub(super) struct ClusterMap {
    setup: Arc<Setup>,
    owners: Mutex<HashMap<u16, Address>>,
}

impl ClusterMap {
    pub(super) fn new(setup: Arc<Setup>) -> ClusterMap {
        ClusterMap { setup, owners: Mutex::default() }
    }

    fn owners_now(&self) -> MutexGuard<'_, HashMap<u16, Address>> {
        self.owners.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn owner(&self, partition: u16) -> Option<Address> {
        self.owners_now().get(&partition).cloned()
    }

    /// Returns whether this changes the map.
    pub(super) fn set(&self, partition: u16, address: Address) -> bool {
        self.owners_now().insert(partition, address.clone()) != Some(address)
    }

    /// Returns some partition that the server keeps.
    pub(super) fn kept_by(&self, address: &Address) -> Option<u16> {
        self.owners_now()
            .iter()
            .find(|(_, owner)| *owner == address)
            .map(|(partition, _)| *partition)
    }

    pub(super) fn all_kept_by(&self, address: &Address) -> Vec<u16> {
        let map = self.owners_now();
        map.iter().filter(|(_, owner)| *owner == address).map(|(partition, _)| *partition).collect()
    }

    /// The number of partitions whose server is known.
    pub(super) fn len(&self) -> usize {
        self.owners_now().len()
    }

    pub(super) fn owners(&self) -> Vec<Address> {
        let mut all: Vec<Address> = self.owners_now().values().cloned().collect();
        all.sort_by_key(Address::to_string);
        all.dedup();
        all
    }

    /// Whether this is a cluster whose map has not been read yet.
    pub(super) fn is_unknown(&self) -> bool {
        self.setup.is_cluster && self.len() == 0
    }

    /// Asks one server after another for the cluster's map until one knows it. Returns the partitions that
    /// have moved.
    ///
    /// # Cancel safety
    /// Safe: without an answer nothing changes.
    pub(super) async fn learn(&self) -> Result<Vec<u16>> {
        let config = &self.setup.config;
        let Topology::Cluster(seeds) = &config.topology else { return Ok(Vec::new()) };
        let mut failure = None;
        for address in self.owners().iter().chain(seeds) {
            let limit = config.connect_timeout / 4;
            match tokio::time::timeout(limit, self.ask(address)).await {
                Ok(Ok(slots)) => return Ok(self.take(address, &slots)),
                Ok(Err(error)) => failure = Some(error),
                Err(_) => {
                    let reason = format!("{address} did not answer within {limit:?}");
                    failure = Some(Error::new(ErrorKind::Unavailable, reason));
                }
            }
        }
        Err(failure.unwrap_or_else(|| Error::invalid("the URL names no server of the cluster")))
    }

    pub(super) async fn ask(&self, address: &Address) -> Result<Value> {
        let mut talk = SerialConnection::open(&self.setup, address).await?;
        talk.log_in_to_server(&self.setup.config).await?;
        talk.ask(&[b"CLUSTER", b"SLOTS"]).await.map_err(|error| match error.kind() {
            ErrorKind::Internal => {
                let reason = "the server is not part of a cluster";
                Error::new(ErrorKind::Unsupported, reason).next("use redis://")
            }
            _ => error,
        })
    }

    /// Takes over a map as `CLUSTER SLOTS` prints it: each item has the first slot, the last slot, the
    /// primary as host and port, and the replicas. Returns the partitions that have moved.
    pub(super) fn take(&self, asked: &Address, slots: &Value) -> Vec<u16> {
        let mut moved = Vec::new();
        for range in slots.as_list().unwrap_or_default() {
            let Some([first, last, primary, ..]) = range.as_list() else { continue };
            let (Some(first), Some(last)) = (first.as_int(), last.as_int()) else { continue };
            let Some(owner) = primary.as_list().and_then(|it| node(asked, it)) else { continue };
            for partition in 0..PARTITIONS {
                let slot = i64::from(slot(self.setup.layout.tag(partition)));
                if (first..=last).contains(&slot) && self.set(partition, owner.clone()) {
                    moved.push(partition);
                }
            }
        }
        moved
    }
}

pub(super) fn node(asked: &Address, item: &[Value]) -> Option<Address> {
    let port = u16::try_from(item.get(1)?.as_int()?).ok()?;
    let host = item.first()?.as_str().unwrap_or_default().to_owned();
    Some(beside(asked, Address::Tcp { host, port }))
}

/// The slot of a key with a hash tag: the CRC-16 (XMODEM) of the text between the braces.
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
