//! Tests the clients in other languages, the dashboard and `contrib`, with the command that was built for the
//! tests.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Mutex;
use std::thread;
use std::time::{Duration, Instant};

use super::programs::{self, lock};
use crate::failure::Failure;
use crate::{setup, workspace};

/// The time limit for the tests of one client: several times what they need.
const LIMIT: Duration = Duration::from_secs(600);
/// How many run concurrently. They mostly wait for servers and processes, but also renew holds that last for a
/// second.
const AT_A_TIME: usize = 2;
/// How much output of failed tests is shown.
const LONGEST_REPORT: usize = 8_192;

/// Tests of one client: their name, the folder that they run in, and the command.
struct Client {
    name: &'static str,
    folder: &'static str,
    /// Where Python finds packages in addition to its own: never packages that the client must not depend on.
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

/// Where the setup has installed mypy, hatchling and schemathesis.
fn tools() -> PathBuf {
    setup::folder().join(setup::TOOLS)
}

/// Runs all of them, and reports which failed.
pub(super) fn run() -> Result<(), Failure> {
    programs::build()?;
    let (left, failed) = (Mutex::new(CLIENTS.iter()), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                // Not in the loop header, where the lock would be held during the body.
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
