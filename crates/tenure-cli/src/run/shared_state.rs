//! Memory that the three processes share: what the foreground process and the guard must know even if the
//! supervisor never sends another message.

use std::io;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Pid;

use crate::system;

/// What the foreground and the guard act on if the supervisor does not.
#[derive(Clone, Copy)]
pub(super) struct SharedState(&'static [AtomicU64; 6]);

impl SharedState {
    /// Memory that survives a fork as shared.
    pub(super) fn new() -> io::Result<SharedState> {
        system::share().map(SharedState)
    }

    /// When the command must be gone; after that the others kill it, in case the supervisor cannot.
    pub(super) fn deadline(self) -> Option<Duration> {
        let nanos = self.0[0].load(SeqCst);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Sets the deadline. Returns whether there was none before.
    pub(super) fn set_deadline(self, at: Option<Duration>) -> bool {
        let nanos = at.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.0[0].swap(nanos, SeqCst) == 0 && nanos > 0
    }

    /// The command, until it has exited. Its group has the same number.
    pub(super) fn command(self) -> Option<Pid> {
        i32::try_from(self.0[1].load(SeqCst)).ok().and_then(Pid::from_raw)
    }

    pub(super) fn set_command(self, command: Option<Pid>) {
        let number = command.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        self.0[1].store(number.into(), SeqCst);
    }

    /// The supervisor, once it is started.
    pub(super) fn supervisor(self) -> Option<Pid> {
        i32::try_from(self.0[3].load(SeqCst)).ok().and_then(Pid::from_raw)
    }

    pub(super) fn set_supervisor(self, supervisor: Pid) {
        self.0[3].store(supervisor.as_raw_nonzero().get().unsigned_abs().into(), SeqCst);
    }

    /// The signal that ended the supervisor, as the guard saw it.
    pub(super) fn supervisor_ended_by(self) -> Option<i32> {
        i32::try_from(self.0[4].load(SeqCst)).ok().filter(|signal| *signal > 0)
    }

    pub(super) fn set_supervisor_ended_by(self, signal: Option<i32>) {
        self.0[4].store(signal.unwrap_or_default().unsigned_abs().into(), SeqCst);
    }

    /// Whether the supervisor no longer has a command that someone would have to end.
    pub(super) fn is_over(self) -> bool {
        self.0[5].load(SeqCst) > 0
    }

    pub(super) fn set_over(self) {
        self.0[5].store(1, SeqCst);
    }

    /// Whether another process had to kill the command in the supervisor's place.
    pub(super) fn killed_for_it(self) -> bool {
        self.0[2].load(SeqCst) > 0
    }

    pub(super) fn set_killed_for_it(self, killed_for_it: bool) {
        self.0[2].store(killed_for_it.into(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_says_when_a_deadline_is_new() {
        let shared = SharedState::new().unwrap();
        assert_eq!((shared.deadline(), shared.command()), (None, None));
        assert!(shared.set_deadline(Some(Duration::from_secs(5))));
        assert!(!shared.set_deadline(Some(Duration::from_secs(6))));
        assert_eq!(shared.deadline(), Some(Duration::from_secs(6)));
        assert!(!shared.set_deadline(None));
        shared.set_command(Some(rustix::process::getpid()));
        assert_eq!(shared.command(), Some(rustix::process::getpid()));
    }
}
