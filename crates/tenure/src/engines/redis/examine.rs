//! Checks whether the servers are fit for locks.
//!
//! Every server that matters is examined over its own connection: the single server, the primary and its
//! replicas behind sentinels, or all servers of a cluster. A finding that several servers share is reported once.

mod clocks;
mod prefix;
mod rights;
mod server;

use std::future::Future;
use std::net::IpAddr;
use std::time::Duration;

use tokio::time::timeout;

use self::clocks::Ahead;
use self::rights::Rights;
use self::server::{Part, Server};
use super::cluster::node;
use super::config::{Address, Topology};
use super::connection::handshake::SerialConnection;
use super::protocol::layout::PARTITIONS;
use super::protocol::resp::Value;
use super::setup::Setup;
use super::shared::Shared;
use crate::engine::Finding;
use crate::model::error::{Error, ErrorKind, Result};

/// The time limit for all questions to one server, as a multiple of the limit for one: a large database is scanned.
const PATIENCE: u32 = 30;

/// A finding and the server it is about; `None` if it is about all servers together.
type Found = (Option<Address>, Finding);

/// What examining one server has shown.
#[derive(Default)]
struct Visit {
    findings: Vec<Finding>,
    /// The replicas that the server names.
    replicas: Vec<Address>,
    clock: Option<Ahead>,
}

/// The findings so far, and the clocks of the servers.
#[derive(Default)]
struct Round {
    found: Vec<Found>,
    clocks: Vec<(Address, Ahead)>,
}

impl Round {
    /// Returns the replicas that the server names.
    fn add(&mut self, address: &Address, visit: Visit) -> Vec<Address> {
        let about = |finding| (Some(address.clone()), finding);
        self.found.extend(visit.findings.into_iter().map(about));
        self.clocks.extend(visit.clock.map(|clock| (address.clone(), clock)));
        visit.replicas
    }

    fn end(mut self) -> Vec<Found> {
        self.found.extend(clocks::from_each_other(&self.clocks).map(|finding| (None, finding)));
        self.found
    }
}

/// Examines every server that matters.
///
/// # Cancel safety
/// Safe: the keys that were written to test permissions expire.
pub(super) async fn findings(shared: &Shared) -> Result<Vec<Finding>> {
    Examiner { shared, setup: &shared.setup }.examine().await
}

struct Examiner<'a> {
    shared: &'a Shared,
    setup: &'a Setup,
}

