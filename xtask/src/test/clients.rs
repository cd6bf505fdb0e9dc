//! The clients in other languages, the dashboard, and what is in `contrib`, with the command that was built for the tests.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::programs::{self, lock};
use crate::failure::Failure;
use crate::{setup, workspace};

/// How long the tests of one client may take: several times what they do.
const LIMIT: Duration = Duration::from_secs(600);
/// How many run at a time. They wait for servers and processes most of the time, but renew holds that last for a second.
const AT_A_TIME: usize = 2;
/// How much is shown of tests that failed.
const LONGEST_REPORT: usize = 8_192;

/// Tests of one client: what they are called, the folder they run in, and the command.
struct Client {
    name: &'static str,
    folder: &'static str,
    /// What Python finds besides its own packages: nothing that the client must do without.
    python: fn() -> PathBuf,
    command: &'static [&'static str],
}

const CLIENTS: [Client; 8] = [
    Client {
        name: "node",
        folder: "clients/node",
        python: sources,
        command: &["npm", "--silent", "test"],
    },
    Client {
        name: "node, types and package",
        folder: "clients/node",
        python: sources,
        command: &["npm", "--silent", "run", "check"],
    },
    Client {
        name: "python",
        folder: "clients/python",
        python: sources,
        command: &["python3", "-m", "unittest", "discover", "-t", ".", "-s", "tests"],
    },
    Client {
        name: "python, types",
        folder: "clients/python",
        python: tools,
        command: &["python3", "-m", "mypy", "--cache-dir", "../../target/mypy"],
    },
    Client {
        name: "python, package",
        folder: "clients/python/tools",
        python: tools,
        command: &["python3", "-m", "unittest"],
    },
    Client {
        name: "dashboard",
        folder: "crates/tenure-server/ui-tests",
        python: sources,
        command: &["npm", "--silent", "test"],
    },
    Client {
        name: "contrib",
        folder: "contrib",
        python: tools,
        command: &["python3", "-m", "unittest"],
    },
    Client {
        name: "openapi",
        folder: "crates/tenure-server/openapi-tests",
        python: tools,
        command: &["python3", "-m", "unittest"],
    },
];

fn sources() -> PathBuf {
    PathBuf::from("src")
}

/// Where the set-up has put mypy, hatchling and schemathesis.
fn tools() -> PathBuf {
    setup::folder().join(setup::TOOLS)
}

/// Runs all of them, and says which failed.
pub(super) fn run() -> Result<(), Failure> {
    programs::build()?;
    let (left, failed) = (Mutex::new(CLIENTS.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // Not in the head of the loop, where the lock would be held during its body.
                let next = || lock(&left).next();
                while let Some(client) = next() {
                    if let Err(failure) = client.test() {
                        lock(&failed).push(failure.to_string());
                    }
                }
            });
        }
    });
    let failed = lock(&failed);
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failed.join("\n"))),
    }
}

impl Client {
    fn test(&self) -> Result<(), Failure> {
        let began = Instant::now();
        let logs = workspace::scratch().join("test-output");
        let log = logs.join(format!("{}.log", self.name));
        let cannot = |error| Failure::new(format!("cannot write {}: {error}", log.display()));
        std::fs::create_dir_all(&logs).map_err(cannot)?;
        let output = File::create(&log).map_err(cannot)?;
        let mut command = Command::new(self.command.first().copied().unwrap_or_default());
        command.args(self.command.iter().skip(1));
        command.env("TENURE_BIN", workspace::scratch().join("debug/tenure"));
        command.env("PYTHONPATH", (self.python)()).env("PYTHONDONTWRITEBYTECODE", "1");
        let mut limited = workspace::limited(&command, LIMIT);
        limited.current_dir(workspace::root().join(self.folder));
        limited.stdout(output.try_clone().map_err(cannot)?).stderr(output);
        let status = limited.status();
        let status =
            status.map_err(|error| workspace::cannot_run(&workspace::show(&limited), &error))?;
        let seconds = began.elapsed().as_secs_f64();
        if status.success() {
            println!("      {}: passed in {seconds:.1} s", self.name);
            return Ok(());
        }
        let printed = std::fs::read(&log).map_err(cannot)?;
        let end = printed.get(printed.len().saturating_sub(LONGEST_REPORT)..).unwrap_or_default();
        println!("{}\n      all of it: {}", String::from_utf8_lossy(end), log.display());
        Err(Failure::new(format!("`{}` ended with {status}", self.command.join(" "))))
    }
}
