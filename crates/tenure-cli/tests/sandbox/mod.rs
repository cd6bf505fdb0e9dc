//! A sandbox for tests of the real binary: its own folder, an environment that only contains what the test sets,
//! and transcripts that are compared with the snapshots.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Read};
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use regex_lite::Regex;
use tenure::{Hold, Tenure};
use tokio::runtime::Runtime;

/// A folder and an environment to run the binary in.
pub(crate) struct Sandbox {
    folder: PathBuf,
    variables: Vec<(String, String)>,
    /// Whether the binary is told which engine to use.
    names_engine: bool,
    runtime: Runtime,
}

/// How a run of the binary ended.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) exit: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Sandbox {
    /// An empty folder; `name` is the test's own.
    pub(crate) fn new(name: &str) -> Sandbox {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        let _ = std::fs::remove_dir_all(&folder);
        std::fs::create_dir_all(&folder).unwrap();
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
        Sandbox { folder, variables: Vec::new(), names_engine: true, runtime }
    }

    /// The same without `TENURE_URL`.
    pub(crate) fn without_engine(mut self) -> Sandbox {
        self.names_engine = false;
        self
    }

    /// The same with an environment variable.
    pub(crate) fn with(mut self, variable: &str, value: &str) -> Sandbox {
        self.variables.push((variable.into(), value.into()));
        self
    }

    pub(crate) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The engine, unless a test names another: the default of root is the machine's.
    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.folder.join("state/tenure/tenure.db").display())
    }

    /// The binary with these arguments, ready to be changed.
    pub(crate) fn command<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tenure"));
        command
            .args(args)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", &self.folder)
            .env("XDG_STATE_HOME", self.folder.join("state"))
            .env("USER", "tester")
            .envs(self.names_engine.then(|| ("TENURE_URL", self.url())))
            .envs(self.variables.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null());
        command
    }

    /// Runs it to its end.
    pub(crate) fn run(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    /// Starts it, with its output and its errors to be read.
    pub(crate) fn start(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        Running(Some(child.spawn().unwrap()))
    }

    /// Does something with the library, on the same engine as the binary.
    pub(crate) fn with_library<T>(&self, work: impl AsyncFnOnce(Tenure) -> T) -> T {
        let url = self.variables.iter().find(|(name, _)| name == "TENURE_URL");
        let url = url.map_or_else(|| self.url(), |(_, url)| url.clone());
        self.runtime.block_on(async { work(Tenure::connect(&url).await.unwrap()).await })
    }

    /// Holds a name as `tenure run` would for `web-3:4121`.
    pub(crate) fn hold(&self, name: &str) -> Hold {
        self.with_library(async |tenure| {
            let lock = tenure.mutex(name).owner("web-3:4121").reason("nightly dump");
            let lock = lock.meta("cmd", "./backup.sh").meta("host", "web-3").meta("pid", "4121");
            lock.meta("ttl", "30s").acquire().await.unwrap()
        })
    }

    /// Waits for a name as `owner`, and has it when its turn comes, until the task is aborted.
    pub(crate) fn queue(&self, name: &str, owner: &str) -> tokio::task::JoinHandle<()> {
        let (joined, tenure) = self
            .with_library(async |tenure| (tenure.mutex(name).owner(owner).join(), tenure.clone()));
        let task = self.runtime.spawn(async move {
            let _hold = joined.await;
            std::future::pending().await
        });
        let waits = |tenure: Tenure| async move {
            let view = tenure.inspect(name).await.unwrap();
            view.is_some_and(|view| view.waiters.iter().any(|one| one.details.owner == owner))
        };
        eventually(&format!("{owner} waits"), || self.runtime.block_on(waits(tenure.clone())));
        task
    }

    pub(crate) fn block_on<T>(&self, future: impl Future<Output = T>) -> T {
        self.runtime.block_on(future)
    }
}

/// Runs a command to its end.
pub(crate) fn ran(command: &mut Command) -> Ran {
    Ran::new(command.output().unwrap())
}

impl Ran {
    pub(crate) fn new(Output { status, stdout, stderr }: Output) -> Ran {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Ran { exit: status.code(), stdout: text(stdout), stderr: text(stderr) }
    }

    /// Checks that it succeeded without output on stderr; returns its stdout.
    #[track_caller]
    pub(crate) fn worked(&self) -> &str {
        assert_eq!((self.exit, &*self.stderr), (Some(0), ""), "{self:?}");
        &self.stdout
    }

    /// Checks that it failed with this code, said nothing on stdout, and had three things to say on
    /// stderr: what, why and what next. Returns these.
    #[track_caller]
    pub(crate) fn failed(&self, exit: i32) -> [&str; 3] {
        assert_eq!((self.exit, &*self.stdout), (Some(exit), ""), "{self:?}");
        let lines: Vec<_> = self.stderr.lines().collect();
        let [what, why, help] = lines[..] else { panic!("not three lines: {self:?}") };
        assert!(what.starts_with("error: ") || what.starts_with("error[T"), "{what}");
        let (_, what) = what.split_once(": ").unwrap();
        [what, why, help.strip_prefix("help: ").expect("ends with what to do")]
    }
}

/// Waits until something is the case.
#[track_caller]
pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    for _ in 0..3000 {
        if is_so() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("not within 30 s: {what}");
}

/// A process that does not outlive its test, also when that fails.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Waits for its end.
    pub(crate) fn ended(mut self) -> Ran {
        Ran::new(self.0.take().unwrap().wait_with_output().unwrap())
    }
}

impl Deref for Running {
    type Target = Child;

    fn deref(&self) -> &Child {
        self.0.as_ref().unwrap()
    }
}

