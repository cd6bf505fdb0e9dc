//! The child processes of a run: the same program, started again with a task.
//!
//! A child prints lines on its standard output, each a word and possibly more after a tab or a blank, and reads
//! orders, one per line, from its standard input. It ends when its standard input closes, so no child outlives
//! the process that started it.

use std::fmt;
use std::io::{self, BufRead};
use std::process::{Command, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStdin, ChildStdout};
use tokio::sync::mpsc;
use tokio::time::timeout;

/// A child, as the process that started it sees it. Killed on drop.
#[derive(Debug)]
pub struct Child {
    process: tokio::process::Child,
    /// Closing it orders the child to end.
    orders: Option<ChildStdin>,
    lines: BufReader<ChildStdout>,
    patience: Duration,
}

/// Why a child failed.
#[derive(Debug)]
pub enum ChildError {
    /// It could not be started.
    NotStarted(io::Error),
    /// It ended, or did not answer or read an order in time.
    Gone(String),
    /// It printed this line instead of the expected one.
    Said(String),
}

impl fmt::Display for ChildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChildError::NotStarted(error) => write!(f, "cannot start a process: {error}"),
            ChildError::Gone(why) => f.write_str(why),
            ChildError::Said(line) => f.write_str(line),
        }
    }
}

impl std::error::Error for ChildError {}

impl Child {
    /// Starts a child, which may take `patience` for each line. Called in a runtime.
    ///
    /// # Errors
    ///
    /// If it cannot be started.
    pub fn start(mut command: Command, patience: Duration) -> Result<Child, ChildError> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut command = tokio::process::Command::from(command);
        let mut process = command.kill_on_drop(true).spawn().map_err(ChildError::NotStarted)?;
        match (process.stdin.take(), process.stdout.take()) {
            (Some(orders), Some(lines)) => {
                let lines = BufReader::new(lines);
                Ok(Child { process, orders: Some(orders), lines, patience })
            }
            _ => Err(gone("it has no pipes")),
        }
    }

    /// Gives an order.
    ///
    /// # Errors
    ///
    /// If the child reads no more orders.
    pub async fn tell(&mut self, order: &str) -> Result<(), ChildError> {
        let Some(orders) = &mut self.orders else { return Err(gone("it was told to end")) };
        orders.write_all(format!("{order}\n").as_bytes()).await.map_err(gone)
    }

    /// The rest of the next line, which must begin with `word`.
    ///
    /// # Errors
    ///
    /// If it begins with another word, or does not arrive.
    pub async fn hear(&mut self, word: &str) -> Result<String, ChildError> {
        let mut line = String::new();
        let heard = timeout(self.patience, self.lines.read_line(&mut line)).await;
        heard.map_err(|_| silent(self.patience))?.map_err(gone)?;
        let line = line.trim_end_matches('\n');
        match line.split_once(['\t', ' ']).unwrap_or((line, "")) {
            (said, rest) if said == word => Ok(rest.to_owned()),
            ("", "") => Err(gone("it ended too early")),
            _ => Err(ChildError::Said(line.to_owned())),
        }
    }

    /// The same for a number.
    ///
    /// # Errors
    ///
    /// As with [`hear`](Child::hear), and if it is not a number.
    pub async fn hear_number(&mut self, word: &str) -> Result<u64, ChildError> {
        let said = self.hear(word).await?;
        said.parse().map_err(|_| ChildError::Said(format!("{word} {said}")))
    }

    /// The next `count` bytes.
    ///
    /// # Errors
    ///
    /// If they do not arrive.
    pub async fn bytes(&mut self, count: usize) -> Result<Vec<u8>, ChildError> {
        let mut bytes = vec![0; count];
        let read = timeout(self.patience, self.lines.read_exact(&mut bytes)).await;
        read.map_err(|_| silent(self.patience))?.map_err(gone)?;
        Ok(bytes)
    }

    /// Everything that the child prints until it ends.
    ///
    /// # Errors
    ///
    /// If it does not end.
    pub async fn rest(&mut self) -> Result<Vec<u8>, ChildError> {
        let mut bytes = Vec::new();
        let read = timeout(self.patience, self.lines.read_to_end(&mut bytes)).await;
        read.map_err(|_| silent(self.patience))?.map_err(gone)?;
        Ok(bytes)
    }

    /// Sends SIGKILL, and waits until the child is gone and its sockets are closed.
    pub async fn kill(&mut self) {
        // If the child has ended already, the result is the same.
        let _ = self.process.kill().await;
    }

    /// Tells it to end.
    pub fn dismiss(&mut self) {
        self.orders = None;
    }

    /// Tells the child to end, and kills it if it does not end within this time.
    pub async fn end(&mut self, within: Duration) {
        self.dismiss();
        if timeout(within, self.process.wait()).await.is_err() {
            self.kill().await;
        }
    }
}

fn gone(why: impl fmt::Display) -> ChildError {
    ChildError::Gone(why.to_string())
}

fn silent(patience: Duration) -> ChildError {
    gone(format!("it said nothing for {patience:?}"))
}

/// The orders for this process, which is a child. A separate thread reads them, because a read cannot be
/// cancelled; it calls `at_the_end` when there are no more.
pub fn orders(at_the_end: impl FnOnce() + Send + 'static) -> mpsc::UnboundedReceiver<String> {
    let (give, orders) = mpsc::unbounded_channel();
    std::thread::spawn(move || {
        for line in io::stdin().lock().lines().map_while(Result::ok) {
            // Nobody reads orders any more if this process is about to end.
            let _ = give.send(line);
        }
        at_the_end();
    });
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    fn child(script: &str) -> Child {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        Child::start(command, Duration::from_secs(30)).unwrap()
    }

    #[tokio::test]
    async fn a_child_is_told_and_heard_and_what_it_says_instead_is_passed_on() {
        let mut echo =
            child("read order; echo told $order; printf 'number\\t7\\nabc'; echo; echo no");
        echo.tell("a b").await.unwrap();
        assert_eq!(echo.hear("told").await.unwrap(), "a b");
        assert_eq!(echo.hear_number("number").await.unwrap(), 7);
        assert_eq!(echo.bytes(4).await.unwrap(), b"abc\n");
        assert!(matches!(echo.hear("yes").await, Err(ChildError::Said(said)) if said == "no"));
        assert!(matches!(echo.hear("yes").await, Err(ChildError::Gone(_))));
    }

    #[tokio::test]
    async fn a_child_ends_when_its_orders_do_and_a_killed_one_says_no_more() {
        let mut cat = child("cat >/dev/null; echo over");
        cat.dismiss();
        assert_eq!(cat.rest().await.unwrap(), b"over\n");
        cat.end(Duration::from_secs(30)).await;
        let mut stays = child("echo here; exec sleep 600");
        stays.hear("here").await.unwrap();
        stays.kill().await;
        assert!(matches!(stays.hear("more").await, Err(ChildError::Gone(_))));
        assert!(matches!(stays.tell("more").await, Err(ChildError::Gone(_))));
    }
}
