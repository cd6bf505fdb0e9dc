//! The programs of servers.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::ServerError;

/// A program that speaks the protocol of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Flavour {
    /// The system's `redis-server`: 7.0 on Debian 12.
    #[default]
    Debian,
    /// Redis 6.2, the oldest supported version. Built without TLS.
    Redis62,
    /// Valkey 9. Built without TLS.
    Valkey,
}

impl Flavour {
    /// All of them.
    pub const ALL: [Flavour; 3] = [Flavour::Debian, Flavour::Redis62, Flavour::Valkey];

    /// The program to start.
    pub(crate) fn program(self) -> Result<PathBuf, ServerError> {
        let installed = match self {
            Flavour::Debian => on_path("redis-server"),
            Flavour::Redis62 => fetched("redis-6.2.14/redis-server"),
            Flavour::Valkey => fetched("valkey-9.1.2/valkey-server"),
        };
        installed.ok_or_else(|| not_installed(&format!("the server of {self:?}")))
    }

    /// Whether it is Redis 7.0 or later, or a fork of it.
    pub(crate) fn is_modern(self) -> bool {
        self != Flavour::Redis62
    }
}

fn on_path(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// A server that Debian does not have; `cargo xtask test` installs it there.
pub(crate) fn fetched(path: &str) -> Option<PathBuf> {
    Some(folder().join(path)).filter(|program| program.is_file())
}

pub(crate) fn not_installed(what: &str) -> ServerError {
    ServerError::new(format!(
        "{what} is not installed: run `cargo xtask test`, which installs it in its first step"
    ))
}

pub(crate) fn folder() -> PathBuf {
    if let Some(folder) = std::env::var_os("TENURE_SERVERS") {
        return PathBuf::from(folder);
    }
    // Cargo passes the path of the tested crate at run time; the one at build time may be that of another
    // checkout.
    let here = std::env::var_os("CARGO_MANIFEST_DIR")
        .unwrap_or_else(|| OsString::from(env!("CARGO_MANIFEST_DIR")));
    let here = Path::new(&here);
    let root = here.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
    root.unwrap_or(here).join("target").join("servers")
}
