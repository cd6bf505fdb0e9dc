//! Servers whose primary is replaced.

use std::time::Duration;

use tenure_testkit::servers::{Cluster, Redis, Sentinels, ServerError, eventually};

const PATIENCE: Duration = Duration::from_secs(30);
/// The slot of a cluster whose owner is replaced: that of partition 7.
const TAG: &str = "{7}";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Mode {
    Sentinels,
    Cluster,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// An operator asks for it while all is well.
    Planned,
    /// The primary is killed.
    Forced,
}

pub(crate) enum Group {
    Sentinels(Sentinels),
    Cluster(Cluster),
}

impl Group {
    pub(crate) fn start(mode: Mode, replicas: usize) -> Group {
        match mode {
            // A former primary that is alive keeps accepting writes for some 8 s, as in production.
            Mode::Sentinels => Group::Sentinels(Sentinels::start_slow_to_demote(replicas).unwrap()),
            Mode::Cluster => Group::Cluster(Cluster::start().unwrap()),
        }
    }

    pub(crate) fn url(&self) -> String {
        match self {
            Group::Sentinels(sentinels) => sentinels.url(),
            Group::Cluster(cluster) => cluster.url(),
        }
    }

    fn primary(&self) -> Result<&Redis, ServerError> {
        match self {
            Group::Sentinels(sentinels) => sentinels.primary(),
            Group::Cluster(cluster) => cluster.owner_of(cluster.slot_of(TAG)?),
        }
    }

    /// Replaces the primary. Returns the port of the previous one once another serves.
    pub(crate) fn fail_over(&self, how: How) -> Result<u16, ServerError> {
        let former = self.primary()?;
        if how == How::Forced {
            former.kill()?;
        }
        match self {
            Group::Sentinels(sentinels) if how == How::Planned => drop(sentinels.failover()?),
            Group::Sentinels(sentinels) => drop(sentinels.await_failover(former)?),
            Group::Cluster(cluster) => {
                let replica = cluster.replica_of(former)?;
                if how == How::Planned {
                    replica.command(&["CLUSTER", "FAILOVER"])?.accepted()?;
                }
                eventually("the replica has taken over", PATIENCE, || {
                    self.primary().is_ok_and(|primary| primary.port() == replica.port())
                })?;
            }
        }
        Ok(former.port())
    }

    /// Makes the former primary a replica of the current one, and waits until all are in sync.
    pub(crate) fn mend(&self, former: u16) -> Result<(), ServerError> {
        let nodes = match self {
            Group::Sentinels(sentinels) => sentinels.nodes(),
            Group::Cluster(cluster) => cluster.nodes(),
        };
        let Some(former) = nodes.iter().find(|node| node.port() == former) else { return Ok(()) };
        if !former.is_running() {
            former.restart()?;
        }
        match self {
            Group::Sentinels(_) => {
                let primary = self.primary()?.port();
                // Sooner than the sentinels would.
                former.command(&["REPLICAOF", "127.0.0.1", &primary.to_string()])?.accepted()?;
                eventually("all are in sync", PATIENCE, || {
                    let others = nodes.iter().filter(|node| node.port() != primary);
                    others.into_iter().all(Redis::is_synced_replica)
                })
            }
            Group::Cluster(cluster) => cluster.settle(),
        }
    }
}
