//! The settings of a server.

use std::time::Duration;

/// The settings of a server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// How many connections there may be at a time.
    pub max_connections: usize,
    /// The same for one address, or one IPv6 network. A proxy is one address.
    pub max_connections_of_one: usize,
    /// How long the head of a request may take.
    pub head_within: Duration,
    /// How long a connection may be idle between requests.
    pub idle_within: Duration,
    /// How many waiting requests and streams one client may have at a time.
    pub max_waiting: usize,
    /// How long one request waits before it is answered with its place.
    pub longest_poll: Duration,
    /// How long the answer to one request may wait for a client that does not read it.
    pub client_within: Duration,
    /// Grants nothing for this long: holds of an earlier run, which the engine has forgotten, may still be in use.
    pub quiet_start: Duration,
    /// The longest ttl, unless the engine's own limit is lower. Where a restart forgets what is held, it must not exceed
    /// `quiet_start`, in this run or in the next: a client may hold that long without asking.
    pub longest_ttl: Duration,
    /// Whether web pages may change something on a server without tokens. For loopback only.
    pub pages_may_change: bool,
    /// How long the engine must be silent before the server reports that it is not ready. Each server adds up to as
    /// much again, so that they do not all report it at once.
    pub unready_after: Duration,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            max_connections: 20_000,
            max_connections_of_one: 10_000,
            head_within: Duration::from_secs(10),
            idle_within: Duration::from_secs(60),
            max_waiting: 10_000,
            longest_poll: Duration::from_secs(20),
            client_within: Duration::from_secs(10),
            quiet_start: Duration::ZERO,
            longest_ttl: Duration::MAX,
            pages_may_change: false,
            unready_after: Duration::from_secs(5),
        }
    }
}
