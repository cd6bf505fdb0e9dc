//! A Postgres server of its own.

use std::fs::File;
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rustix::process::Signal;

use super::process::{ONLY_OF_PARENT, Process};
use super::{Folder, ServerError, eventually};

/// How long it may take until it answers, and until it has ended.
const PATIENCE: Duration = Duration::from_secs(30);
/// It keeps nothing for longer than a test.
const SETTINGS: &[&str] = &[
    "listen_addresses=",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=16MB",
    "max_connections=60",
];

/// A server that listens on a Unix socket only. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    // First, so that it is gone before its folder is.
    process: Process,
    folder: Folder,
}

impl Postgres {
    /// Makes a cluster of databases and starts a server for it.
    pub fn start() -> Result<Postgres, ServerError> {
        let programs = programs()?;
        let user = User::for_server()?;
        let folder = Folder::new("pg")?;
        let data = folder.path().join("data");
        std::fs::create_dir(&data).map_err(ServerError::during("cannot make a folder"))?;
        for path in [folder.path(), &data] {
            user.give(path)?;
        }
        let log_path = folder.path().join("server.log");
        let log = File::create(&log_path).map_err(ServerError::during("cannot make a log"))?;
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        initdb.arg("--locale=C").arg("-D").arg(&data);
        let shared = log.try_clone().map_err(ServerError::during("cannot share a log"))?;
        let made = initdb.stdout(shared).stderr(std::process::Stdio::null()).status();
        if !made.is_ok_and(|status| status.success()) {
            return Err(ServerError::new(format!("initdb failed: {}", tail(&log_path))));
        }
        let mut server = user.command_of_ours(&programs.join("postgres"));
        server.arg("-D").arg(&data).arg("-k").arg(folder.path());
        server.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]));
        let process = Process::start(&server, &log)?;
        let postgres = Postgres { process, folder };
        eventually("Postgres answers", PATIENCE, || {
            let mut ready = Command::new(programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(postgres.folder.path());
            ready.status().is_ok_and(|status| status.success())
        })
        .map_err(|error| ServerError::new(format!("{error}: {}", tail(&log_path))))?;
        Ok(postgres)
    }

    /// How clients find it, as a connection string.
    #[must_use]
    pub fn config(&self) -> String {
        format!("host={} user=postgres dbname=postgres", self.folder.path().display())
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // At once, and with its shared memory, which it would leave behind if it were killed.
        let _ = self.process.signal(Signal::QUIT);
        let _ = eventually("Postgres ends", PATIENCE, || self.process.ended().is_some());
    }
}

/// Where Debian keeps the programs: the newest version.
fn programs() -> Result<PathBuf, ServerError> {
    let versions = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let folders = versions.map(|version| version.path().join("bin"));
    let found = folders.filter(|folder| folder.join("initdb").is_file()).max();
    found.ok_or_else(|| {
        ServerError::new("Postgres is not installed: run `cargo xtask test`, which installs it in its first step")
    })
}

/// Whom the server runs as. It refuses to be root.
enum User {
    Same,
    Other { user: u32, group: u32 },
}

impl User {
    fn for_server() -> Result<User, ServerError> {
        if !rustix::process::geteuid().is_root() {
            return Ok(User::Same);
        }
        let users = std::fs::read_to_string("/etc/passwd")
            .map_err(ServerError::during("cannot read /etc/passwd"))?;
        let of = |name: &str| {
            let fields = users.lines().map(|line| line.split(':').collect::<Vec<_>>());
            let fields = fields.into_iter().find(|fields| fields.first() == Some(&name))?;
            let number = |at: usize| fields.get(at)?.parse().ok();
            Some(User::Other { user: number(2)?, group: number(3)? })
        };
        of("postgres").or_else(|| of("nobody")).ok_or_else(|| ServerError::new("no user to be"))
    }

    fn give(&self, path: &Path) -> Result<(), ServerError> {
        match self {
            User::Same => Ok(()),
            User::Other { user, group } => chown(path, Some(*user), Some(*group))
                .map_err(ServerError::during(format_args!("cannot give {}", path.display()))),
        }
    }

    fn command(&self, program: &Path) -> Command {
        match self {
            User::Same => Command::new(program),
            User::Other { user, group } => {
                let mut command = Command::new("setpriv");
                command.arg(format!("--reuid={user}")).arg(format!("--regid={group}"));
                command.arg("--clear-groups").arg(program);
                command
            }
        }
    }

    /// One that ends with this process. Who changes the user loses what was asked of the kernel
    /// before, so it is asked again.
    fn command_of_ours(&self, program: &Path) -> Command {
        let mut command = self.command(Path::new("setpriv"));
        command.args(["--pdeathsig", "QUIT", "sh", "-c", ONLY_OF_PARENT]);
        command.arg(std::process::id().to_string()).arg(program);
        command
    }
}

fn tail(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
