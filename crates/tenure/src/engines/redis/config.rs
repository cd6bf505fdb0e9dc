//! The configuration of the engine, as plain data.
//!
//! `config/url.rs` reads it from a URL. [`RedisConfig::check`] is the one place that decides what is
//! allowed, no matter how the fields were set. Passwords are [`Secret`]s and never printed.

mod url;

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use crate::model::error::{Error, Result};

const SHORTEST_TTL: Duration = Duration::from_millis(50);
const LONGEST_TTL: Duration = Duration::from_secs(24 * 60 * 60);
const SHORTEST_TIMEOUT: Duration = Duration::from_millis(10);
const LONGEST_TIMEOUT: Duration = Duration::from_secs(10 * 60);
const MOST_REPLICAS: u32 = 100;
/// The longest namespace and the longest client name, in characters.
const LONGEST_NAME: usize = 64;

/// How to connect to Redis.
///
/// [`new`](RedisConfig::new) sets the defaults, [`from_url`](RedisConfig::from_url) reads a URL.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct RedisConfig {
    /// One server, a group watched by sentinels, or a cluster.
    pub topology: Topology,
    /// The database number. A cluster has only database 0. Default: 0.
    pub db: u32,
    /// The user. Default: none, which is the server's `default` user.
    pub user: Option<String>,
    /// The password. Default: none.
    pub password: Option<Secret>,
    /// The user for the sentinels. Default: none.
    pub sentinel_user: Option<String>,
    /// The password for the sentinels. Default: none.
    pub sentinel_password: Option<Secret>,
    /// TLS for every connection, including those to sentinels. Default: none, which is plain text.
    pub tls: Option<Tls>,
    /// The prefix of all keys and channels: 1 to 64 of `A-Z a-z 0-9 . _ : -`. Programs share locks only if
    /// they use the same namespace. Default: `tenure`.
    pub namespace: String,
    /// The name of the connections in `CLIENT LIST`: printable ASCII without spaces.
    /// Default: `tenure`.
    pub client_name: String,
    /// How long connecting may take, including TLS and login. Default: 5 s.
    pub connect_timeout: Duration,
    /// How long the server may answer nothing while answers are due. Default: 2 s.
    pub command_timeout: Duration,
    /// How many replicas must have a grant before it counts, at most 100. Default: 0.
    pub wait_replicas: u32,
    /// How long to wait for the replicas; must be shorter than `command_timeout`. Default: 1 s.
    pub wait_timeout: Duration,
    /// What to do after the server has restarted and may have lost holds. Default: grant.
    pub after_restart: AfterRestart,
    /// The longest ttl that a claim may ask for, 50 ms to 24 h. Default: 24 h, or 60 s with
    /// [`AfterRestart::Wait`], which waits this long after a restart.
    pub max_ttl: Option<Duration>,
    /// Whether to refuse a server that may evict keys when its memory is full. Default: no.
    pub require_noeviction: bool,
}

/// How the servers are arranged.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Topology {
    /// One server.
    Single(Address),
    /// Sentinels, which know where the primary of a service is.
    Sentinel {
        /// The sentinels, asked in this order.
        sentinels: Vec<Address>,
        /// The name under which they monitor the primary.
        service: String,
    },
    /// Some servers of a cluster, from which the others are discovered.
    Cluster(Vec<Address>),
}

/// Where a server listens.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Address {
    /// A host and a port.
    Tcp {
        /// A name or an IP address; IPv6 without brackets.
        host: String,
        /// The port.
        port: u16,
    },
    /// A Unix socket.
    Unix(PathBuf),
}

/// How to use TLS. The server's certificate is always verified.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Tls {
    /// A PEM file with the roots to trust instead of the system's. Default: the system's roots.
    pub ca: Option<PathBuf>,
    /// A PEM file with the client's certificate chain; needs `key`. Default: none.
    pub cert: Option<PathBuf>,
    /// A PEM file with the private key of `cert`. Default: none.
    pub key: Option<PathBuf>,
    /// The name that the server's certificate must be valid for. Default: the host of the address.
    pub server_name: Option<String>,
}

/// What to do after the server has restarted and may have lost holds.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum AfterRestart {
    /// Grant at once. Right if the server keeps everything it has acknowledged, or if the fence is checked.
    #[default]
    Grant,
    /// Grant nothing until every hold from before the restart has ended.
    Wait,
}

