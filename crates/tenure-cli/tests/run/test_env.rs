//! The environment of a test: an engine, a folder, the binary, and processes that end with the test.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use tenure::{Tenure, View};
use tenure_testkit::servers::{PostgresDatabase, Redis};

/// The time limit for things that happen soon; a busy machine may take long.
pub(crate) const SOON: Duration = Duration::from_secs(30);

/// An engine and a folder for one test.
pub(crate) struct TestEnv {
    pub(crate) url: String,
    folder: PathBuf,
    /// The server, where there is one.
    pub(crate) redis: Option<Redis>,
    _postgres: Option<PostgresDatabase>,
}

impl TestEnv {
    pub(crate) fn redis() -> TestEnv {
        let redis = Redis::build().start().unwrap();
        TestEnv { url: redis.url(), folder: folder(), redis: Some(redis), _postgres: None }
    }

    pub(crate) fn postgres() -> TestEnv {
        let database = PostgresDatabase::start().unwrap();
        let url = database.url();
        TestEnv { url, folder: folder(), redis: None, _postgres: Some(database) }
    }

    pub(crate) fn file() -> TestEnv {
        let folder = folder();
        TestEnv {
            url: format!("file:{}/lines.db", folder.display()),
            folder,
            redis: None,
            _postgres: None,
        }
    }

    /// A path in the folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }

    /// The contents of the file; `None` if it does not exist yet.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// `tenure` with these arguments, in an environment without settings of the user who runs the test.
    pub(crate) fn tenure<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Command {
        let mut command = undisturbed(env!("CARGO_BIN_EXE_tenure"));
        let names = std::env::vars_os().map(|(name, _)| name);
        for name in names.filter(|name| name.to_string_lossy().starts_with("TENURE_")) {
            command.env_remove(name);
        }
        command.env("TENURE_URL", &self.url).args(words).current_dir(&self.folder);
        command.stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn end<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Ended {
        Ended::from(self.tenure(words).output().unwrap())
    }

    /// Runs a line of shell to its end, with `$TENURE` for the binary.
    pub(crate) fn shell(&self, line: &str) -> Ended {
        Ended::from(self.shell_command(line).output().unwrap())
    }

    /// A line of shell that is not run yet.
    pub(crate) fn shell_command(&self, line: &str) -> Command {
        let mut shell = undisturbed("sh");
        shell.args(["-c", line]).env("TENURE", env!("CARGO_BIN_EXE_tenure"));
        shell.env("TENURE_URL", &self.url).current_dir(&self.folder).stdin(Stdio::null());
        shell
    }

    /// Starts it; it is killed with the test.
    pub(crate) fn start<S: AsRef<std::ffi::OsStr>>(&self, words: &[S]) -> Started {
        let mut command = self.tenure(words);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        Started::new(command)
    }

    /// The holders of `name` and its waiters.
    pub(crate) fn view(&self, name: &str) -> Option<View> {
        self.ask(async |tenure| tenure.inspect(name).await.unwrap())
    }

    /// Asks the engine something, over a connection of its own.
    pub(crate) fn ask<T>(&self, question: impl AsyncFnOnce(Tenure) -> T) -> T {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async { question(Tenure::connect(&self.url).await.unwrap()).await })
    }

    pub(crate) fn waiters(&self, name: &str) -> usize {
        self.view(name).map_or(0, |view| view.waiters.len())
    }

    pub(crate) fn holders(&self, name: &str) -> usize {
        self.view(name).map_or(0, |view| view.holders.len())
    }

    /// Waits until a file in the folder has this many lines, and returns them.
    pub(crate) fn lines(&self, name: &str, count: usize) -> Vec<String> {
        until(&format!("{count} lines in {name}"), || self.read(name).lines().count() >= count);
        self.read(name).lines().map(str::to_owned).collect()
    }

    /// Waits until this many process ids were written to a file, and returns them.
    pub(crate) fn pids(&self, name: &str, count: usize) -> Vec<Pid> {
        let lines = self.lines(name, count);
        lines.iter().map(|line| Pid::from_raw(line.trim().parse().unwrap()).unwrap()).collect()
    }
}

impl Drop for TestEnv {
    fn drop(&mut self) {
        // Everything that was started here works in the folder, and in no other test's. What a test
        // that failed has left goes with it.
        let is_ours = |pid: &Pid| {
            let folder = fs::read_link(format!("/proc/{pid}/cwd"));
            folder.is_ok_and(|folder| folder == self.folder)
        };
        for _ in 0..3 {
            for pid in processes().filter(is_ours) {
                let _ = kill_process(pid, Signal::KILL);
            }
        }
        let _ = fs::remove_dir_all(&self.folder);
    }
}

