//! What the front, the guard and the keeper share: a socket between front and keeper, whose end tells
//! each that the other is gone, and a slate with what the others must know even if the keeper never says
//! another word.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use rustix::process::Pid;

use crate::system;

/// What the keeper tells the front.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    /// The slate has a deadline now.
    Look,
    /// The command was stopped by this signal, or nothing runs that could be: the front stops too.
    /// `all` if the whole job of the front has yet to hear of it.
    Stopped { signal: u8, all: bool },
    /// All is over, and this is the exit code. The keeper may linger to keep the name taken.
    Done { code: u8, lingers: bool },
}

const LENGTH: usize = 3;

impl News {
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        match self {
            News::Look => [0, 0, 0],
            News::Stopped { signal, all } => [1, signal, all.into()],
            News::Done { code, lingers } => [2, code, lingers.into()],
        }
    }

    fn from_bytes([kind, value, flag]: [u8; LENGTH]) -> News {
        match kind {
            0 => News::Look,
            1 => News::Stopped { signal: value, all: flag != 0 },
            _ => News::Done { code: value, lingers: flag != 0 },
        }
    }
}

/// The front's end of the socket. It carries signals one way and news the other.
pub(super) struct ToKeeper {
    socket: UnixStream,
}

/// What the front hears.
pub(super) enum Heard {
    /// This.
    News(News),
    /// Nothing yet.
    Nothing,
    /// The keeper is gone.
    Gone,
}

/// The two ends: the front's and the keeper's. Neither is inherited by a command.
pub(super) fn pair() -> io::Result<(ToKeeper, UnixStream)> {
    let (front, keeper) = UnixStream::pair()?;
    front.set_nonblocking(true)?;
    keeper.set_nonblocking(true)?;
    Ok((ToKeeper { socket: front }, keeper))
}

impl ToKeeper {
    /// Hands a signal on. A keeper that does not take it any more is about to end.
    pub(super) fn send(&self, signal: u8) {
        let _ = (&self.socket).write_all(&[signal]);
    }

    /// The next news. They are written in one piece, so that they arrive in one.
    pub(super) fn hear(&self) -> Heard {
        let mut bytes = [0; LENGTH];
        match (&self.socket).read_exact(&mut bytes) {
            Ok(()) => Heard::News(News::from_bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Heard::Nothing,
            Err(_) => Heard::Gone,
        }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }
}

/// What the front and the guard act on if the keeper does not.
#[derive(Clone, Copy)]
pub(super) struct Slate(&'static [AtomicU64; 6]);

impl Slate {
    /// One that a fork shares.
    pub(super) fn new() -> io::Result<Slate> {
        system::share().map(Slate)
    }

    /// By when the command is gone, or the others kill it: for the case that the keeper cannot.
    pub(super) fn deadline(self) -> Option<Duration> {
        let nanos = self.0[0].load(SeqCst);
        (nanos > 0).then(|| Duration::from_nanos(nanos))
    }

    /// Sets it, and returns whether there was none before.
    pub(super) fn set_deadline(self, at: Option<Duration>) -> bool {
        let nanos = at.map_or(0, |at| u64::try_from(at.as_nanos()).unwrap_or(u64::MAX).max(1));
        self.0[0].swap(nanos, SeqCst) == 0 && nanos > 0
    }

    /// The command, while it has not ended; its group has the same number.
    pub(super) fn command(self) -> Option<Pid> {
        i32::try_from(self.0[1].load(SeqCst)).ok().and_then(Pid::from_raw)
    }

    pub(super) fn set_command(self, command: Option<Pid>) {
        let number = command.map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        self.0[1].store(number.into(), SeqCst);
    }

    /// The keeper, once it was started.
    pub(super) fn keeper(self) -> Option<Pid> {
        i32::try_from(self.0[3].load(SeqCst)).ok().and_then(Pid::from_raw)
    }

    pub(super) fn set_keeper(self, keeper: Pid) {
        self.0[3].store(keeper.as_raw_nonzero().get().unsigned_abs().into(), SeqCst);
    }

    /// The signal that ended the keeper, as the guard saw it.
    pub(super) fn keeper_ended_by(self) -> Option<i32> {
        i32::try_from(self.0[4].load(SeqCst)).ok().filter(|signal| *signal > 0)
    }

    pub(super) fn set_keeper_ended_by(self, signal: Option<i32>) {
        self.0[4].store(signal.unwrap_or_default().unsigned_abs().into(), SeqCst);
    }

    /// Whether the keeper has no command any more that somebody would have to end.
    pub(super) fn is_over(self) -> bool {
        self.0[5].load(SeqCst) > 0
    }

    pub(super) fn set_over(self) {
        self.0[5].store(1, SeqCst);
    }

    /// Whether another process had to kill the command in the keeper's place.
    pub(super) fn stood_in(self) -> bool {
        self.0[2].load(SeqCst) > 0
    }

    pub(super) fn set_stood_in(self, stood_in: bool) {
        self.0[2].store(stood_in.into(), SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_arrive_as_they_were_sent_and_the_end_is_heard() {
        let (front, keeper) = pair().unwrap();
        assert!(matches!(front.hear(), Heard::Nothing));
        let told = [
            News::Look,
            News::Stopped { signal: 20, all: true },
            News::Done { code: 255, lingers: false },
        ];
        told.iter().for_each(|news| (&keeper).write_all(&news.to_bytes()).unwrap());
        drop(keeper);
        for news in told {
            assert!(matches!(front.hear(), Heard::News(heard) if heard == news));
        }
        assert!(matches!(front.hear(), Heard::Gone));
        front.send(15);
    }

    #[test]
    fn a_slate_says_when_a_deadline_is_new() {
        let slate = Slate::new().unwrap();
        assert_eq!((slate.deadline(), slate.command()), (None, None));
        assert!(slate.set_deadline(Some(Duration::from_secs(5))));
        assert!(!slate.set_deadline(Some(Duration::from_secs(6))));
        assert_eq!(slate.deadline(), Some(Duration::from_secs(6)));
        assert!(!slate.set_deadline(None));
        slate.set_command(Some(rustix::process::getpid()));
        assert_eq!(slate.command(), Some(rustix::process::getpid()));
    }
}
