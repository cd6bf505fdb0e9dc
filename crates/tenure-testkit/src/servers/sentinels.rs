//! A primary with replicas, and sentinels that choose the next primary.

use std::time::Duration;

use super::{Clock, Flavour, Redis, ServerError, eventually};

/// The name of the service at the sentinels.
const SERVICE: &str = "mymaster";
const SENTINELS: usize = 3;
const PATIENCE: Duration = Duration::from_secs(20);

/// Sentinels that check more often than once a second, because tests have little time. With pings as rare as by
/// default, 500 ms would be too short: a link that was cut is made again only after a second. More frequent
/// pings are not possible either: what replicas report, once a second, counts for five pings.
const HASTE: &[&str] = &[
    "SENTINEL",
    "DEBUG",
    "PING-PERIOD",
    "300",
    "INFO-PERIOD",
    "500",
    "PUBLISH-PERIOD",
    "500",
    "ASK-PERIOD",
    "200",
];

/// A primary, its replicas and three sentinels, two of which must agree. A primary counts as down after 500 ms;
/// a former primary becomes a replica after some 2 s. Redis 6.2 is slower: 2 s, and 8 s or more.
#[derive(Debug)]
pub struct Sentinels {
    nodes: Vec<Redis>,
    sentinels: Vec<Redis>,
}

impl Sentinels {
    /// Starts all of them, and waits until the replicas are in sync and the sentinels know each other and the
    /// servers.
    pub fn start(replicas: usize) -> Result<Sentinels, ServerError> {
        Sentinels::start_with(Flavour::Debian, replicas)
    }

    /// The same, but as in production a former primary becomes a replica only some 8 s after it was replaced:
    /// until then it accepts writes.
    pub fn start_slow_to_demote(replicas: usize) -> Result<Sentinels, ServerError> {
        let started = Sentinels::start(replicas)?;
        for sentinel in &started.sentinels {
            // They wait for four of these periods.
            sentinel.command(&["SENTINEL", "DEBUG", "PUBLISH-PERIOD", "2000"])?.accepted()?;
        }
        Ok(started)
    }

    /// The same with other programs.
    pub fn start_with(flavour: Flavour, replicas: usize) -> Result<Sentinels, ServerError> {
        Sentinels::start_as(flavour, replicas, None)
    }

    /// The same, with replicas that see another time than the primary.
    pub fn start_with_clock(replicas: usize, clock: &Clock) -> Result<Sentinels, ServerError> {
        Sentinels::start_as(Flavour::Debian, replicas, Some(clock))
    }

    fn start_as(
        flavour: Flavour,
        replicas: usize,
        clock: Option<&Clock>,
    ) -> Result<Sentinels, ServerError> {
        let primary = Redis::build().flavour(flavour).start()?;
        let port = primary.port();
        let mut nodes = vec![primary];
        for _ in 0..replicas {
            let build = Redis::build().flavour(flavour).replica_of(port);
            let build = if let Some(clock) = clock { build.clock(clock) } else { build };
            nodes.push(build.start()?);
        }
        eventually("the replicas are in sync", PATIENCE, || {
            nodes.iter().skip(1).all(Redis::is_synced_replica)
        })?;
        let down_after = if flavour.is_modern() { 500 } else { 2000 };
        let watch = || {
            let sentinel = Redis::build()
                .flavour(flavour)
                .sentinel()
                .setting("sentinel monitor", &format!("{SERVICE} 127.0.0.1 {port} 2"))
                .setting("sentinel down-after-milliseconds", &format!("{SERVICE} {down_after}"))
                .setting("sentinel failover-timeout", &format!("{SERVICE} 2000"))
                .setting("sentinel parallel-syncs", &format!("{SERVICE} 5"))
                .start()?;
            if flavour.is_modern() {
                sentinel.command(HASTE)?.accepted()?;
            }
            Ok(sentinel)
        };
        let sentinels = (0..SENTINELS).map(|_| watch()).collect::<Result<_, _>>()?;
        let started = Sentinels { nodes, sentinels };
        eventually("the sentinels know everyone", PATIENCE, || started.know_everyone())?;
        Ok(started)
    }

