//! A Postgres server.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::process::Process;
use super::{Clock, Folder, ServerError, eventually, free_port};

mod programs;

pub use programs::PostgresVersion;
pub(crate) use programs::User;

/// The time limits for starting and for ending.
const PATIENCE: Duration = Duration::from_secs(30);
/// Nothing has to survive the test.
const SETTINGS: &[&str] = &[
    "listen_addresses=127.0.0.1",
    "fsync=off",
    "full_page_writes=off",
    "synchronous_commit=off",
    "shared_buffers=32MB",
    "max_connections=400",
    "max_wal_senders=4",
    "wal_level=replica",
    "unix_socket_permissions=0777",
];

/// The settings of a server; then call [`PostgresBuild::start`].
#[derive(Clone, Debug, Default)]
pub struct PostgresBuild {
    version: PostgresVersion,
    settings: Vec<String>,
    clock: Option<Clock>,
    small_disk: Option<String>,
}

impl PostgresBuild {
    /// The version.
    pub fn version(mut self, version: PostgresVersion) -> PostgresBuild {
        self.version = version;
        self
    }

    /// Adds a line to `postgresql.conf`, such as `fsync=on`. The last one counts.
    pub fn setting(mut self, setting: &str) -> PostgresBuild {
        self.settings.push(setting.to_owned());
        self
    }

    /// The wall clock that it sees.
    pub fn clock(mut self, clock: &Clock) -> PostgresBuild {
        self.clock = Some(clock.clone());
        self
    }

    /// Mounts a disk of this size, such as `8m`, at `small` in the folder of the server, for the server alone. Needs
    /// root.
    pub fn small_disk(mut self, size: &str) -> PostgresBuild {
        self.small_disk = Some(size.to_owned());
        self
    }

    /// Creates a database cluster and starts a server for it.
    pub fn start(self) -> Result<Postgres, ServerError> {
        let version = self.version;
        self.start_on(|programs, user, data| {
            // Copying a cluster is five times as fast as creating one.
            let mut copy = user.command(Path::new("cp"));
            copy.arg("-a").arg(template(version, programs, user)?.path().join("data")).arg(data);
            Ok(copy)
        })
    }

    /// Starts a standby of a server, which replicates it from now on.
    pub fn start_standby_of(mut self, primary: &Postgres) -> Result<Postgres, ServerError> {
        self.version = primary.launch.version;
        self.start_on(|programs, user, data| {
            let mut copy = user.command(&programs.join("pg_basebackup"));
            copy.arg("-h").arg(primary.directory()).arg("-p").arg(primary.port().to_string());
            copy.args(["-U", "postgres", "-R", "-c", "fast", "-D"]).arg(data);
            Ok(copy)
        })
    }

    /// Starts a server on data that a command creates.
    fn start_on(
        self,
        make: impl FnOnce(&Path, &User, &Path) -> Result<Command, ServerError>,
    ) -> Result<Postgres, ServerError> {
        let PostgresBuild { version, settings, clock, small_disk } = self;
        let programs = version.programs()?;
        let user = User::for_server()?;
        let folder = Folder::new("pg")?;
        let data = folder.path().join("data");
        let log_path = folder.path().join("server.log");
        let log = File::create(&log_path).map_err(ServerError::during("cannot make a log"))?;
        user.give(folder.path())?;
        succeeds(&mut make(&programs, &user, &data)?, &log, &log_path)?;
        let port = free_port()?;
        let launch =
            PostgresLaunch { version, programs, user, folder, port, settings, clock, small_disk };
        let process = Mutex::new(launch.run()?);
        Ok(Postgres { process, launch })
    }
}

/// A server. Dropping it ends it and removes its folder.
#[derive(Debug)]
pub struct Postgres {
    // First, so that the process ends before its folder is removed.
    process: Mutex<Process>,
    launch: PostgresLaunch,
}

#[derive(Debug)]
struct PostgresLaunch {
    version: PostgresVersion,
    programs: PathBuf,
    user: User,
    folder: Folder,
    port: u16,
    settings: Vec<String>,
    clock: Option<Clock>,
    small_disk: Option<String>,
}

