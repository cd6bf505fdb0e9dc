//! One server.

use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::Signal;

use super::launch::Launch;
use super::process::Process;
use super::{Build, Connection, Reply, ServerError};

/// How long a server may take to end when it is asked to: it waits 10 s for replicas that lag.
const PATIENCE: Duration = Duration::from_secs(15);

/// A server of its own. Dropping it kills it and removes its folder.
#[derive(Debug)]
pub struct Redis {
    // First, so that it is gone before its folder is.
    process: Mutex<Process>,
    launch: Launch,
}

impl Redis {
    /// How a server is to be; then [`Build::start`].
    pub fn build() -> Build {
        Build::default()
    }

    pub(crate) fn new(launch: Launch, process: Process) -> Redis {
        Redis { process: Mutex::new(process), launch }
    }

    /// Where it listens, on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// Its process; another one after each [`restart`](Redis::restart).
    #[must_use]
    pub fn pid(&self) -> u32 {
        self.process().id()
    }

    /// Where clients find it: `redis://127.0.0.1:PORT`, `rediss://` with TLS, `unix://PATH` if it
    /// listens on its socket alone. It has no credentials in it.
    #[must_use]
    pub fn url(&self) -> String {
        self.launch.url.clone()
    }

    /// Its Unix socket, which is always there.
    #[must_use]
    pub fn socket_path(&self) -> &Path {
        &self.launch.socket
    }

    /// Where its configuration, its log and what it keeps are.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.launch.folder.path()
    }

    /// The last lines of its log.
    #[must_use]
    pub fn log(&self) -> String {
        self.launch.log_tail()
    }

    /// Kills it and waits for its end, as if its machine had failed.
    pub fn kill(&self) -> Result<(), ServerError> {
        self.process().kill()
    }

    /// Asks it to end and waits for that: it saves what it is configured to save.
    pub fn terminate(&self) -> Result<(), ServerError> {
        self.process().terminate(PATIENCE)
    }

    /// Stops it where it is: connections stay open and nothing is answered. Returns when it stands.
    pub fn pause(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.signal(Signal::STOP)?;
        let status = format!("/proc/{}/stat", process.id());
        super::eventually("the server stands still", Duration::from_secs(5), || {
            let stat = std::fs::read_to_string(&status).unwrap_or_default();
            stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    /// Lets it go on.
    pub fn resume(&self) -> Result<(), ServerError> {
        self.process().signal(Signal::CONT)
    }

    /// Starts it again with the same port, folder and settings, and waits until it answers. If it
    /// still runs, it is killed first.
    pub fn restart(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        process.kill()?;
        *process = self.launch.run()?;
        Ok(())
    }

    /// Whether its process runs; a paused one does.
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.process().ended().is_none()
    }

    /// Sends a command on a connection of its own and waits for the reply; a refusal is a reply too.
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

    /// How many bytes a key takes; nothing if it is not there.
    #[must_use]
    pub fn memory_of(&self, key: &str) -> Option<u64> {
        let usage = self.command(&["MEMORY", "USAGE", key, "SAMPLES", "0"]).ok()?;
        usage.int().and_then(|bytes| u64::try_from(bytes).ok())
    }

    /// Whether it is a replica that has all that its primary has.
    #[must_use]
    pub fn is_synced_replica(&self) -> bool {
        self.info("master_link_status").as_deref() == Some("up")
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line `field:value` of what `INFO` and `CLUSTER INFO` answer.
pub(crate) fn find_field(info: &str, field: &str) -> Option<String> {
    let mut lines = info.lines().filter_map(|line| line.trim_end().split_once(':'));
    lines.find(|(name, _)| *name == field).map(|(_, value)| value.to_owned())
}
