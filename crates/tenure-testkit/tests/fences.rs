//! Fences that are enforced: a holder that was paused comes back too late, and what it writes is
//! refused, wherever it writes to; with real processes, real servers and a real socket.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

#[path = "fences/http.rs"]
mod http;
#[path = "fences/paused.rs"]
mod paused;
#[path = "fences/place.rs"]
mod place;
#[path = "fences/postgres.rs"]
mod postgres;
mod probe_file;
mod probe_http;
#[path = "fences/races.rs"]
mod races;
#[path = "fences/redis.rs"]
mod redis;
#[path = "fences/site.rs"]
mod site;
#[path = "fences/sqlite.rs"]
mod sqlite;

/// Not a test: what the others start as a process of its own.
#[test]
fn puppet() {
    if std::env::var_os(probe_file::puppet::SIGN).is_some() {
        paused::play();
    }
}