/// A password. Its `Debug` output does not contain it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a password.
    pub fn new(text: impl Into<String>) -> Secret {
        Secret(text.into())
    }

    /// The password. Only for logging in.
    pub(crate) fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// `host:port`, with brackets around IPv6, or the path.
impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Tcp { host, port } if host.contains(':') => write!(f, "[{host}]:{port}"),
            Address::Tcp { host, port } => write!(f, "{host}:{port}"),
            Address::Unix(path) => path.display().fmt(f),
        }
    }
}

impl RedisConfig {
    /// The schemes of the URLs that [`from_url`](RedisConfig::from_url) reads.
    pub const SCHEMES: [&str; 8] = crate::engines::REDIS_SCHEMES;

    /// A configuration with the defaults.
    pub fn new(topology: Topology) -> RedisConfig {
        RedisConfig {
            topology,
            db: 0,
            user: None,
            password: None,
            sentinel_user: None,
            sentinel_password: None,
            tls: None,
            namespace: "tenure".to_owned(),
            client_name: "tenure".to_owned(),
            connect_timeout: Duration::from_secs(5),
            command_timeout: Duration::from_secs(2),
            wait_replicas: 0,
            wait_timeout: Duration::from_secs(1),
            after_restart: AfterRestart::Grant,
            max_ttl: None,
            require_noeviction: false,
        }
    }

    /// Reads a URL. Also returns the query options that are not for Redis, such as `ttl` and `wait`,
    /// percent-decoded.
    ///
    /// | URL | what |
    /// |---|---|
    /// | `redis://[user[:password]@]host[:6379][/db]` | one server |
    /// | `redis+unix:///path/to.sock[?db=0]`, `unix:///…` | one server on this machine |
    /// | `redis-sentinel://[user[:password]@]h1[:26379],h2/service[/db]` | the primary that sentinels know |
    /// | `redis-cluster://[user[:password]@]h1[:6379],h2` | a cluster |
    ///
    /// `rediss://`, `rediss-sentinel://` and `rediss-cluster://` are the same over TLS. IPv6 is written
    /// in brackets; user, password, path and options are percent-decoded.
    ///
    /// Options: `namespace`, `client_name`, `db`, `connect_timeout`, `command_timeout`,
    /// `wait_replicas`, `wait_timeout`, `after_restart=grant|wait`, `max_ttl`, `require=noeviction`;
    /// with sentinels `sentinel_user` and `sentinel_password`; with TLS `ca`, `cert`, `key` and
    /// `server_name`.
    ///
    /// ```
    /// use tenure::engines::redis::RedisConfig;
    ///
    /// let url = "rediss://app:s3cret@cache.example/2?namespace=billing&ttl=5s";
    /// let (config, rest) = RedisConfig::from_url(url)?;
    /// assert_eq!(config.label(), "rediss://cache.example:6379/2");
    /// assert_eq!(rest, [("ttl".to_owned(), "5s".to_owned())]);
    /// # Ok::<(), tenure::Error>(())
    /// ```
    pub fn from_url(url: &str) -> Result<(RedisConfig, Vec<(String, String)>)> {
        let (config, rest) = url::parse(url)?;
        config.check()?;
        Ok((config, rest))
    }

    /// The URL without user, password and options, for logs and errors.
    pub fn label(&self) -> String {
        let scheme = if self.tls.is_some() { "rediss" } else { "redis" };
        let db = self.db;
        match &self.topology {
            Topology::Single(Address::Unix(path)) => {
                format!("redis+unix://{}?db={db}", path.display())
            }
            Topology::Single(address) => format!("{scheme}://{address}/{db}"),
            Topology::Sentinel { sentinels, service } => {
                format!("{scheme}-sentinel://{}/{service}/{db}", joined(sentinels))
            }
            Topology::Cluster(nodes) => format!("{scheme}-cluster://{}", joined(nodes)),
        }
    }

    /// The longest ttl that a claim may ask for: `max_ttl` or its default.
    pub(crate) fn longest_ttl(&self) -> Duration {
        self.max_ttl.unwrap_or(match self.after_restart {
            AfterRestart::Grant => LONGEST_TTL,
            AfterRestart::Wait => Duration::from_secs(60),
        })
    }

