//! Compares what a server says about itself in `INFO` with what locks need. No IO.
//!
//! It uses `INFO` rather than `CONFIG` because managed services refuse `CONFIG`.

use crate::engine::Finding;
use crate::engines::redis::config::{Address, AfterRestart, RedisConfig, Topology};
use crate::engines::redis::connection::handshake::field;

/// The role of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Part {
    /// Claims go there.
    Primary,
    /// It may become the primary.
    Replica,
}

/// A server and its `INFO`.
pub(super) struct Server<'a> {
    pub(super) address: &'a Address,
    pub(super) part: Part,
    pub(super) config: &'a RedisConfig,
    pub(super) info: &'a str,
}

impl Server<'_> {
    /// All findings from `INFO`.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let mut findings = vec![self.version(), self.role()];
        if self.part == Part::Primary {
            findings.push(self.replication());
        }
        findings.extend([self.eviction(), self.persistence(), self.headroom()]);
        findings
    }

    /// Whether it can keep locks at all.
    pub(super) fn serves(&self) -> bool {
        self.field("role") == "master" && self.field("loading") != "1"
    }

    fn field(&self, name: &str) -> &str {
        field(self.info, name)
    }

    fn number(&self, name: &str) -> u64 {
        self.field(name).parse().unwrap_or(0)
    }

    fn version(&self) -> Finding {
        let (name, version) = match self.field("valkey_version") {
            "" => ("Redis", self.field("redis_version")),
            version => ("Valkey", version),
        };
        let is_cluster = self.field("cluster_enabled") == "1";
        let wants_cluster = matches!(self.config.topology, Topology::Cluster(_));
        let kind = if is_cluster { "part of a cluster" } else { "standalone" };
        let what = format!("{name} {version}, {kind}");
        // Valkey reports the version of Redis that it is compatible with here.
        let mut numbers =
            self.field("redis_version").split('.').map(|part| part.parse().unwrap_or(0));
        let pair: (u32, u32) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let needed = if is_cluster { (7, 0) } else { (6, 2) };
        if pair < needed {
            let why = format!("{}.{} or later is required", needed.0, needed.1);
            return Finding::problem("version", what).why(why).fix("upgrade the server");
        }
        if self.field("arch_bits") == "32" {
            return Finding::problem("version", format!("{what}, a 32-bit build"))
                .why("its scripts cannot print all digits of a fence")
                .fix("use a 64-bit build");
        }
        match (wants_cluster, is_cluster) {
            (false, true) => Finding::problem("version", what).fix("use redis-cluster://"),
            (true, false) => Finding::problem("version", what).fix("use redis://"),
            _ => Finding::good("version", what),
        }
    }

    fn role(&self) -> Finding {
        if self.field("loading") == "1" {
            return Finding::problem("role", "the server is loading its data")
                .why("nothing is granted until it has finished")
                .fix("wait, and check again");
        }
        match (self.part, self.field("role")) {
            (Part::Primary, "master") => Finding::good("role", "primary"),
            (Part::Replica, "master") => Finding::warning("role", "a primary, not a replica")
                .why("the servers are being reconfigured")
                .fix("look again"),
            (Part::Replica, _) if self.field("master_link_status") != "up" => {
                Finding::warning("role", "a replica that has lost contact with its primary")
                    .why("if it takes over, grants made in the meantime are lost")
                    .fix("check its log and the network between the two")
            }
            (Part::Replica, _) => Finding::good("role", "replica"),
            (Part::Primary, _) => {
                let primary =
                    format!("{}:{}", self.field("master_host"), self.field("master_port"));
                Finding::problem("role", format!("the server is a replica of {primary}"))
                    .why("a replica grants nothing")
                    .fix(format!("name the primary: {}", self.url_of(&primary)))
            }
        }
    }

    fn url_of(&self, address: &str) -> String {
        let scheme = if self.config.tls.is_some() { "rediss" } else { "redis" };
        format!("{scheme}://{address}")
    }

    /// Whether grants survive when another server takes over.
    fn replication(&self) -> Finding {
        let RedisConfig { wait_replicas, after_restart, topology, .. } = self.config;
        let online = self.info.lines().filter(|line| is_replica_online(line)).count() as u64;
        let elected = !matches!(topology, Topology::Single(_));
        let shown = match online {
            0 => "no replica".to_owned(),
            1 => "1 replica".to_owned(),
            many => format!("{many} replicas"),
        };
        if u64::from(*wait_replicas) > online {
            return Finding::problem(
                "replication",
                format!("{shown} in sync, and wait_replicas is {wait_replicas}"),
            )
            .why("no claim can be granted")
            .fix("bring the replicas back, or lower wait_replicas");
        }
        if *wait_replicas > 0 {
            let what = format!("{shown}, of which {wait_replicas} must have a grant");
            return Finding::good("replication", what);
        }
        if online == 0 && !elected {
            return Finding::good("replication", "none");
        }
        if online == 0 {
            return Finding::warning("replication", "no replica is in sync")
                .why("if this server fails, nobody can take over")
                .fix("add a replica, or find out why it is out of sync");
        }
        if *after_restart == AfterRestart::Grant {
            return Finding::warning("replication", format!("{shown}, and grants do not wait for it"))
                .why("a replica that takes over may not know the last grants: two holders until the first one notices")
                .fix("?wait_replicas=1 or ?after_restart=wait in the URL, or check fences");
        }
        if self.field("min_slaves_good_slaves").is_empty() {
            let fix = format!("{} CONFIG SET min-replicas-to-write 1", redis_cli(self.address));
            return Finding::warning("replication", format!("{shown}, and writes need none of it"))
                .why("a primary that is cut off goes on granting while another takes over")
                .fix(fix);
        }
        Finding::good("replication", format!("{shown}, and a new primary waits before it grants"))
    }

    fn eviction(&self) -> Finding {
        let policy = self.field("maxmemory_policy");
        if self.field("maxmemory") == "0" {
            return Finding::good("eviction", "none: memory is not limited");
        }
        if policy == "noeviction" {
            return Finding::good("eviction", "noeviction");
        }
        let evicted = match self.number("evicted_keys") {
            0 => "none was evicted yet".to_owned(),
            1 => "1 key was evicted".to_owned(),
            many => format!("{many} keys were evicted"),
        };
        let why = match policy.starts_with("volatile-") {
            true => "lock keys have a ttl, so this policy removes them first: two holders",
            false => "this policy removes any key when memory is full, locks too: two holders",
        };
        let cli = redis_cli(self.address);
        Finding::problem("eviction", format!("maxmemory-policy is {policy}, and {evicted}"))
            .why(why)
            .fix(format!(
                "{cli} CONFIG SET maxmemory-policy noeviction (or use a separate server for locks)"
            ))
            .code("T041")
    }

    fn persistence(&self) -> Finding {
        if self.field("aof_enabled") == "1" && self.field("aof_last_write_status") == "err" {
            return Finding::problem("persistence", "the append-only file cannot be written")
                .why("the server refuses writes, or forgets them when it restarts")
                .fix("check its log and the space on its disk");
        }
        if self.field("rdb_last_bgsave_status") == "err" {
            return Finding::warning("persistence", "the last snapshot failed")
                .why("the server refuses writes if stop-writes-on-bgsave-error is on, its default")
                .fix("check its log and the space on its disk");
        }
        if self.field("aof_enabled") == "1" {
            return Finding::good("persistence", "append-only file");
        }
        let saves = self.number("rdb_saves") > 0
            || self.field("rdb_last_bgsave_time_sec").parse::<i64>().is_ok_and(|secs| secs >= 0);
        let what = if saves { "snapshots only" } else { "no append-only file and no snapshot" };
        if self.config.after_restart == AfterRestart::Wait {
            let what = format!("{what}, and after a restart nothing is granted for a while");
            return Finding::good("persistence", what);
        }
        let why = match saves {
            true => "a crash forgets grants made since the last one: two holders for up to a ttl",
            false => "a restart forgets all holds: two holders for up to a ttl",
        };
        Finding::warning("persistence", what)
            .why(why)
            .fix("appendonly yes and appendfsync always, ?after_restart=wait in the URL, or check fences")
            .code("T042")
    }

    /// Room for connections and for keys.
    fn headroom(&self) -> Finding {
        let (clients, most) = (self.number("connected_clients"), self.number("maxclients"));
        let (used, limit) = (self.number("used_memory"), self.number("maxmemory"));
        let what = format!("{clients} of {most} clients");
        if limit > 0 && used * 10 > limit * 9 {
            let percent = used * 100 / limit;
            return Finding::warning("headroom", format!("{what}, {percent} % of maxmemory used"))
                .why("a full server refuses claims, although locks can still be released")
                .fix("raise maxmemory, or move other data elsewhere");
        }
        if most > 0 && clients * 10 > most * 8 {
            return Finding::warning("headroom", what)
                .why("a process that cannot connect cannot claim; those already connected continue")
                .fix(format!("{} CONFIG SET maxclients {}", redis_cli(self.address), most * 2));
        }
        match self.number("rejected_connections") {
            0 => Finding::good("headroom", what),
            many => Finding::warning(
                "headroom",
                format!("{what}, {many} connections were refused"),
            )
            .why("at some time since it started, the server had no room for another connection")
            .fix("raise maxclients, or find out which clients open so many"),
        }
    }
}