impl PostgresLaunch {
    fn run(&self) -> Result<Process, ServerError> {
        let log_path = self.folder.path().join("server.log");
        let log = File::options().append(true).open(&log_path);
        let log = log.map_err(ServerError::during("cannot open a log"))?;
        let mut server = self.user.command_of_ours(&self.programs.join("postgres"));
        server.arg("-D").arg(self.folder.path().join("data")).arg("-k").arg(self.folder.path());
        server.arg("-p").arg(self.port.to_string());
        let own = self.settings.iter().map(String::as_str);
        server.args(SETTINGS.iter().copied().chain(own).flat_map(|setting| ["-c", setting]));
        if let Some(clock) = &self.clock {
            server.envs(clock.environment());
        }
        if let Some(size) = &self.small_disk {
            server = on_small_disk(&server, &self.folder.path().join("small"), size);
        }
        let process = Process::start(&server, &log)?;
        eventually("Postgres answers", PATIENCE, || {
            let mut ready = Command::new(self.programs.join("pg_isready"));
            ready.arg("-q").arg("-h").arg(self.folder.path()).arg("-p").arg(self.port.to_string());
            ready.status().is_ok_and(|status| status.success())
        })
        .map_err(|error| ServerError::new(format!("{error}: {}", tail(&log_path))))?;
        Ok(process)
    }
}

impl Postgres {
    /// The settings of a server; then call [`PostgresBuild::start`].
    pub fn build() -> PostgresBuild {
        PostgresBuild::default()
    }

    /// Creates a database cluster and starts a server for it.
    pub fn start() -> Result<Postgres, ServerError> {
        Postgres::build().start()
    }

    /// Its connection string for clients.
    #[must_use]
    pub fn config(&self) -> String {
        let (folder, port) = (self.launch.folder.path().display(), self.launch.port);
        format!("host={folder} port={port} user=postgres dbname=postgres")
    }

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.launch.port
    }

    /// The URL of one of its databases.
    #[must_use]
    pub fn url(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}", self.port())
    }

    /// Runs SQL in a database, and returns the output of `psql`: fields separated by `|`.
    pub fn sql(&self, database: &str, sql: &str) -> Result<String, ServerError> {
        let mut psql = Command::new(self.launch.programs.join("psql"));
        psql.arg("-h").arg(self.launch.folder.path()).arg("-p").arg(self.port().to_string());
        psql.args([
            "-U",
            "postgres",
            "-d",
            database,
            "-X",
            "-q",
            "-A",
            "-t",
            "-v",
            "ON_ERROR_STOP=1",
        ]);
        let output = psql.arg("-c").arg(sql).output();
        let output = output.map_err(ServerError::during("cannot run psql"))?;
        if !output.status.success() {
            let says = String::from_utf8_lossy(&output.stderr);
            return Err(ServerError::new(format!("psql failed: {says}")));
        }
        Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
    }

    /// Promotes a standby, and returns when it accepts writes.
    pub fn promote(&self) -> Result<(), ServerError> {
        self.sql("postgres", "SELECT pg_promote()")?;
        eventually("the standby has been promoted", PATIENCE, || {
            self.sql("postgres", "SELECT pg_is_in_recovery()").is_ok_and(|says| says == "f")
        })
    }

    /// The end of its log.
    #[must_use]
    pub fn log(&self) -> String {
        tail(&self.launch.folder.path().join("server.log"))
    }

    /// The folder of its log and its data.
    #[must_use]
    pub fn directory(&self) -> &Path {
        self.launch.folder.path()
    }

    /// The small disk, as the server sees it.
    #[must_use]
    pub fn small_disk(&self) -> PathBuf {
        let folder = self.directory().strip_prefix("/").unwrap_or(self.directory());
        PathBuf::from(format!("/proc/{}/root", self.process().id())).join(folder).join("small")
    }

    /// Kills it with all its children, as if its machine had failed.
    pub fn kill(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        // It must not start new children for those that are killed.
        let children = stop(&mut process)?;
        signal(&children, Signal::KILL);
        process.kill()?;
        eventually("the children of Postgres end", PATIENCE, || {
            children.iter().all(|child| !runs(*child))
        })
    }

    /// Ends it at once, by an immediate shutdown.
    pub fn stop(&self) -> Result<(), ServerError> {
        self.process().signal(Signal::INT)?;
        eventually("Postgres ends", PATIENCE, || self.process().ended().is_some())
    }

    /// Starts it again with the same port, folder and settings, and waits until it answers. If it still runs,
    /// it is killed first.
    pub fn restart(&self) -> Result<(), ServerError> {
        self.kill()?;
        let _ = std::fs::remove_file(self.launch.folder.path().join("data/postmaster.pid"));
        *self.process() = self.launch.run()?;
        Ok(())
    }

    /// Stops it with all its children (SIGSTOP).
    pub fn pause(&self) -> Result<(), ServerError> {
        stop(&mut self.process())?;
        Ok(())
    }

    /// Continues it.
    pub fn resume(&self) -> Result<(), ServerError> {
        let mut process = self.process();
        signal(&children(&process), Signal::CONT);
        process.signal(Signal::CONT)
    }

    fn process(&self) -> MutexGuard<'_, Process> {
        self.process.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        let mut process = self.process.lock().unwrap_or_else(PoisonError::into_inner);
        signal(&children(&process), Signal::CONT);
        let _ = process.signal(Signal::CONT);
        // At once, and with its shared memory, which it would leave behind if it were killed.
        let _ = process.signal(Signal::QUIT);
        let _ = eventually("Postgres ends", PATIENCE, || process.ended().is_some());
    }
}