impl DerefMut for Running {
    fn deref_mut(&mut self) -> &mut Child {
        self.0.as_mut().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The lines that a process writes, as they come.
pub(crate) struct Lines(mpsc::Receiver<String>);

impl Lines {
    pub(crate) fn of(from: impl Read + Send + 'static) -> Lines {
        let (tell, told) = mpsc::channel();
        std::thread::spawn(move || {
            for line in BufReader::new(from).lines() {
                // When nobody listens any more, the pipe is closed, as `head` does.
                if tell.send(line.unwrap()).is_err() {
                    return;
                }
            }
        });
        Lines(told)
    }

    /// The next one; a test must not hang when there is none.
    #[track_caller]
    pub(crate) fn next(&self) -> String {
        self.0.recv_timeout(Duration::from_secs(30)).expect("a line within 30 s")
    }
}

/// The command line and its result, as text that is the same every time.
pub(crate) struct Transcript<'a> {
    sandbox: &'a Sandbox,
    text: String,
}

impl<'a> Transcript<'a> {
    pub(crate) fn new(sandbox: &'a Sandbox) -> Transcript<'a> {
        Transcript { sandbox, text: String::new() }
    }

    /// Runs the binary and writes down all of it. Words with blanks in them are quoted with `'`.
    pub(crate) fn run(&mut self, line: &str) -> Ran {
        self.run_with(&[], line)
    }

    /// The same with variables.
    pub(crate) fn run_with(&mut self, variables: &[(&str, &str)], line: &str) -> Ran {
        let mut command = self.sandbox.command(split(line));
        if variables.iter().any(|(name, _)| *name == "REDIS_URL") {
            // It is mentioned where the other is missing.
            command.env_remove("TENURE_URL");
        }
        let ran = ran(command.envs(variables.iter().copied()));
        let set: String =
            variables.iter().map(|(name, value)| format!("{name}={value} ")).collect();
        let _ = writeln!(self.text, "$ {set}tenure {line}");
        self.text.push_str(&ran.stdout);
        self.text.push_str(&ran.stderr);
        let _ = writeln!(self.text, "[exit code {}]\n", ran.exit.unwrap_or(-1));
        ran
    }

    /// Compares with the snapshot of that name; `TENURE_BLESS=1` writes it instead.
    #[track_caller]
    pub(crate) fn compare(&self, name: &str) {
        snapshot(name, &filtered(&self.text, self.sandbox));
    }

    /// The same for tables, whose columns are as wide as their contents.
    #[track_caller]
    pub(crate) fn compare_tables(&self, name: &str) {
        let text = filtered(&self.text, self.sandbox);
        let text = Regex::new(r"\b\d+m?s\b").unwrap().replace_all(&text, "[SPAN]");
        let text = Regex::new(r" {2,}").unwrap().replace_all(&text, "  ");
        snapshot(name, &text);
    }
}

/// Compares text with a snapshot; `TENURE_BLESS=1` writes it instead.
#[track_caller]
pub(crate) fn snapshot(name: &str, text: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/snapshots").join(name);
    let path = path.with_extension("txt");
    if std::env::var_os("TENURE_BLESS").is_some() {
        std::fs::write(&path, text).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (kept, now)) in kept.lines().zip(text.lines()).enumerate() {
        let line = number + 1;
        assert_eq!(kept, now, "line {line} of {} (TENURE_BLESS=1 accepts it)", path.display());
    }
    let (kept, now) = (kept.lines().count(), text.lines().count());
    assert_eq!(kept, now, "lines of {} (TENURE_BLESS=1 accepts it)\n{text}", path.display());
}

fn split(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    for (number, part) in line.split('\'').enumerate() {
        match number % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    words
}

/// Replaces what differs from run to run.
fn filtered(text: &str, sandbox: &Sandbox) -> String {
    let text = text.replace(&*sandbox.folder.to_string_lossy(), "[FOLDER]");
    let me = format!(r"\b{}:\d+", rustix::system::uname().nodename().to_string_lossy());
    let filters = [
        (&*me, "[ME]"),
        (r"t1-[0-9a-f]{32}-\d+-(\d+)(-n[0-9a-f]{8})?(-d)?", "[CLAIM $1]"),
        (r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", "[WHEN]"),
        (r"\d\d:\d\d:\d\d(\.\d+)?Z", "[TIME]"),
        (r"\(\d+\.\d+ ms\)", "([TRIP] ms)"),
        (
            r#""(held_ms|leads_ms|left_ms|waited_ms|renewed_ms_ago|oldest_wait_ms|age_ms|kept_ms)":\d+"#,
            r#""$1":[MS]"#,
        ),
        (r"[\d.]+ ms (p50|p99)", "[MS] $1"),
        (r"([+-]\d+ ms from|as) this machine's", "[OFFSET] this machine's"),
        (r"\b\d+ of \d+ clients", "[CLIENTS]"),
        (r"Redis \d+\.\d+\.\d+", "Redis [VERSION]"),
        (r"-p \d{4,5} ", "-p [PORT] "),
        (r"\b\d{15,16}\b", "[FENCE]"),
        (r"127\.0\.0\.1:\d{4,5}", "127.0.0.1:[PORT]"),
        (r"\(after [^)]*\)", "(after [TIME])"),
        (r"\b[\d.]+m?s( left| ago)\b", "[SPAN]$1"),
        (r"\b(held|for|since) [\d.]+m?s\b", "$1 [SPAN]"),
        (r"for another [\dhms]+", "for another [SPAN]"),
        (r"\([\d.]+m?s\)", "([SPAN])"),
    ];
    let apply = |text: String, (pattern, with): &(&str, &str)| {
        Regex::new(pattern).unwrap().replace_all(&text, *with).into_owned()
    };
    filters.iter().fold(text, apply)
}