/// A program with no signal ignored, whoever runs the tests: `nohup` and shells in the background leave
/// some so.
pub(crate) fn undisturbed(program: &str) -> Command {
    let mut command = Command::new("env");
    command.args(["--default-signal", program]);
    command
}

fn folder() -> PathBuf {
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let name = format!("tenure-run-{}-{count}", std::process::id());
    let folder = std::env::temp_dir().join(name);
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir(&folder).unwrap();
    fs::canonicalize(folder).unwrap()
}

/// How a process ended, and its output.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl From<Output> for Ended {
    fn from(output: Output) -> Ended {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }
}

/// A process that was started.
pub(crate) struct Started {
    child: Child,
}

impl Started {
    pub(crate) fn new(mut command: Command) -> Started {
        Started { child: command.spawn().unwrap() }
    }

    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(&self.child)
    }

    pub(crate) fn child(&mut self) -> &mut Child {
        &mut self.child
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The guard of a `tenure run`: the one child that its foreground has.
    pub(crate) fn guard(&self) -> Pid {
        child(self.pid(), "hold-guard")
    }

    /// The supervisor of a `tenure run`: the one child that its guard has.
    pub(crate) fn supervisor(&self) -> Pid {
        child(self.guard(), "hold-supervisor")
    }

    pub(crate) fn has_ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().unwrap()
    }

    /// Waits until it ends, and reads its output meanwhile.
    pub(crate) fn end_reading(mut self) -> Ended {
        let mut out = Vec::new();
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_end(&mut out).unwrap();
        }
        let ended = self.end();
        Ended { out: String::from_utf8_lossy(&out).into_owned(), ..ended }
    }

    /// Waits for its end; it must come soon.
    pub(crate) fn end(mut self) -> Ended {
        let mut status = None;
        until("it has ended", || {
            status = self.has_ended();
            status.is_some()
        });
        let (mut out, mut err) = (Vec::new(), Vec::new());
        if let Some(mut pipe) = self.child.stdout.take() {
            pipe.read_to_end(&mut out).unwrap();
        }
        if let Some(mut pipe) = self.child.stderr.take() {
            pipe.read_to_end(&mut err).unwrap();
        }
        Ended::from(Output { status: status.unwrap(), stdout: out, stderr: err })
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Waits until it is so; after a long time it fails.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let began = Instant::now();
    while !holds() {
        assert!(began.elapsed() < SOON, "not within {SOON:?}: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// The fields of `/proc/PID/stat` after the name: the state, the parent, the group and more.
pub(crate) fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(stat.rsplit_once(") ")?.1.split(' ').map(str::to_owned).collect())
}

/// Whether a process is there and has not ended.
pub(crate) fn lives(pid: Pid) -> bool {
    stat(pid).is_some_and(|fields| !matches!(&*fields[0], "Z" | "X"))
}

/// Whether a process was stopped.
pub(crate) fn is_stopped(pid: Pid) -> bool {
    stat(pid).is_some_and(|fields| fields[0] == "T")
}

pub(crate) fn name_of(pid: Pid) -> String {
    fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

fn processes() -> impl Iterator<Item = Pid> {
    let all = fs::read_dir("/proc").unwrap().flatten();
    all.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

pub(crate) fn children(of: Pid) -> Vec<Pid> {
    processes().filter(|pid| stat(*pid).is_some_and(|fields| fields[1] == of.to_string())).collect()
}

/// Waits until a process has a child of this name.
fn child(of: Pid, name: &str) -> Pid {
    let found = || children(of).into_iter().find(|pid| name_of(*pid) == name);
    until(&format!("there is a {name}"), || found().is_some());
    found().unwrap()
}

/// Where the descriptors of a process lead, by number.
pub(crate) fn descriptors(pid: Pid) -> io::Result<Vec<(u32, PathBuf)>> {
    let entries = fs::read_dir(Path::new("/proc").join(pid.to_string()).join("fd"))?.flatten();
    let mut all: Vec<_> = entries
        .filter_map(|entry| {
            let number = entry.file_name().to_str()?.parse().ok()?;
            Some((number, fs::read_link(entry.path()).ok()?))
        })
        .collect();
    all.sort();
    Ok(all)
}

/// How often what depends on chance is tried.
pub(crate) fn rounds() -> usize {
    std::env::var("TENURE_ROUNDS").ok().and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The process whose command line this is.
pub(crate) fn find(title: &str) -> Option<Pid> {
    processes().find(|pid| {
        let line = fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        line.trim_end_matches('\0') == title
    })
}