/// The same command, with a disk that only it and its children see.
fn on_small_disk(server: &Command, folder: &Path, size: &str) -> Command {
    let script = r#"mkdir -p "$0" && mount -t tmpfs -o size="$1" none "$0" &&
        chown --reference "$(dirname "$0")" "$0" && shift && exec "$@""#;
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]).arg(folder).arg(size);
    command.arg(server.get_program()).args(server.get_args());
    let set = |(name, value): (_, Option<_>)| value.map(|value| (name, value));
    command.envs(server.get_envs().filter_map(set));
    command
}

/// Stops a server and its children, and returns the children. Each of them has its own session, which a signal
/// to the group of the server does not reach.
fn stop(process: &mut Process) -> Result<Vec<Pid>, ServerError> {
    process.signal(Signal::STOP)?;
    if process.ended().is_some() {
        return Ok(Vec::new());
    }
    // From here on it starts no new ones.
    eventually("Postgres stands still", PATIENCE, || state(process.id()) == Some('T'))?;
    let children = children(process);
    signal(&children, Signal::STOP);
    Ok(children)
}

fn signal(processes: &[Pid], signal: Signal) {
    for process in processes {
        // It may have ended.
        let _ = kill_process(*process, signal);
    }
}

fn children(process: &Process) -> Vec<Pid> {
    let server = process.id();
    let listed = std::fs::read_to_string(format!("/proc/{server}/task/{server}/children"));
    let listed = listed.unwrap_or_default();
    let numbers = listed.split_whitespace().filter_map(|number| number.parse().ok());
    numbers.filter_map(Pid::from_raw).collect()
}

fn runs(process: Pid) -> bool {
    let number = process.as_raw_nonzero().get().unsigned_abs();
    state(number).is_some_and(|state| state != 'Z')
}

/// The state letter: T for a stopped process, Z for one that has ended.
fn state(process: u32) -> Option<char> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    stat.rsplit(") ").next()?.chars().next()
}

/// The cluster that others are copied from: created once per version.
fn template(
    version: PostgresVersion,
    programs: &Path,
    user: &User,
) -> Result<Arc<Folder>, ServerError> {
    static MADE: Mutex<Vec<(PostgresVersion, Arc<Folder>)>> = Mutex::new(Vec::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((_, folder)) = made.iter().find(|(of, _)| *of == version) {
        return Ok(folder.clone());
    }
    let folder = Folder::new("pgt")?;
    let (data, log_path) = (folder.path().join("data"), folder.path().join("initdb.log"));
    let log = File::create(&log_path).map_err(ServerError::during("cannot make a log"))?;
    user.give(folder.path())?;
    let mut initdb = user.command(&programs.join("initdb"));
    initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
    initdb.args(["--locale=C", "--wal-segsize=1"]).arg("-D").arg(&data);
    succeeds(&mut initdb, &log, &log_path)?;
    let folder = Arc::new(folder);
    made.push((version, folder.clone()));
    Ok(folder)
}

fn succeeds(command: &mut Command, log: &File, log_path: &Path) -> Result<(), ServerError> {
    let shared = |log: &File| log.try_clone().map_err(ServerError::during("cannot share a log"));
    let ended = command.stdout(shared(log)?).stderr(shared(log)?).status();
    match ended.is_ok_and(|status| status.success()) {
        true => Ok(()),
        false => Err(ServerError::new(format!("{command:?} failed: {}", tail(log_path)))),
    }
}

fn tail(log: &Path) -> String {
    let log = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = log.lines().collect();
    lines[lines.len().saturating_sub(20)..].join("\n")
}