    /// `redis-sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/mymaster`.
    #[must_use]
    pub fn url(&self) -> String {
        let hosts = self.sentinels.iter().map(|node| format!("127.0.0.1:{}", node.port()));
        format!("redis-sentinel://{}/{SERVICE}", hosts.collect::<Vec<_>>().join(","))
    }

    /// The name of the service at the sentinels.
    #[must_use]
    pub fn service(&self) -> &str {
        SERVICE
    }

    /// The current primary, according to most of the running sentinels.
    pub fn primary(&self) -> Result<&Redis, ServerError> {
        let views = self.sentinels.iter().filter_map(primary_of);
        let views: Vec<_> = views.collect();
        let most = views.iter().max_by_key(|view| views.iter().filter(|v| v == view).count());
        let primary = self.nodes.iter().find(|node| Some(&node.port()) == most);
        primary.ok_or_else(|| ServerError::new("no sentinel knows a primary"))
    }

    /// Primary and replicas; the first is the first primary.
    #[must_use]
    pub fn nodes(&self) -> &[Redis] {
        &self.nodes
    }

    /// The sentinels.
    #[must_use]
    pub fn sentinels(&self) -> &[Redis] {
        &self.sentinels
    }

    /// Waits until all sentinels agree on a primary that is not `former`, and that server says so, too. At most
    /// 20 s.
    pub fn await_failover(&self, former: &Redis) -> Result<&Redis, ServerError> {
        let mut next = None;
        eventually("the sentinels agree on another primary", PATIENCE, || {
            next = self.agreed().filter(|node| node.port() != former.port());
            next.is_some_and(|node| node.info("role").as_deref() == Some("master"))
        })
        .map_err(|error| {
            let logs: Vec<_> = self.sentinels.iter().map(Redis::log).collect();
            ServerError::new(format!("{error}; the ends of their logs:\n{}", logs.join("\n\n")))
        })?;
        next.ok_or_else(|| ServerError::new("no other primary"))
    }

    /// Orders a failover while everything is up, and waits for it.
    pub fn failover(&self) -> Result<&Redis, ServerError> {
        let former = self.primary()?;
        let sentinel = &self.sentinels[0];
        eventually("a sentinel begins a failover", PATIENCE, || {
            let begun = sentinel.command(&["SENTINEL", "FAILOVER", SERVICE]);
            begun.is_ok_and(|reply| !reply.is_error())
        })?;
        self.await_failover(former)
    }

    /// The answer of all running sentinels, if they agree.
    fn agreed(&self) -> Option<&Redis> {
        let running = self.sentinels.iter().filter(|sentinel| sentinel.is_running());
        let views: Vec<_> = running.map(primary_of).collect();
        let first = *views.first()?;
        let same = first.is_some() && views.iter().all(|view| *view == first);
        self.nodes.iter().find(|node| same && Some(node.port()) == first)
    }

    fn know_everyone(&self) -> bool {
        self.sentinels.iter().all(|sentinel| {
            let Ok(reply) = sentinel.command(&["SENTINEL", "MASTER", SERVICE]) else {
                return false;
            };
            let fields = reply.list();
            let is = |name: &str, value: &str| {
                let at = fields.iter().position(|field| field.text() == Some(name));
                at.and_then(|at| fields.get(at + 1)).and_then(|field| field.text()) == Some(value)
            };
            is("flags", "master")
                && is("num-slaves", &(self.nodes.len() - 1).to_string())
                && is("num-other-sentinels", &(SENTINELS - 1).to_string())
                && agrees_on_quorum(sentinel)
        })
    }
}

/// The port of the primary, according to one sentinel.
fn primary_of(sentinel: &Redis) -> Option<u16> {
    let reply = sentinel.command(&["SENTINEL", "GET-MASTER-ADDR-BY-NAME", SERVICE]).ok()?;
    reply.list().get(1)?.text()?.parse().ok()
}

fn agrees_on_quorum(sentinel: &Redis) -> bool {
    let reply = sentinel.command(&["SENTINEL", "CKQUORUM", SERVICE]);
    reply.is_ok_and(|reply| !reply.is_error())
}
