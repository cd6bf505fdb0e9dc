//! Chooses the connection for a step: to the single server, to the primary that the sentinels name, or to
//! the server of a cluster that keeps the partition.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::config::{Address, Topology};
use super::connection::{Connection, Purpose, Target};
use super::shared::Shared;
use crate::model::error::{Error, ErrorKind, Result};

/// The callers' connections, or the watchdog's.
pub(super) struct Router {
    shared: Arc<Shared>,
    purpose: Purpose,
    connections: Connections,
}

enum Connections {
    One {
        commands: Arc<Connection>,
        /// The same connection, unless commands wait for replicas on theirs.
        pushes: Arc<Connection>,
    },
    Cluster(Mutex<HashMap<Address, Arc<Connection>>>),
}

impl Router {
    pub(super) fn new(shared: Arc<Shared>, purpose: Purpose) -> Router {
        let target = || match &shared.setup.config.topology {
            Topology::Single(address) => Some(Target::Fixed(address.clone())),
            Topology::Sentinel { .. } => Some(Target::Sentinels),
            Topology::Cluster(_) => None,
        };
        let connections = match (target(), target()) {
            (Some(one), Some(other)) => {
                let pushes = Connection::new(shared.clone(), one, purpose);
                // A WAIT holds up every command after it, so pushes get a connection of their own.
                let commands =
                    match shared.setup.config.wait_replicas > 0 && purpose == Purpose::Turns {
                        true => Connection::new(shared.clone(), other, Purpose::Commands),
                        false => pushes.clone(),
                    };
                Connections::One { commands, pushes }
            }
            _ => Connections::Cluster(Mutex::default()),
        };
        Router { shared, purpose, connections }
    }

    /// The connection to the server that keeps the partition.
    pub(super) fn to(&self, partition: u16) -> Result<Arc<Connection>> {
        match &self.connections {
            Connections::One { commands, pushes } => {
                if !Arc::ptr_eq(commands, pushes) {
                    pushes.wake_up();
                }
                Ok(commands.clone())
            }
            Connections::Cluster(_) => match self.shared.cluster.owner(partition) {
                Some(address) => Ok(self.at(&address)),
                None if self.shared.cluster.len() == 0 => Err(not_reached()),
                None => Err(nobody(partition)),
            },
        }
    }

    /// The connection to the server at an address, in a cluster.
    pub(super) fn at(&self, address: &Address) -> Arc<Connection> {
        match &self.connections {
            Connections::One { commands, .. } => commands.clone(),
            Connections::Cluster(connections) => {
                let mut connections = lock(connections);
                let fresh = || {
                    Connection::new(
                        self.shared.clone(),
                        Target::Fixed(address.clone()),
                        self.purpose,
                    )
                };
                connections.entry(address.clone()).or_insert_with(fresh).clone()
            }
        }
    }

    /// One connection to each server.
    pub(super) fn all(&self) -> Vec<Arc<Connection>> {
        match &self.connections {
            Connections::One { commands, .. } => vec![commands.clone()],
            Connections::Cluster(_) => {
                self.shared.cluster.owners().iter().map(|address| self.at(address)).collect()
            }
        }
    }

    pub(super) fn close(&self) {
        match &self.connections {
            Connections::One { commands, pushes } => {
                commands.close();
                pushes.close();
            }
            Connections::Cluster(connections) => {
                lock(connections).values().for_each(|connection| connection.close())
            }
        }
    }
}

fn not_reached() -> Error {
    Error::new(ErrorKind::Unavailable, "no server of the cluster has been reached yet")
}

fn nobody(partition: u16) -> Error {
    let reason = format!("no server of the cluster keeps partition {partition}");
    Error::new(ErrorKind::Unavailable, reason).not_now()
}

/// Completes an address: a server that does not know its own host is on the host of the server that named it.
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
