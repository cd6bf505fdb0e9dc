//! Child processes: this program, started again with a task. [`tenure_measure::process`] describes their
//! protocol.

use std::io::Write;
use std::process::Command;
use std::str::FromStr;
use std::sync::LazyLock;

use tenure_measure::process;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc;

use super::LONGEST;
use super::failure::Failure;

/// The first argument of a child.
pub(crate) const CHILD: &str = "redis-child";

/// The runtime with which the parent waits for its children. It has no thread, and does nothing while they are
/// measured.
static RUNTIME: LazyLock<Runtime> =
    LazyLock::new(|| Builder::new_current_thread().enable_all().build().expect("a runtime"));

/// A child, as its parent sees it. Killed on drop.
pub(crate) struct Child(process::Child);

impl Child {
    /// Starts a child on `task` with arguments `key=value`.
    pub(crate) fn start(task: &str, arguments: &[String]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).arg(task).args(arguments);
        let _within = RUNTIME.enter();
        Ok(Child(process::Child::start(command, LONGEST)?))
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<(), Failure> {
        Ok(RUNTIME.block_on(self.0.tell(order))?)
    }

    /// The rest of the next line, which must begin with `word`.
    pub(crate) fn hear(&mut self, word: &str) -> Result<String, Failure> {
        Ok(RUNTIME.block_on(self.0.hear(word))?)
    }

    /// Everything that the child prints until it ends.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Failure> {
        Ok(RUNTIME.block_on(self.0.rest())?)
    }

    /// Sends SIGKILL, and waits until the child has ended; after that, its sockets are closed.
    pub(crate) fn kill(&mut self) {
        RUNTIME.block_on(self.0.kill());
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
    }
}

/// The arguments of a child, as it sees them.
pub(crate) struct Given(Vec<(String, String)>);

impl Given {
    pub(crate) fn read(arguments: &[String]) -> Given {
        let split = |pair: &String| pair.split_once('=').map(|(k, v)| (k.to_owned(), v.to_owned()));
        Given(arguments.iter().filter_map(split).collect())
    }

    pub(crate) fn text(&self, key: &str) -> Result<&str, Failure> {
        let found = self.0.iter().find(|(name, _)| name == key);
        found.map(|(_, value)| value.as_str()).ok_or_else(|| format!("no {key}").into())
    }

    pub(crate) fn number<T: FromStr>(&self, key: &str) -> Result<T, Failure> {
        let value = self.text(key)?;
        value.parse().map_err(|_| format!("{key}={value}: not a number").into())
    }
}

/// The orders of the parent.
pub(crate) struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    /// Reads orders on a separate thread, which ends this process when its parent ends.
    pub(crate) fn listen() -> Orders {
        Orders(process::orders(|| std::process::exit(0)))
    }

    /// The next order.
    pub(crate) async fn next(&mut self) -> Result<String, Failure> {
        self.0.recv().await.ok_or_else(|| "no more orders".into())
    }
}

/// Prints a line for the parent.
pub(crate) fn say(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
