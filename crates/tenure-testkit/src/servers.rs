//! Real servers that are started for a test and end with it.
//!
//! Each server has its own folder and port, so tests can run concurrently. Starting, stopping and commands
//! block: they are for the test, not for the code under test. A server ends when its value is dropped, and also
//! when the test process is killed: the kernel then kills the server, too.

mod anvil;
mod build;
mod certificates;
mod clock;
mod cluster;
mod database;
mod flavour;
mod folder;
mod hardhat;
mod http;
mod launch;
mod libraries;
mod pgbouncer;
mod ports;
mod postgres;
mod process;
mod redis;
mod reply;
mod sentinels;
mod slots;

use std::fmt;
use std::time::{Duration, Instant};

pub use anvil::{Anvil, AnvilBuild, Mining};
pub use build::{Build, Fsync};
pub use certificates::Certificates;
pub use clock::Clock;
pub use cluster::Cluster;
pub use database::PostgresDatabase;
pub use flavour::Flavour;
pub use folder::Folder;
pub use hardhat::{Hardhat, RealNode};
pub use libraries::{Javascript, Python};
pub use pgbouncer::Pgbouncer;
pub(crate) use ports::free as free_port;
pub use postgres::{Postgres, PostgresBuild, PostgresVersion};
pub use redis::Redis;
pub use reply::{Connection, Reply};
pub use sentinels::Sentinels;

/// Why a server did not start, or did not do what it was told.
#[derive(Debug)]
pub struct ServerError {
    what: String,
}

impl ServerError {
    fn new(what: impl Into<String>) -> ServerError {
        ServerError { what: what.into() }
    }

    /// For `map_err`: adds what was being done as a prefix.
    fn during<E: fmt::Display>(what: impl fmt::Display) -> impl FnOnce(E) -> ServerError {
        move |error| ServerError::new(format!("{what}: {error}"))
    }
}

impl fmt::Display for ServerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.what)
    }
}

impl std::error::Error for ServerError {}

/// Polls every few milliseconds until `holds` returns true; after `bound` it is an error that names `what`.
pub fn eventually(
    what: &str,
    bound: Duration,
    mut holds: impl FnMut() -> bool,
) -> Result<(), ServerError> {
    let began = Instant::now();
    while !holds() {
        if began.elapsed() > bound {
            return Err(ServerError::new(format!("not within {bound:?}: {what}")));
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}
