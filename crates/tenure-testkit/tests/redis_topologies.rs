//! Ways to reach Redis, and several servers at once: TLS, users, sockets, replicas, sentinels, clusters.
//!
//! Tests carry the number of their scenario. Each has servers of its own.

mod cluster;
mod keeping;
mod reach;
mod replicas;
mod rights;
mod sentinels;
