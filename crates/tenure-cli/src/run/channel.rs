//! The socket between the foreground process and the supervisor. When one process ends, the other notices.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;

/// What the supervisor tells the foreground process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Message {
    /// The shared state has a deadline now.
    DeadlineSet,
    /// The command was stopped by this signal, or there is none: the foreground stops as well. `all` if the rest
    /// of its job has not been stopped yet.
    Stopped { signal: u8, all: bool },
    /// Everything is over, with this exit code. The supervisor may linger to keep the name taken.
    Done { code: u8, lingers: bool },
}

const LENGTH: usize = 3;

impl Message {
    pub(super) fn to_bytes(self) -> [u8; LENGTH] {
        match self {
            Message::DeadlineSet => [0, 0, 0],
            Message::Stopped { signal, all } => [1, signal, all.into()],
            Message::Done { code, lingers } => [2, code, lingers.into()],
        }
    }

    fn from_bytes([kind, value, flag]: [u8; LENGTH]) -> Message {
        match kind {
            0 => Message::DeadlineSet,
            1 => Message::Stopped { signal: value, all: flag != 0 },
            _ => Message::Done { code: value, lingers: flag != 0 },
        }
    }
}

/// The foreground's end of the socket. It carries signals one way and messages the other.
pub(super) struct ToSupervisor {
    socket: UnixStream,
}

/// What the foreground receives.
pub(super) enum Received {
    /// A message.
    Message(Message),
    /// Nothing yet.
    Nothing,
    /// The supervisor is gone.
    Gone,
}

/// The two ends, for the foreground and the supervisor. A command inherits neither.
pub(super) fn pair() -> io::Result<(ToSupervisor, UnixStream)> {
    let (foreground, supervisor) = UnixStream::pair()?;
    foreground.set_nonblocking(true)?;
    supervisor.set_nonblocking(true)?;
    Ok((ToSupervisor { socket: foreground }, supervisor))
}

impl ToSupervisor {
    /// Passes on a signal. A supervisor that no longer reads is about to exit.
    pub(super) fn send(&self, signal: u8) {
        let _ = (&self.socket).write_all(&[signal]);
    }

    /// The next message. Each is written in one piece, so it arrives in one.
    pub(super) fn receive(&self) -> Received {
        let mut bytes = [0; LENGTH];
        match (&self.socket).read_exact(&mut bytes) {
            Ok(()) => Received::Message(Message::from_bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Received::Nothing,
            Err(_) => Received::Gone,
        }
    }

    pub(super) fn socket(&self) -> &UnixStream {
        &self.socket
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_arrive_as_they_were_sent_and_the_end_is_noticed() {
        let (foreground, supervisor) = pair().unwrap();
        assert!(matches!(foreground.receive(), Received::Nothing));
        let told = [
            Message::DeadlineSet,
            Message::Stopped { signal: 20, all: true },
            Message::Done { code: 255, lingers: false },
        ];
        told.iter().for_each(|message| (&supervisor).write_all(&message.to_bytes()).unwrap());
        drop(supervisor);
        for message in told {
            assert!(matches!(foreground.receive(), Received::Message(heard) if heard == message));
        }
        assert!(matches!(foreground.receive(), Received::Gone));
        foreground.send(15);
    }
}
