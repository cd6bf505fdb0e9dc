//! The command, and every process that it starts.
//!
//! The command leads its own process group. A process that leaves that group is found as a descendant; one that
//! loses its parent becomes a child of the supervisor. So when the supervisor has no child left, nothing is left.

use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::process::Command as Spawned;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, kill_process_group, wait};

use super::forward::Ends;
use super::signals;
use super::terminal::Terminal;
use super::tree::{self, Process, number};
use crate::args::run::Program;
use crate::system::Inherited;

/// A command that was started.
pub(super) struct Command {
    pid: Pid,
    ended: Option<Ending>,
    stopped: bool,
}

/// How a command ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// With this code.
    Code(u8),
    /// By this signal.
    Signal(i32),
}

/// What was found out about the command.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// It was stopped by this signal.
    Stopped(i32),
    /// It was continued.
    Continued,
}

impl fmt::Display for Ending {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ending::Code(code) => write!(f, "exited with code {code}"),
            Ending::Signal(signal) => write!(f, "was ended by {}", signals::name(*signal)),
        }
    }
}

impl Ending {
    /// The exit code of `tenure` for this ending.
    pub(super) fn exit_code(self) -> u8 {
        match self {
            Ending::Code(code) => code,
            Ending::Signal(signal) => signals::exit_code(signal),
        }
    }
}

impl Command {
    /// Starts it from this thread, which must live as long as the process. It inherits this process's output, or
    /// writes to `output`.
    pub(super) fn start<'a>(
        program: &Program,
        variables: impl IntoIterator<Item = (&'a str, String)>,
        inherited: Inherited,
        terminal: &mut Terminal,
        output: Option<Ends>,
    ) -> io::Result<Command> {
        use std::os::unix::process::CommandExt;
        let mut spawned = match program {
            Program::Words(words) => {
                let (first, rest) = words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
                let mut spawned = Spawned::new(first);
                spawned.args(rest);
                spawned
            }
            Program::Shell(line) => {
                let mut spawned = Spawned::new("/bin/sh");
                spawned.args([OsStr::new("-c"), line]);
                spawned
            }
        };
        spawned.envs(variables).process_group(0);
        if let Some(Ends { out, error }) = output {
            spawned.stdout(out).stderr(error);
        }
        let lent = terminal.for_start(&inherited);
        let started = inherited.spawn(&mut spawned, lent.as_ref());
        let pid = started.as_ref().ok().map(Pid::from_child);
        terminal.started(lent, pid);
        started.map(|child| Command { pid: Pid::from_child(&child), ended: None, stopped: false })
    }

    /// Its pid, which is also that of its group.
    pub(super) fn pid(&self) -> Pid {
        self.pid
    }

    /// How it ended, if it has.
    pub(super) fn ended(&self) -> Option<Ending> {
        self.ended
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    /// Sends a signal to its group. After the command has exited, its pid may belong to another process: then to
    /// what it left running.
    pub(super) fn signal(&self, signal: Signal) {
        if self.ended.is_none() {
            let _ = kill_process_group(self.pid, signal);
            return;
        }
        for process in self.leftovers() {
            let _ = process.signal(signal);
        }
    }

    /// Sends a signal to its group and to all descendants outside of it, and continues those that are stopped,
    /// because they would not receive it.
    pub(super) fn signal_all(&self, signal: Signal) {
        self.signal(signal);
        let all = tree::below(getpid());
        let in_group = |group| self.ended.is_none() && group == number(self.pid);
        for process in all.iter().filter(|process| !in_group(process.group)) {
            let _ = process.signal(signal);
        }
        if signal != Signal::KILL {
            self.signal(Signal::CONT);
            for process in all.iter().filter(|process| !in_group(process.group)) {
                let _ = process.signal(Signal::CONT);
            }
        }
    }

    /// Collects everything that has happened to the supervisor's children. Returns what is new about the command,
    /// and whether no child is left.
    pub(super) fn look(&mut self) -> (Vec<Change>, bool) {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED | WaitOptions::CONTINUED;
        let mut changes = Vec::new();
        loop {
            match wait(options) {
                Ok(Some((pid, status))) if pid == self.pid => changes.extend(self.saw(status)),
                // An orphan that became our child: nobody needs its exit code.
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return (changes, false),
                Err(_) => return (changes, true),
            }
        }
    }

    fn saw(&mut self, status: WaitStatus) -> Option<Change> {
        if let Some(signal) = status.stopping_signal() {
            self.stopped = true;
            return Some(Change::Stopped(signal));
        }
        self.stopped = false;
        if status.continued() {
            return Some(Change::Continued);
        }
        self.ended = match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Some(Ending::Code(code as u8)),
            (None, Some(signal)) => Some(Ending::Signal(signal)),
            (None, None) => None,
        };
        None
    }

    /// The processes that are left of it, wherever they went.
    pub(super) fn left(&self) -> Vec<Process> {
        let mut all = tree::below(getpid());
        all.retain(|process| !process.ended);
        all
    }

    /// The same without those that started their own session, as daemons do: they are meant to stay.
    pub(super) fn leftovers(&self) -> Vec<Process> {
        let session = tree::look(getpid()).map(|own| own.session);
        let mut left = self.left();
        left.retain(|process| Some(process.session) == session);
        left
    }
}
