//! How clients of a file reach each other: a datagram socket for each, in a folder beside it.
//!
//! A socket whose process was killed refuses at once, which is how a waiter that is gone is passed
//! over within the step that would have served it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::wire::{self, Said};
use crate::ledger::{Process, Word};
use crate::moment::Moment;

#[derive(Debug)]
pub(super) struct Sockets {
    folder: File,
    out: UnixDatagram,
    own: Option<UnixDatagram>,
    /// For those whose socket was full, with how often it was tried: that they should ask. What
    /// should have been said may be wrong by the time it can be.
    unsent: Vec<(Process, Vec<u8>, u32)>,
}

/// How often a datagram is tried before its waiters are left to look by themselves.
const TRIES: u32 = 50;
/// Nobody keeps more than this for clients that do not read.
const MOST_UNSENT: usize = 1000;

impl Sockets {
    pub(super) fn new(folder: File) -> io::Result<Sockets> {
        let out = UnixDatagram::unbound()?;
        out.set_nonblocking(true)?;
        Ok(Sockets { folder, out, own: None, unsent: Vec::new() })
    }

    /// Begins to listen as client `number`.
    pub(super) fn listen(&mut self, number: Process) -> io::Result<()> {
        let path = self.path(number);
        let _ = fs::remove_file(&path);
        let own = UnixDatagram::bind(&path)?;
        own.set_nonblocking(true)?;
        self.own = Some(own);
        Ok(())
    }

    pub(super) fn own(&self) -> Option<&UnixDatagram> {
        self.own.as_ref()
    }

    /// Stops listening.
    pub(super) fn close(&mut self, number: Process) {
        self.own = None;
        self.forget(number);
    }

    /// Removes what a client left behind.
    pub(super) fn forget(&self, number: Process) {
        let _ = fs::remove_file(self.path(number));
    }

    /// Through the open folder, because the path of a socket must not be longer than 107 bytes.
    fn path(&self, number: Process) -> PathBuf {
        format!("/proc/self/fd/{}/{number}", self.folder.as_raw_fd()).into()
    }

    /// Whether a client can be reached: asked before a step is committed, told after it.
    pub(super) fn reaches(&self, number: Process) -> bool {
        let Ok(address) = SocketAddrUnix::new(self.path(number)) else { return false };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
        // Out of descriptors is no reason to pass anyone over.
        let Ok(probe): Result<OwnedFd, _> = probe else { return true };
        connect(&probe, &address).is_ok()
    }

    /// Tells a client what was said to its claims. Whoever cannot be told looks by itself.
    pub(super) fn tell(&mut self, number: Process, at: Moment, said: &[Said]) {
        let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        let path = self.path(number);
        let mut datagrams = wire::write(at, said).into_iter();
        if !datagrams.any(|datagram| self.out.send_to(&datagram, &path).is_err_and(full)) {
            return;
        }
        let ask = |said: &Said| Said { word: Word::LookAgain, ..said.clone() };
        let ask: Vec<_> = said.iter().map(ask).collect();
        if self.unsent.len() < MOST_UNSENT {
            self.unsent.extend(wire::write(at, &ask).into_iter().map(|ask| (number, ask, 0)));
        }
    }

    /// What was said to this client's claims, and when.
    pub(super) fn heard(&self) -> Vec<(Moment, Said)> {
        let mut all = Vec::new();
        let Some(own) = &self.own else { return all };
        let mut buffer = vec![0; wire::LONGEST + 16];
        while let Ok(length) = own.recv(&mut buffer) {
            if let Some((at, said)) = wire::read(&buffer[..length]) {
                all.extend(said.into_iter().map(|said| (at, said)));
            }
        }
        all
    }

    /// Whether something is kept that could not be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn send_again(&mut self) {
        for (number, datagram, tries) in std::mem::take(&mut self.unsent) {
            let sent = self.out.send_to(&datagram, self.path(number));
            let full = sent.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock);
            if full && tries < TRIES {
                self.unsent.push((number, datagram, tries + 1));
            }
        }
    }

    /// The clients that listen, of all that ever did and left something behind.
    pub(super) fn listening(&self) -> Vec<Process> {
        let folder = format!("/proc/self/fd/{}", self.folder.as_raw_fd());
        let entries = fs::read_dir(folder).into_iter().flatten().flatten();
        let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        numbers.filter(|number| self.reaches(*number)).collect()
    }
}

/// What is known about who can be reached, within one step.
#[derive(Default)]
pub(super) struct Reach(HashMap<Process, bool>);

impl Reach {
    pub(super) fn of(&mut self, number: Process, sockets: &Sockets) -> bool {
        *self.0.entry(number).or_insert_with(|| sockets.reaches(number))
    }
}
