//! Starts a server, the first time and again.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use super::folder::Folder;
use super::process::Process;
use super::{Clock, Connection, Reply, ServerError};

/// The Unix socket in the folder of each server.
pub(crate) const SOCKET: &str = "redis.sock";
const LOG: &str = "server.log";
/// How long a server may take until it answers.
const PATIENCE: Duration = Duration::from_secs(10);

/// Everything needed to start a server; its configuration is written.
#[derive(Debug)]
pub(crate) struct Launch {
    pub(crate) program: PathBuf,
    pub(crate) folder: Folder,
    pub(crate) socket: PathBuf,
    pub(crate) port: u16,
    pub(crate) url: String,
    pub(crate) sentinel: bool,
    /// The arguments of `AUTH`; `None` without authentication.
    pub(crate) credentials: Vec<String>,
    pub(crate) clock: Option<Clock>,
}

impl Launch {
    /// Starts it and waits until it answers.
    pub(crate) fn run(&self) -> Result<Process, ServerError> {
        // A killed server leaves its socket behind, so the socket alone proves nothing.
        let _ = std::fs::remove_file(&self.socket);
        let mut command = Command::new(&self.program);
        command.arg(self.folder.path().join("server.conf"));
        if self.sentinel {
            command.arg("--sentinel");
        }
        if let Some(clock) = &self.clock {
            command.envs(clock.environment());
        }
        let mut process = Process::start(&command, &self.log()?)?;
        let began = Instant::now();
        let mut last = String::new();
        while began.elapsed() < PATIENCE {
            if let Some(status) = process.ended() {
                return Err(self.failure(&format!("ended with {status}")));
            }
            match self.connect().and_then(|mut connection| connection.command(&["PING"])) {
                Ok(Reply::Text(pong)) if pong == "PONG" => return Ok(process),
                Ok(reply) => last = reply.to_string(),
                Err(error) => last = error.to_string(),
            }
            std::thread::sleep(Duration::from_millis(3));
        }
        Err(self.failure(&format!("did not answer within {PATIENCE:?}, but said: {last}")))
    }

    /// A connection with all rights.
    pub(crate) fn connect(&self) -> Result<Connection, ServerError> {
        let mut connection = Connection::open(&self.socket)?;
        if !self.credentials.is_empty() {
            let words = [&["AUTH".to_owned()], self.credentials.as_slice()].concat();
            connection.command(&words)?.accepted()?;
        }
        Ok(connection)
    }

    /// Whether the last start failed because another process listens on its port.
    pub(crate) fn port_was_taken(&self) -> bool {
        self.log_tail().contains("Address already in use")
    }

    /// The last lines that it printed.
    pub(crate) fn log_tail(&self) -> String {
        let log = std::fs::read(self.folder.path().join(LOG)).unwrap_or_default();
        let log = String::from_utf8_lossy(&log);
        let lines: Vec<_> = log.lines().collect();
        lines[lines.len().saturating_sub(20)..].join("\n")
    }

    fn log(&self) -> Result<File, ServerError> {
        let path = self.folder.path().join(LOG);
        let opened = OpenOptions::new().create(true).append(true).open(&path);
        opened.map_err(ServerError::during(format_args!("cannot open {}", path.display())))
    }

    fn failure(&self, what: &str) -> ServerError {
        let name = self.program.file_name().map(Path::new).unwrap_or(&self.program).display();
        let (port, log) = (self.port, self.log_tail());
        ServerError::new(format!("{name} on port {port} {what}; the end of its log:\n{log}"))
    }
}