impl Examiner<'_> {
    async fn examine(&self) -> Result<Vec<Finding>> {
        let found = match &self.setup.config.topology {
            Topology::Single(address) => {
                let mut round = Round::default();
                round.add(address, self.visit(address, Part::Primary).await?);
                round
            }
            Topology::Sentinel { sentinels, service } => {
                self.examine_sentinels(sentinels, service).await?
            }
            Topology::Cluster(seeds) => self.examine_cluster(seeds).await?,
        };
        Ok(merged(found.end()))
    }

    async fn examine_sentinels(&self, sentinels: &[Address], service: &str) -> Result<Round> {
        let (mut named, mut silent, mut failure) = (Vec::new(), Vec::new(), None);
        for sentinel in sentinels {
            match self.shared.sentinels.ask_sentinel(sentinel, service).await {
                Ok(Some(primary)) => named.push(primary),
                Ok(None) => silent.push(format!("{sentinel} does not know {service:?}")),
                Err(error) => {
                    silent.push(format!("{sentinel} cannot be asked: {}", error.reason()));
                    failure = Some(error);
                }
            }
        }
        let Some(primary) = named.first().cloned() else {
            let unknown = || {
                let reason = format!("no sentinel knows {service:?}");
                Error::new(ErrorKind::Unavailable, reason).next("check the name of the service")
            };
            return Err(failure.unwrap_or_else(unknown));
        };
        let mut round = Round::default();
        round.found.push((None, agreement(sentinels.len(), &named, &silent)));
        for sentinel in sentinels {
            let asked = async {
                clocks::read(&mut self.shared.sentinels.talk_to_sentinel(sentinel).await?).await
            };
            // A sentinel that does not answer has been reported above.
            let clock = self
                .limited(self.setup.config.connect_timeout / 4, asked)
                .await
                .unwrap_or_default();
            round.clocks.extend(clock.map(|clock| (sentinel.clone(), clock)));
        }
        let replicas = match self.visit(&primary, Part::Primary).await {
            Ok(visit) => round.add(&primary, visit),
            Err(error) => {
                round.found.push((Some(primary), unreachable(&error, Part::Primary)));
                return Ok(round);
            }
        };
        self.visit_replicas(&replicas, &mut round).await;
        Ok(round)
    }

    async fn examine_cluster(&self, seeds: &[Address]) -> Result<Round> {
        let mut round = Round::default();
        let mut failure = Error::invalid("the URL names no server of the cluster");
        let mut known = None;
        for seed in seeds {
            match self
                .limited(self.setup.config.connect_timeout, self.shared.cluster.ask(seed))
                .await
            {
                Ok(slots) => {
                    self.shared.taken_over(&self.shared.cluster.take(seed, &slots));
                    known = Some(replicas_of(seed, &slots));
                    break;
                }
                Err(error) => failure = error,
            }
        }
        // A server that is not part of a cluster can be reached, and its own findings say so.
        let Some(replicas) = known else {
            let Some(seed) = seeds.first().filter(|_| failure.kind() != ErrorKind::Unavailable)
            else {
                return Err(failure);
            };
            round.add(seed, self.visit(seed, Part::Primary).await?);
            return Ok(round);
        };
        round.found.push((None, self.coverage()));
        for primary in self.shared.cluster.owners() {
            match self.visit(&primary, Part::Primary).await {
                Ok(visit) => drop(round.add(&primary, visit)),
                Err(error) => round.found.push((Some(primary), unreachable(&error, Part::Primary))),
            }
        }
        self.visit_replicas(&replicas, &mut round).await;
        Ok(round)
    }

    fn coverage(&self) -> Finding {
        let (kept, servers) = (self.shared.cluster.len(), self.shared.cluster.owners().len());
        if kept == usize::from(PARTITIONS) {
            return Finding::good("cluster", format!("{servers} primaries keep all slots"));
        }
        Finding::problem("cluster", format!("{kept} of {PARTITIONS} partitions have a server"))
            .why("names in the others cannot be claimed")
            .fix("redis-cli --cluster fix, on any of its servers")
    }

    async fn visit_replicas(&self, replicas: &[Address], round: &mut Round) {
        for replica in replicas {
            match self.visit(replica, Part::Replica).await {
                Ok(visit) => drop(round.add(replica, visit)),
                Err(error) => {
                    let finding = unreachable(&error, Part::Replica);
                    round.found.push((Some(replica.clone()), finding));
                }
            }
        }
    }

    /// Examines one server.
    async fn visit(&self, address: &Address, part: Part) -> Result<Visit> {
        let talk = self
            .limited(self.setup.config.connect_timeout, SerialConnection::open(self.setup, address))
            .await;
        let mut talk = match talk {
            Ok(talk) => talk,
            // A certificate was refused, or the permissions of the socket file forbid it.
            Err(error) if error.kind() == ErrorKind::Denied => {
                let fix = error
                    .advice()
                    .unwrap_or("check the certificates and permissions on both sides");
                let finding = Finding::problem("reach", error.reason()).fix(fix);
                return Ok(Visit { findings: vec![finding], ..Visit::default() });
            }
            Err(error) => return Err(error),
        };
        let looked = self.question(address, part, &mut talk);
        self.limited(self.setup.config.command_timeout * PATIENCE, looked).await
    }

    async fn question(
        &self,
        address: &Address,
        part: Part,
        talk: &mut SerialConnection<'_>,
    ) -> Result<Visit> {
        let config = &self.setup.config;
        let (user, password) = (config.user.as_deref(), config.password.as_ref());
        let enter = async {
            talk.log_in(user, password, &config.client_name).await?;
            if config.db != 0 {
                talk.ask(&[b"SELECT", config.db.to_string().as_bytes()]).await?;
            }
            Ok(())
        };
        // A server that hangs still accepts connections.
        if let Err(error) = self.limited(config.connect_timeout, enter).await {
            return match error.kind() {
                ErrorKind::Unavailable => Err(error),
                _ => Ok(Visit { findings: vec![refused(&error)], ..Visit::default() }),
            };
        }
        let shown = user.unwrap_or("default");
        let mut findings = vec![Finding::good("reach", format!("reachable, as user {shown}"))];
        let info = talk.reply(&[b"INFO"]).await?;
        let info = String::from_utf8_lossy(info.as_bytes().unwrap_or_default()).into_owned();
        let server = Server { address, part, config, info: &info };
        let told = !info.is_empty();
        if told {
            findings.extend(server.findings());
        }
        let clock = clocks::read(talk).await?;
        if part == Part::Primary && (!told || server.serves()) {
            findings.extend(self.rights(address, talk).await?);
            findings.extend(clock.map(clocks::from_ours));
            findings.extend(prefix::finding(talk, &self.setup.layout, &config.namespace).await?);
        }
        findings.push(self.exposure(address));
        Ok(Visit { findings, replicas: server::replicas(&info), clock })
    }

    async fn rights(
        &self,
        address: &Address,
        talk: &mut SerialConnection<'_>,
    ) -> Result<Vec<Finding>> {
        let config = &self.setup.config;
        let partition = self.shared.cluster.kept_by(address).unwrap_or(0);
        let (key, channel) = self.setup.layout.to_try(partition, self.setup.random());
        let rights = Rights {
            user: config.user.as_deref().unwrap_or("default"),
            namespace: &config.namespace,
            key: &key,
            channel: &channel,
            is_cluster: self.setup.is_cluster,
            waits_for_replicas: config.wait_replicas > 0,
        };
        rights.findings(address, talk).await
    }

    /// Whether others could connect or listen in.
    fn exposure(&self, address: &Address) -> Finding {
        let near = match address {
            Address::Unix(_) => true,
            Address::Tcp { host, .. } => {
                host == "localhost" || host.parse().is_ok_and(|ip: IpAddr| ip.is_loopback())
            }
        };
        if near {
            return Finding::good("exposure", "this machine only");
        }
        match (self.setup.config.password.is_some(), self.setup.config.tls.is_some()) {
            (true, true) => Finding::good("exposure", "a password, and TLS"),
            (false, _) if self.setup.config.tls.as_ref().is_some_and(|tls| tls.cert.is_some()) => {
                Finding::good("exposure", "a certificate of the client, and TLS")
            }
            (false, _) => Finding::warning("exposure", "no password")
                .why("anyone who can reach the server can release locks that others hold")
                .fix("give tenure a user of its own; docs/engines/redis.md has its line"),
            (true, false) => Finding::warning("exposure", "no TLS")
                .why("the password and the claim ids can be read on the network")
                .fix("rediss:// instead of redis://, if the server speaks TLS"),
        }
    }

    async fn limited<T>(
        &self,
        limit: Duration,
        asked: impl Future<Output = Result<T>>,
    ) -> Result<T> {
        timeout(limit, asked).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {limit:?}");
            Err(Error::new(ErrorKind::Unavailable, reason)
                .next("is the server up, and is it busy?"))
        })
    }
}