/// Whether a line of `INFO` describes a replica that is in sync.
fn is_replica_online(line: &str) -> bool {
    let about = line.strip_prefix("slave").and_then(|rest| rest.split_once(':'));
    about.is_some_and(|(number, facts)| {
        number.bytes().all(|byte| byte.is_ascii_digit()) && facts.contains("state=online")
    })
}

/// The replicas that a primary lists.
pub(super) fn replicas(info: &str) -> Vec<Address> {
    let fact = |facts: &str, name: &str| {
        let found = facts.split(',').find_map(|fact| fact.strip_prefix(name)?.strip_prefix('='));
        found.map(str::to_owned)
    };
    let named = info.lines().filter_map(|line| {
        let (number, facts) = line.trim_end().strip_prefix("slave")?.split_once(':')?;
        number.parse::<u32>().ok()?;
        let port = fact(facts, "port")?.parse().ok()?;
        Some(Address::Tcp { host: fact(facts, "ip")?, port })
    });
    named.collect()
}

/// How to reach the server from a shell.
pub(super) fn redis_cli(address: &Address) -> String {
    match address {
        Address::Tcp { host, port } => format!("redis-cli -h {host} -p {port}"),
        Address::Unix(path) => format!("redis-cli -s {}", path.display()),
    }
}

#[cfg(test)]
#[path = "server/tests.rs"]
mod tests;
