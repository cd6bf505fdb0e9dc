//! The foreground process: what the shell and the user see of `tenure run`.
//!
//! It has one thread and does next to nothing: it forwards signals to the supervisor, stops when the command is
//! stopped, and exits with the code that the supervisor sends. It exists so that the supervisor can be a
//! separate process: a user who kills `tenure` kills the foreground process, and the supervisor cleans up. In
//! turn it watches the supervisor and the guard, so that no process that the supervisor started outlives all
//! three.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, getpid, kill_current_process_group,
    kill_process, set_child_subreaper, wait, waitid, waitpid,
};

use super::channel::{Message, Received, ToSupervisor};
use super::clock;
use super::guard::{self, OFTEN};
use super::shared_state::SharedState;
use super::signals::{self, read};
use super::tree;
use crate::system::Inherited;

/// How the foreground process ended.
pub(super) enum Ended {
    /// With this exit code from the supervisor.
    Done(u8),
    /// The supervisor has died, by this signal if it was one, and nothing that it started is left.
    SupervisorDied(Option<i32>),
}

pub(super) struct Foreground {
    guard: Pid,
    link: ToSupervisor,
    shared: SharedState,
    inherited: Inherited,
    signals: OwnedFd,
    /// Whether orphaned processes become children of this one.
    adopts: bool,
}

impl Foreground {
    pub(super) fn new(
        guard: Pid,
        link: ToSupervisor,
        shared: SharedState,
        inherited: Inherited,
        adopts: bool,
    ) -> io::Result<Foreground> {
        Ok(Foreground { guard, link, shared, inherited, signals: inherited.taken()?, adopts })
    }

    /// Runs until everything is over.
    pub(super) fn watch(self) -> Ended {
        loop {
            self.wait();
            for signal in read(&self.signals) {
                if signals::is_for_command(signal) {
                    self.link.send(signal as u8);
                }
            }
            match self.link.receive() {
                Received::Message(Message::Done { code, lingers }) => {
                    if !lingers {
                        // The guard exits right after the supervisor; if the guard was killed, the supervisor is
                        // our child.
                        for pid in
                            [Some(self.guard), self.shared.supervisor()].into_iter().flatten()
                        {
                            let _ = waitpid(Some(pid), WaitOptions::empty());
                        }
                    }
                    return Ended::Done(code);
                }
                Received::Message(Message::Stopped { signal, all }) => {
                    self.stop(signal.into(), all)
                }
                Received::Message(Message::DeadlineSet) | Received::Nothing => {}
                Received::Gone => return Ended::SupervisorDied(self.end_all()),
            }
            if let Some(supervisor) = self.shared.supervisor() {
                guard::kill_if_overdue(supervisor, self.shared);
            }
        }
    }

    /// Waits for a signal, for a message or for the deadline in the shared state.
    fn wait(&self) {
        let left = self.shared.deadline().map(|at| at.saturating_sub(clock::now()).max(OFTEN));
        self.wait_at_most(left);
    }

    fn wait_at_most(&self, left: Option<Duration>) {
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let signals = PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN);
        let message = PollFd::from_borrowed_fd(self.link.socket().as_fd(), PollFlags::IN);
        // Checking once too often does no harm.
        let _ = poll(&mut [signals, message], left.as_ref());
    }

    /// Does what the shell expects of a job whose command was stopped.
    fn stop(&self, signal: i32, all: bool) {
        let how = match signal {
            libc::SIGTTIN => Signal::TTIN,
            libc::SIGTTOU => Signal::TTOU,
            _ => Signal::TSTP,
        };
        let send = || match all {
            true => kill_current_process_group(how),
            false => kill_process(getpid(), how),
        };
        if self.inherited.give_in(|| Ok(send()?), how.as_raw()) {
            return;
        }
        // The kernel does not stop a group that nobody could continue, so the command must not be stopped either.
        // A command that needs a terminal it can never have is told that the terminal is gone.
        if matches!(signal, libc::SIGTTIN | libc::SIGTTOU) {
            self.link.send(libc::SIGHUP as u8);
        }
        if signal != libc::SIGSTOP {
            self.link.send(libc::SIGCONT as u8);
        }
    }

    /// Waits until the guard has killed everything that a dead supervisor left behind; kills it itself if the
    /// guard was killed, too. Returns the signal that ended the supervisor.
    fn end_all(&self) -> Option<i32> {
        while let Ok(None) = waitpid(Some(self.guard), WaitOptions::NOHANG) {
            // It may have been stopped.
            let _ = kill_process(self.guard, Signal::CONT);
            self.wait_at_most(Some(OFTEN));
            let _ = read(&self.signals);
        }
        let (supervisor, mut ended_by) =
            (self.shared.supervisor(), self.shared.supervisor_ended_by());
        loop {
            guard::kill_group(self.shared, getpid());
            if self.adopts {
                for process in tree::below(getpid()) {
                    // A process that could not be killed is found again at the next check.
                    let _ = process.signal(Signal::KILL);
                }
            }
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) if Some(pid) == supervisor => {
                        ended_by = status.terminating_signal();
                    }
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    // There is no child left, and everything it left behind were children of ours.
                    Err(_) => return ended_by,
                }
            }
            let command = self.shared.command().and_then(tree::look);
            if !self.adopts && command.is_none() {
                return ended_by;
            }
            self.wait_at_most(Some(OFTEN));
            let _ = read(&self.signals);
        }
    }
}

/// Makes orphaned processes children of this one, unless it already has unrelated children: a process that
/// becomes `tenure` by exec may have some.
pub(super) fn adopt() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let childless = waitid(WaitId::All, options).is_err();
    childless && set_child_subreaper(Some(getpid())).is_ok()
}