fn refused(error: &Error) -> Finding {
    Finding::problem("reach", error.reason())
        .why("the server does not accept these credentials")
        .fix("check the user, the password and the number of the database in the URL")
}

fn unreachable(error: &Error, part: Part) -> Finding {
    match part {
        Part::Primary => Finding::problem("reach", error.reason())
            .why("the names that it keeps cannot be claimed")
            .fix("is the server up, and reachable from here?"),
        Part::Replica => Finding::warning("reach", error.reason())
            .why("it may become the primary, but could not be examined")
            .fix("is the replica up, and reachable from here?"),
    }
}

/// Whether the sentinels agree.
fn agreement(all: usize, named: &[Address], silent: &[String]) -> Finding {
    let count = named.len();
    let Some(first) = named.first() else { return Finding::problem("sentinels", "none answers") };
    if let Some(other) = named.iter().find(|other| *other != first) {
        return Finding::warning("sentinels", format!("some name {first}, some {other}"))
            .why("a failover is under way, or the sentinels are cut off from each other")
            .fix("check again; SENTINEL CKQUORUM says whether they can agree");
    }
    let what = format!("{count} of {all} name {first}");
    if silent.is_empty() && all >= 3 {
        return Finding::good("sentinels", what);
    }
    if silent.is_empty() {
        return Finding::warning("sentinels", format!("{what}; the URL names fewer than three"))
            .why("if these fail, the next primary cannot be found")
            .fix("name all of them in the URL");
    }
    Finding::warning("sentinels", format!("{what}; {}", silent.join("; ")))
        .why("without a majority of sentinels, no server takes over from a primary that fails")
        .fix("bring them back, or take them out of the URL")
}

/// The replicas in a map of slots. Each item has the first slot, the last slot, the primary and the replicas.
fn replicas_of(asked: &Address, slots: &Value) -> Vec<Address> {
    let ranges = slots.as_list().unwrap_or_default().iter().filter_map(Value::as_list);
    let items = ranges.flat_map(|range| range.get(3..).unwrap_or_default());
    let mut all: Vec<_> = items.filter_map(|item| node(asked, item.as_list()?)).collect();
    all.sort_by_key(Address::to_string);
    all.dedup();
    all
}