    /// Refuses a configuration that cannot work, before anything is sent.
    pub(crate) fn check(&self) -> Result<()> {
        self.check_topology()?;
        self.check_tls()?;
        // Braces would start a hash tag, and put every line of a cluster on one server.
        check_name("namespace", &self.namespace, "A-Z a-z 0-9 . _ : -", |c| {
            c.is_ascii_alphanumeric() || "._:-".contains(c)
        })?;
        let printable = "printable ASCII without spaces";
        check_name("client_name", &self.client_name, printable, |c| c.is_ascii_graphic())?;
        let timeouts = SHORTEST_TIMEOUT..=LONGEST_TIMEOUT;
        check_range("connect_timeout", self.connect_timeout, timeouts.clone())?;
        check_range("command_timeout", self.command_timeout, timeouts.clone())?;
        check_range("wait_timeout", self.wait_timeout, timeouts)?;
        if self.wait_replicas > 0 && self.wait_timeout >= self.command_timeout {
            let (wait, command) = (self.wait_timeout, self.command_timeout);
            let reason = format!("wait_timeout {wait:?} is not below command_timeout {command:?}");
            return Err(Error::invalid(reason).next("lower wait_timeout or raise command_timeout"));
        }
        check_range("wait_replicas", self.wait_replicas, 0..=MOST_REPLICAS)?;
        check_range("max_ttl", self.longest_ttl(), SHORTEST_TTL..=LONGEST_TTL)
    }

    fn check_topology(&self) -> Result<()> {
        let addresses = match &self.topology {
            Topology::Single(address) => std::slice::from_ref(address),
            Topology::Sentinel { sentinels, service } => {
                check_service(service)?;
                sentinels
            }
            Topology::Cluster(_) if self.db != 0 => {
                let reason = format!("a cluster has no database {}", self.db);
                return Err(Error::invalid(reason).next("leave db out; use a namespace instead"));
            }
            Topology::Cluster(nodes) => nodes,
        };
        if addresses.is_empty() {
            return Err(Error::invalid("there is no host").next("name at least one"));
        }
        let single = matches!(self.topology, Topology::Single(_));
        if !single && addresses.iter().any(|address| matches!(address, Address::Unix(_))) {
            let reason = "a Unix socket can only be used for a single server";
            return Err(Error::invalid(reason).next("name hosts and ports"));
        }
        let sentinel_login = self.sentinel_user.is_some() || self.sentinel_password.is_some();
        if sentinel_login && !matches!(self.topology, Topology::Sentinel { .. }) {
            let reason = "sentinel_user and sentinel_password are set, but there are no sentinels";
            return Err(Error::invalid(reason).next("leave them out, or use redis-sentinel://"));
        }
        Ok(())
    }

    fn check_tls(&self) -> Result<()> {
        let Some(tls) = &self.tls else {
            return Ok(());
        };
        if let Topology::Single(Address::Unix(_)) = self.topology {
            let reason = "TLS is not supported over a Unix socket";
            return Err(Error::invalid(reason).next("leave tls out"));
        }
        if tls.cert.is_some() != tls.key.is_some() {
            let (set, missing) = if tls.cert.is_some() { ("cert", "key") } else { ("key", "cert") };
            let reason = format!("{set} is set without {missing}");
            return Err(Error::invalid(reason).next("a client certificate needs both cert and key"));
        }
        Ok(())
    }
}

fn joined(addresses: &[Address]) -> String {
    addresses.iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

fn check_service(service: &str) -> Result<()> {
    if service.is_empty() || service.chars().any(|c| c.is_control() || c.is_whitespace()) {
        let reason = "the service name for the sentinels is empty or contains spaces";
        return Err(Error::invalid(reason)
            .next("write redis-sentinel://host1,host2/service, as in `sentinel monitor`"));
    }
    Ok(())
}

fn check_name(option: &str, name: &str, allowed: &str, may: impl Fn(char) -> bool) -> Result<()> {
    if name.is_empty() || name.chars().nth(LONGEST_NAME).is_some() || !name.chars().all(may) {
        let reason =
            format!("{option} must have 1 to {LONGEST_NAME} characters, each one of {allowed}");
        return Err(Error::invalid(reason).next("choose another one"));
    }
    Ok(())
}

fn check_range<T: PartialOrd + fmt::Debug>(
    option: &str,
    value: T,
    range: std::ops::RangeInclusive<T>,
) -> Result<()> {
    if !range.contains(&value) {
        let (least, most) = range.into_inner();
        let reason =
            format!("{option} {value:?} is out of range; {least:?} to {most:?} is allowed");
        return Err(Error::invalid(reason).next("choose a value in this range"));
    }
    Ok(())
}

#[cfg(test)]
mod tests;
