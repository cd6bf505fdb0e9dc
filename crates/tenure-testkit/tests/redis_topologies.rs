//! Ways to reach Redis, and several servers at once: TLS, users, sockets, replicas, sentinels, clusters.
//!
//! Tests carry the number of their scenario. Each has servers of its own.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "redis_topologies/cluster.rs"]
mod cluster;
mod probe_redis;
#[path = "redis_topologies/reach.rs"]
mod reach;
#[path = "redis_topologies/replicas.rs"]
mod replicas;
#[path = "redis_topologies/rights.rs"]
mod rights;
#[path = "redis_topologies/sentinels.rs"]
mod sentinels;
