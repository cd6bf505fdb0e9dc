//! Forwards the output of a command and records it; or writes the recorded output again.
//!
//! This happens on a separate thread, which never waits for a reader while the pipes of the command are unread. A slow
//! reader slows the command down, as it would without us, but never delays the record of a command that has exited. A
//! reader that goes away ends nothing, because the record is still needed.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::thread;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{Errno, fcntl_dupfd_cloexec, read, write};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::stdio::{stderr, stdout};
use tokio::sync::oneshot;

use super::record::{Piece, Stream, Written};

/// How much is read at once.
const CHUNK: usize = 16 * 1024;
/// How much may wait to be written before the command has to wait.
const ENOUGH: usize = 64 * 1024;
/// How much is read from a pipe after the command has exited: a process it left behind may write for ever.
const LAST: usize = 1024 * 1024;
/// What can be written to a pipe that has room without blocking.
const AT_ONCE: usize = 4096;

/// The ends that a command writes to.
pub(super) struct Ends {
    pub(super) out: OwnedFd,
    pub(super) error: OwnedFd,
}

/// Forwards output, until it is told that the command has exited.
pub(super) struct Forwarding {
    /// Closed when the command has exited.
    ended: Option<OwnedFd>,
    written: oneshot::Receiver<Written>,
    passed: oneshot::Receiver<Option<io::Error>>,
}

impl Forwarding {
    /// Forwards everything that is written to the returned ends.
    pub(super) fn start() -> io::Result<(Forwarding, Ends)> {
        let (from_out, out) = pipe_with(PipeFlags::CLOEXEC)?;
        let (from_error, error) = pipe_with(PipeFlags::CLOEXEC)?;
        for from in [&from_out, &from_error] {
            // Only the end that is read here, not the command's.
            fcntl_setfl(from, fcntl_getfl(from)? | OFlags::NONBLOCK)?;
        }
        let passing = Forwarding::spawn([Some(from_out), Some(from_error)], VecDeque::new())?;
        Ok((passing, Ends { out, error }))
    }

    /// Writes the recorded output.
    pub(super) fn again(written: Written) -> io::Result<Forwarding> {
        Forwarding::spawn([None, None], written.into_pieces())
    }

    fn spawn(from: [Option<OwnedFd>; 2], pending: VecDeque<Piece>) -> io::Result<Forwarding> {
        let (told, ended) = pipe_with(PipeFlags::CLOEXEC)?;
        let (give_written, written) = oneshot::channel();
        let (give_passed, passed) = oneshot::channel();
        // Duplicates: this process closes its own output when a command has it.
        let to = [stdout(), stderr()].map(|to| fcntl_dupfd_cloexec(to, 3).ok());
        let size = pending.iter().map(|piece| piece.bytes.len()).sum();
        let pass =
            Forwarder { from, to, pending, size, written: Written::default(), trouble: None };
        let work = move || {
            let trouble = pass.run(told, give_written);
            // If this process is about to exit, nobody needs it.
            let _ = give_passed.send(trouble);
        };
        thread::Builder::new().name("tenure-output".into()).spawn(work)?;
        Ok(Forwarding { ended: Some(ended), written, passed })
    }

    /// The command has exited: returns its output.
    pub(super) async fn written(&mut self) -> Written {
        self.ended = None;
        (&mut self.written).await.unwrap_or_default()
    }

    /// Waits until all of it was forwarded, or could not be.
    pub(super) async fn passed(mut self) -> Option<io::Error> {
        self.ended = None;
        self.passed.await.ok().flatten()
    }
}

const STREAMS: [Stream; 2] = [Stream::Out, Stream::Error];

/// The state of the thread.
struct Forwarder {
    from: [Option<OwnedFd>; 2],
    to: [Option<OwnedFd>; 2],
    /// The output to be written, in order.
    pending: VecDeque<Piece>,
    /// The number of bytes in it.
    size: usize,
    written: Written,
    trouble: Option<io::Error>,
}

