//! A Redis or Valkey server.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use super::launch::Launch;
use super::process::Process;
use super::{Build, Connection, Reply, ServerError};

/// How long a server may take to end when asked to: it waits 10 s for replicas that lag.
const PATIENCE: Duration = Duration::from_secs(15);

/// A server. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Redis {
    // First, so that the process ends before its folder is removed.
    process: Mutex<Process>,
    launch: Launch,
}

impl Redis {
    /// The settings of a server; then call [`Build::start`].
    pub fn build() -> Build {
        Build::default()
    }

    pub(crate) fn new(launch: Launch, process: Process) -> Redis {
        Redis { process: Mutex::new(process), launch }
    }

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// The id of its process, which changes with each [`restart`](Redis::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Its URL: `redis://127.0.0.1:PORT`, `rediss://` with TLS, `unix://PATH` if it listens only on its socket.
    /// It contains no credentials.
    #[must_use]
    pub fn url(&self) -> String {
        self.launch.url.clone()
    }

    /// Its Unix socket, which always exists.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.launch.socket
    }

    /// The folder of its configuration, its log and its data.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.launch.folder.path()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.launch.log_tail()
    }

    /// Kills it and waits until it has ended, as if its machine had failed.
    pub fn kill(&self) -> Result<(), ServerError> {
        self.process().kill()
    }

    /// Asks it to end and waits: it saves what it is configured to save.
    pub fn terminate(&self) -> Result<(), ServerError> {
        self.process().terminate(PATIENCE)
    }

    /// Stops it (SIGSTOP): connections stay open and nothing is answered. Returns when it is stopped.
    pub fn pause(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.signal(Signal::STOP)?;
        let status = format!("/proc/{}/stat", process.id());
        super::eventually("the server stands still", Duration::from_secs(5), || {
            let stat = std::fs::read_to_string(&status).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Continues it.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process().signal(Signal::CONT)
    }

    /// Starts it again with the same port, folder and settings, and waits until it answers. If it still runs,
    /// it is killed first.
    pub fn restart(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.kill()?;
        *process = self.launch.run()?;
        Ok(())
    }

    /// Whether its process runs; a stopped one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().ended().is_none()
    }

    /// Sends a command on a separate connection and returns the reply, which may be a refusal.
    pub fn command(&self, words: &[&str]) -> Result<Reply, ServerError> {
        self.connect()?.command(words)
    }

    /// A connection for several commands, with all rights.
    pub fn connect(&self) -> Result<Connection, ServerError> {
        self.launch.connect()
    }

    /// A field of `INFO`: `info("connected_clients")`.
    #[must_use]
    pub fn info(&self, field: &str) -> Option<String> {
        let info = self.command(&["INFO", "all"]).ok()?;
        find_field(info.text()?, field)
    }

    /// The memory of a key in bytes; `None` if it does not exist.
    #[must_use]
    pub fn memory_of(&self, key: &str) -> Option<u64> {
        let usage = self.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).ok()?;
        usage.int().and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// Whether it is a replica that is in sync with its primary.
    #[must_use]
    pub fn is_synced_replica(&self) -> bool {
        self.info("master_link_status").as_deref() == Some("up")
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line `field:value` of the answers to `INFO` and `CLUSTER INFO`.
pub(crate) fn find_field(info: &str, field: &str) -> Option<String> {
    let mut lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    lines.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
}
