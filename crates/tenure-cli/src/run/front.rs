//! The front: what the shell and the user see of `tenure run`.
//!
//! It has one thread and does next to nothing: it hands signals to the keeper, stops when the
//! command is stopped, and ends with the code that the keeper names. It is there so that the keeper
//! need not be: whoever kills `tenure` kills the front, and the keeper sees to the rest. The other
//! way round it watches over the keeper and the guard, and nothing that the keeper started outlives all
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

use super::clock;
use super::guard::{self, OFTEN};
use super::link::{Heard, News, Slate, ToKeeper};
use super::signals::{self, read};
use super::tree;
use crate::system::Inherited;

/// How the front ended.
pub(super) enum Ended {
    /// As the keeper said: this is the exit code.
    Done(u8),
    /// The keeper is gone, by this signal if it was one, and nothing that it started is left.
    KeeperDied(Option<i32>),
}

pub(super) struct Front {
    guard: Pid,
    link: ToKeeper,
    slate: Slate,
    inherited: Inherited,
    signals: OwnedFd,
    /// Whether processes that lose their parent come to this one.
    adopts: bool,
}

impl Front {
    pub(super) fn new(
        guard: Pid,
        link: ToKeeper,
        slate: Slate,
        inherited: Inherited,
        adopts: bool,
    ) -> io::Result<Front> {
        Ok(Front { guard, link, slate, inherited, signals: inherited.taken()?, adopts })
    }

    /// Stands in front until all is over.
    pub(super) fn watch(self) -> Ended {
        loop {
            self.wait();
            for signal in read(&self.signals) {
                if signals::is_for_command(signal) {
                    self.link.send(signal as u8);
                }
            }
            match self.link.hear() {
                Heard::News(News::Done { code, lingers }) => {
                    if !lingers {
                        // It ends right after the keeper; if it was killed, the keeper is our child.
                        for pid in [Some(self.guard), self.slate.keeper()].into_iter().flatten() {
                            let _ = waitpid(Some(pid), WaitOptions::empty());
                        }
                    }
                    return Ended::Done(code);
                }
                Heard::News(News::Stopped { signal, all }) => self.stop(signal.into(), all),
                Heard::News(News::Look) | Heard::Nothing => {}
                Heard::Gone => return Ended::KeeperDied(self.end_all()),
            }
            if let Some(keeper) = self.slate.keeper() {
                guard::stand_in(keeper, self.slate);
            }
        }
    }

    /// Waits for a signal, for news or for the deadline on the slate.
    fn wait(&self) {
        let left = self.slate.deadline().map(|at| at.saturating_sub(clock::now()).max(OFTEN));
        self.wait_at_most(left);
    }

    fn wait_at_most(&self, left: Option<Duration>) {
        let left = left.and_then(|left| Timespec::try_from(left).ok());
        let signals = PollFd::from_borrowed_fd(self.signals.as_fd(), PollFlags::IN);
        let news = PollFd::from_borrowed_fd(self.link.socket().as_fd(), PollFlags::IN);
        // Whatever it says, there is no harm in looking.
        let _ = poll(&mut [signals, news], left.as_ref());
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
        // The kernel does not stop a group that nobody could let go on, so the command must not be
        // stopped either. One that needs a terminal it will never have is told that it is gone.
        if matches!(signal, libc::SIGTTIN | libc::SIGTTOU) {
            self.link.send(libc::SIGHUP as u8);
        }
        if signal != libc::SIGSTOP {
            self.link.send(libc::SIGCONT as u8);
        }
    }

    /// Waits until the guard has killed all that a dead keeper has left; kills it itself if the guard was
    /// killed, too. Returns the signal that ended the keeper.
    fn end_all(&self) -> Option<i32> {
        while let Ok(None) = waitpid(Some(self.guard), WaitOptions::NOHANG) {
            // It may have been stopped.
            let _ = kill_process(self.guard, Signal::CONT);
            self.wait_at_most(Some(OFTEN));
            let _ = read(&self.signals);
        }
        let (keeper, mut ended_by) = (self.slate.keeper(), self.slate.keeper_ended_by());
        loop {
            guard::kill_group(self.slate, getpid());
            if self.adopts {
                for process in tree::below(getpid()) {
                    // One that cannot be killed is still there when we look again.
                    let _ = process.signal(Signal::KILL);
                }
            }
            loop {
                match wait(WaitOptions::NOHANG) {
                    Ok(Some((pid, status))) if Some(pid) == keeper => {
                        ended_by = status.terminating_signal();
                    }
                    Ok(Some(_)) | Err(Errno::INTR) => {}
                    Ok(None) => break,
                    // No child is left, and all that it left behind were children of ours.
                    Err(_) => return ended_by,
                }
            }
            let command = self.slate.command().and_then(tree::look);
            if !self.adopts && command.is_none() {
                return ended_by;
            }
            self.wait_at_most(Some(OFTEN));
            let _ = read(&self.signals);
        }
    }
}

/// Makes processes that lose their parent come to this one, unless it has children already that are
/// none of its business: whoever becomes `tenure` by exec may have some.
pub(super) fn adopt() -> bool {
    let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
    let childless = waitid(WaitId::All, options).is_err();
    childless && set_child_subreaper(Some(getpid())).is_ok()
}