impl Forwarder {
    fn run(mut self, told: OwnedFd, give: oneshot::Sender<Written>) -> Option<io::Error> {
        let mut give = Some(give);
        while give.is_some() || !self.pending.is_empty() {
            let ready = self.wait(give.is_some().then_some(told.as_fd()));
            if ready.told
                && let Some(give) = give.take()
            {
                self.read_last();
                let _ = give.send(std::mem::take(&mut self.written));
                continue;
            }
            for at in (0..2).filter(|at| ready.readable[*at]) {
                self.read(at, CHUNK);
            }
            if ready.writable {
                self.write();
            }
            self.let_go();
        }
        self.trouble
    }

    /// Waits until there is something to do.
    fn wait(&self, told: Option<BorrowedFd<'_>>) -> Ready {
        let full = self.size >= ENOUGH;
        let from = |at: usize| self.from[at].as_ref().filter(|_| !full).map(AsFd::as_fd);
        let to = self.pending.front().and_then(|piece| self.to[index(piece.stream)].as_ref());
        let asked = [
            (told, PollFlags::IN),
            (from(0), PollFlags::IN),
            (from(1), PollFlags::IN),
            (to.map(AsFd::as_fd), PollFlags::OUT),
        ];
        let mut fds: Vec<_> = asked
            .iter()
            .filter_map(|(fd, flags)| Some(PollFd::from_borrowed_fd((*fd)?, *flags)))
            .collect();
        if !fds.is_empty() && poll(&mut fds, None).is_err() {
            return Ready::default();
        }
        let mut answers = fds.iter().map(|fd| !fd.revents().is_empty());
        let [told, out, error, writable] =
            asked.map(|(fd, _)| fd.is_some() && answers.next().unwrap_or(false));
        // If an output is gone, its data is dropped at once.
        let writable = writable || (to.is_none() && !self.pending.is_empty());
        Ready { told, readable: [out, error], writable }
    }

    /// Reads once. Returns the number of bytes.
    fn read(&mut self, at: usize, most: usize) -> usize {
        let Some(from) = &self.from[at] else { return 0 };
        let mut bytes = vec![0; most.min(CHUNK)];
        match read(from, &mut bytes) {
            Ok(length) if length > 0 => {
                bytes.truncate(length);
                self.written.push(STREAMS[at], &bytes);
                self.size += length;
                self.pending.push_back(Piece { stream: STREAMS[at], bytes });
                length
            }
            Err(Errno::AGAIN | Errno::INTR) => 0,
            Ok(_) | Err(_) => {
                self.from[at] = None;
                0
            }
        }
    }

    /// Reads the rest of what a command that has exited wrote.
    fn read_last(&mut self) {
        for at in 0..2 {
            let mut left = LAST;
            while left > 0 {
                match self.read(at, left) {
                    0 => break,
                    length => left -= length,
                }
            }
            self.from[at] = None;
        }
    }

    fn write(&mut self) {
        let Some(piece) = self.pending.front_mut() else { return };
        let at = index(piece.stream);
        let done = match &self.to[at] {
            None => piece.bytes.len(),
            Some(to) => match write(to, &piece.bytes[..piece.bytes.len().min(AT_ONCE)]) {
                Ok(length) => length,
                Err(Errno::AGAIN | Errno::INTR) => 0,
                Err(error) => {
                    if error != Errno::PIPE {
                        self.trouble = Some(error.into());
                    }
                    self.to[at] = None;
                    piece.bytes.len()
                }
            },
        };
        piece.bytes.drain(..done);
        self.size -= done;
        if piece.bytes.is_empty() {
            self.pending.pop_front();
        }
    }

    /// Closes outputs that nothing will be written to any more, so that their readers see the end.
    fn let_go(&mut self) {
        for at in 0..2 {
            let waits = self.pending.iter().any(|piece| index(piece.stream) == at);
            if self.from[at].is_none() && !waits {
                self.to[at] = None;
            }
        }
    }
}

/// The file descriptors that are ready.
#[derive(Default)]
struct Ready {
    told: bool,
    readable: [bool; 2],
    writable: bool,
}

fn index(stream: Stream) -> usize {
    match stream {
        Stream::Out => 0,
        Stream::Error => 1,
    }
}
