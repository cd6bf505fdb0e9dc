//! Child processes: this program once more, with a task.
//!
//! A child says lines on its standard output and takes orders, a line each, on its standard input. It
//! ends when that closes, so none outlives the one that started it.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child as Process, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;

use tokio::sync::mpsc;

use super::failure::Failure;

/// The first argument of a child.
pub(crate) const CHILD: &str = "redis-child";

/// A child, as its parent sees it. Killed on drop.
pub(crate) struct Child {
    process: Process,
    orders: ChildStdin,
    lines: BufReader<ChildStdout>,
}

impl Child {
    /// Starts a child on `task` with arguments `key=value`.
    pub(crate) fn start(task: &str, arguments: &[String]) -> Result<Child, Failure> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(CHILD).arg(task).args(arguments);
        let mut process = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
        let orders = process.stdin.take().ok_or("no standard input")?;
        let lines = BufReader::new(process.stdout.take().ok_or("no standard output")?);
        Ok(Child { process, orders, lines })
    }

    pub(crate) fn tell(&mut self, order: &str) -> Result<(), Failure> {
        Ok(writeln!(self.orders, "{order}")?)
    }

    /// The rest of the next line, which must begin with `word`.
    pub(crate) fn hear(&mut self, word: &str) -> Result<String, Failure> {
        let mut line = String::new();
        self.lines.read_line(&mut line)?;
        match line.trim_end().strip_prefix(word) {
            Some(rest) => Ok(rest.trim_start().to_owned()),
            None if line.is_empty() => Err("the child ended before its time".into()),
            None => Err(line.trim_end().into()),
        }
    }

    /// Everything that it says from here to its end.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Failure> {
        let mut bytes = Vec::new();
        self.lines.read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Sends SIGKILL.
    pub(crate) fn kill(&mut self) {
        // One that has ended already is as dead as it should be.
        let _ = self.process.kill();
    }

    /// Waits for its end: after that, its sockets are closed.
    pub(crate) fn wait(&mut self) {
        let _ = self.process.wait();
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        self.kill();
        self.wait();
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

/// What the parent tells this process.
pub(crate) struct Orders(mpsc::UnboundedReceiver<String>);

impl Orders {
    /// Listens from a thread of its own, which ends this process with its parent.
    pub(crate) fn listen() -> Orders {
        let (send, receive) = mpsc::unbounded_channel();
        std::thread::spawn(move || {
            for line in std::io::stdin().lines().map_while(Result::ok) {
                let _ = send.send(line);
            }
            std::process::exit(0);
        });
        Orders(receive)
    }

    /// The next one.
    pub(crate) async fn next(&mut self) -> Result<String, Failure> {
        self.0.recv().await.ok_or_else(|| "no more orders".into())
    }
}

/// Says a line to the parent.
pub(crate) fn say(line: impl std::fmt::Display) -> Result<(), Failure> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}")?;
    Ok(out.flush()?)
}