/// Merges equal findings about several servers into one, which names the servers if there is more than one.
fn merged(found: Vec<Found>) -> Vec<Finding> {
    let mut servers: Vec<&Address> =
        found.iter().filter_map(|(server, _)| server.as_ref()).collect();
    servers.sort_by_key(|server| server.to_string());
    servers.dedup();
    let several = servers.len() > 1;
    let mut groups: Vec<(Finding, Vec<&Address>)> = Vec::new();
    for (server, finding) in &found {
        match groups.iter_mut().find(|(known, _)| known == finding) {
            Some((_, of)) => of.extend(server),
            None => groups.push((finding.clone(), server.iter().collect())),
        }
    }
    let mut all: Vec<Finding> = groups
        .into_iter()
        .map(|(finding, of)| {
            let names: Vec<_> = of.iter().map(|server| server.to_string()).collect();
            let what = match (several, of.len()) {
                (false, _) | (_, 0) => finding.what,
                (true, count) if count == servers.len() => {
                    format!("{} (all servers)", finding.what)
                }
                (true, _) => format!("{} ({})", finding.what, names.join(", ")),
            };
            Finding { what, ..finding }
        })
        .collect();
    // In the order of the checks, no matter which server came first.
    let order: Vec<_> = all.iter().map(|finding| finding.check).collect();
    let place = |check: &str| order.iter().position(|known| *known == check);
    all.sort_by_key(|finding| (place(finding.check), std::cmp::Reverse(finding.mark)));
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Mark;

    fn at(port: u16) -> Address {
        Address::Tcp { host: "h".into(), port }
    }

    #[test]
    fn a_finding_that_several_servers_share_is_reported_once() {
        let good = |what: &str| Finding::good("eviction", what);
        let bad = Finding::problem("eviction", "lru");
        let found = vec![
            (None, Finding::good("cluster", "3 primaries")),
            (Some(at(1)), Finding::good("reach", "ok")),
            (Some(at(1)), good("none")),
            (Some(at(2)), Finding::good("reach", "ok")),
            (Some(at(2)), bad.clone()),
            (Some(at(3)), Finding::good("reach", "ok")),
            (Some(at(3)), good("none")),
        ];
        let said: Vec<_> = merged(found).iter().map(Finding::to_string).collect();
        assert_eq!(
            said,
            [
                "cluster: 3 primaries",
                "reach: ok (all servers)",
                "eviction: lru (h:2)",
                "eviction: none (h:1, h:3)",
            ]
        );
        assert_eq!(merged(vec![(Some(at(2)), bad.clone())]), [bad]);
    }

    #[test]
    fn a_remote_server_needs_a_password_and_tls() {
        let mark = |url: &str| {
            let (config, _) = crate::engines::redis::RedisConfig::from_url(url).unwrap();
            let Topology::Single(address) = config.topology.clone() else { panic!("one server") };
            let redis = crate::engines::redis::Redis::unconnected(config).unwrap();
            let finding =
                Examiner { shared: &redis.steps.shared, setup: &redis.steps.shared.setup }
                    .exposure(&address);
            assert!(!format!("{finding:?}").contains("hunter2"));
            (finding.mark, finding.what)
        };
        for near in ["redis://127.8.9.10", "redis://[::1]", "redis://localhost", "unix:///r.sock"] {
            assert_eq!(mark(near).0, Mark::Good, "{near}");
        }
        for far in ["redis://10.0.0.1", "redis://redis-1", "rediss://[2001:db8::1]"] {
            assert_eq!(mark(far), (Mark::Warning, "no password".to_owned()), "{far}");
        }
        assert_eq!(mark("redis://:hunter2@redis-1"), (Mark::Warning, "no TLS".to_owned()));
        assert_eq!(mark("rediss://u:hunter2@redis-1").0, Mark::Good);
    }

    #[test]
    fn sentinels_must_agree_and_be_three() {
        let (one, two) = (at(1), at(2));
        let three = [one.clone(), one.clone(), one.clone()];
        assert_eq!(agreement(3, &three, &[]).mark, Mark::Good);
        assert_eq!(agreement(1, &three[..1], &[]).mark, Mark::Warning);
        let silent = ["h:9 cannot be asked: refused".to_owned()];
        let found = agreement(3, &three[..2], &silent);
        assert!(found.mark == Mark::Warning && found.what.contains("h:9"), "{found:?}");
        let found = agreement(3, &[one.clone(), two, one], &[]);
        assert!(found.what.contains("some name h:1, some h:2"), "{found:?}");
    }
}
