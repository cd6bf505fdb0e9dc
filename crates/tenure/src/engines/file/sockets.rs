//! How clients of a file reach each other: each has a datagram socket, in a folder beside the file.
//!
//! A socket whose process was killed refuses at once, so a waiter that is gone is passed over within the step
//! that would have served it.

use std::collections::HashMap;
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};

use super::messages::{self, Message};
use super::paths::Inodes;
use crate::ledger::{Process, Word};
use crate::model::moment::Moment;

#[derive(Debug)]
pub(super) struct Sockets {
    folder: File,
    /// The files that reachable clients must have open, too.
    world: Option<Inodes>,
    out: UnixDatagram,
    own: Option<UnixDatagram>,
    /// Datagrams that ask clients with a full socket to look again, with the number of tries. The original
    /// message may be wrong by the time it can be sent.
    unsent: Vec<(Process, Vec<u8>, u32)>,
}

/// How often a datagram is tried before its waiters are left to look on their own.
const TRIES: u32 = 50;
/// The largest number of datagrams that are kept for clients that do not read.
const MOST_UNSENT: usize = 1000;
/// How many sockets a new client checks.
const SOME: usize = 4;

impl Sockets {
    pub(super) fn new(folder: File) -> io::Result<Sockets> {
        let out = UnixDatagram::unbound()?;
        out.set_nonblocking(true)?;
        Ok(Sockets { folder, world: None, out, own: None, unsent: Vec::new() })
    }

    /// Sets which files this client has open.
    pub(super) fn belong_to(&mut self, world: Inodes) {
        self.world = Some(world);
    }

    /// Starts to listen as client `number`. Must be called under the writer lock: the socket has a name before it
    /// answers, and would be mistaken for one that was left behind.
    pub(super) fn listen(&mut self, number: Process) -> io::Result<()> {
        self.clean_some(number);
        let path = self.path(number);
        let _ = fs::remove_file(&path);
        let own = UnixDatagram::bind(&path)?;
        own.set_nonblocking(true)?;
        // Root and the owner of the file can reach each other; nobody else can enter the folder.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        self.own = Some(own);
        Ok(())
    }

    /// Whether others find this client's socket.
    pub(super) fn is_found(&self, number: Process) -> bool {
        self.own.is_none() || self.path(number).exists()
    }

    /// Whether the folder was deleted.
    pub(super) fn has_lost_its_folder(&self) -> bool {
        self.folder.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// Continues in a folder that was created again.
    pub(super) fn move_to(&mut self, folder: File) {
        self.folder = folder;
    }

    pub(super) fn own(&self) -> Option<&UnixDatagram> {
        self.own.as_ref()
    }

    /// Stops listening.
    pub(super) fn close(&mut self, number: Process) {
        self.own = None;
        self.forget(number);
    }

    /// Removes the socket that a client left behind.
    pub(super) fn forget(&self, number: Process) {
        let _ = fs::remove_file(self.path(number));
    }

    fn path(&self, number: Process) -> PathBuf {
        let Inodes { database, journal, index } = self.world.unwrap_or_default();
        self.within(&format!("{database}.{journal}.{index}.{number}"))
    }

    /// Through the open folder, because the path of a socket must not be longer than 107 bytes.
    fn within(&self, name: &str) -> PathBuf {
        format!("/proc/self/fd/{}/{name}", self.folder.as_raw_fd()).into()
    }

    /// Whether a client can be reached. This is asked before a step is committed; messages are sent after it.
    pub(super) fn reaches(&self, number: Process) -> bool {
        answers(&self.path(number))
    }

    /// Sends a client the messages to its claims. A claim that cannot be told looks on its own.
    pub(super) fn tell(&mut self, number: Process, at: Moment, said: &[Message]) {
        let path = self.path(number);
        let mut datagrams = messages::write(at, said).into_iter();
        if !datagrams.any(|datagram| self.is_full(&datagram, &path)) {
            return;
        }
        let ask = |said: &Message| Message { word: Word::LookAgain, ..said.clone() };
        let ask: Vec<_> = said.iter().map(ask).collect();
        if self.unsent.len() < MOST_UNSENT {
            self.unsent.extend(messages::write(at, &ask).into_iter().map(|ask| (number, ask, 0)));
        }
    }

    /// Sends a datagram unless the receiving socket is full, and returns whether it was full. Datagrams that
    /// stopped clients have not read count against the sending socket, and must not block it.
    fn is_full(&self, datagram: &[u8], path: &Path) -> bool {
        let full = |error: io::Error| error.kind() == io::ErrorKind::WouldBlock;
        if !self.out.send_to(datagram, path).is_err_and(full) {
            return false;
        }
        let Ok(fresh) = UnixDatagram::unbound() else { return true };
        fresh.set_nonblocking(true).is_err() || fresh.send_to(datagram, path).is_err_and(full)
    }

    /// The messages to this client's claims, and when they were sent.
    pub(super) fn heard(&self) -> Vec<(Moment, Message)> {
        let mut all = Vec::new();
        let Some(own) = &self.own else { return all };
        let mut buffer = vec![0; messages::LONGEST + 16];
        while let Ok(length) = own.recv(&mut buffer) {
            if let Some((at, said)) = messages::read(&buffer[..length]) {
                all.extend(said.into_iter().map(|said| (at, said)));
            }
        }
        all
    }

    /// Whether there are datagrams that could not be sent.
    pub(super) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    pub(super) fn send_again(&mut self) {
        for (number, datagram, tries) in std::mem::take(&mut self.unsent) {
            let full = self.is_full(&datagram, &self.path(number));
            if full && tries < TRIES {
                self.unsent.push((number, datagram, tries + 1));
            }
        }
    }

    /// The number of clients that listen but have other files open than the current ones.
    pub(super) fn strangers(&self, world: Option<Inodes>) -> usize {
        let all = self.names().into_iter();
        let others = all.filter(|name| world.is_none() || read_world(name) != world);
        others.filter(|name| answers(&self.within(name))).count()
    }

    /// Removes sockets that were left behind by unknown clients. Must be called under the writer lock.
    pub(super) fn clean(&self) {
        self.names().iter().for_each(|name| self.remove_if_dead(name));
    }

    /// The same for a few of them, chosen differently each time. A client that leaves one socket behind removes
    /// more than one, so they do not pile up, no matter how many processes come and go between two sweeps.
    fn clean_some(&self, number: Process) {
        let names = self.names();
        let first = number as usize % names.len().max(1);
        let some = names.iter().cycle().skip(first).take(SOME.min(names.len()));
        some.for_each(|name| self.remove_if_dead(name));
    }

    fn remove_if_dead(&self, name: &str) {
        let path = self.within(name);
        if !answers(&path) {
            let _ = fs::remove_file(path);
        }
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.within(".")).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }
}

/// Whether someone listens there.
fn answers(path: &Path) -> bool {
    let Ok(address) = SocketAddrUnix::new(path) else { return false };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let probe = socket_with(AddressFamily::UNIX, SocketType::DGRAM, flags, None);
    // Running out of descriptors is no reason to pass anyone over.
    let Ok(probe): Result<OwnedFd, _> = probe else { return true };
    connect(&probe, &address).is_ok()
}

fn read_world(name: &str) -> Option<Inodes> {
    let mut numbers = name.split('.').map(|number| number.parse().ok());
    let mut number = || numbers.next().flatten();
    Some(Inodes { database: number()?, journal: number()?, index: number()? })
}

/// Which clients can be reached, cached for one step.
#[derive(Default)]
pub(super) struct Reach(HashMap<Process, bool>);

impl Reach {
    pub(super) fn of(&mut self, number: Process, sockets: &Sockets) -> bool {
        *self.0.entry(number).or_insert_with(|| sockets.reaches(number))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::claim::ClaimId;
    use crate::model::name::{Name, Space};

    /// A process that ends right after its claim leaves its socket behind: it has no time to remove it.
    #[test]
    fn sockets_of_processes_that_ended_do_not_pile_up() {
        let path = std::env::temp_dir().join(format!("tenure-left-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let sockets = || Sockets::new(File::open(&path).unwrap()).unwrap();
        let mut lives = sockets();
        lives.listen(1).unwrap();
        for number in 2..300 {
            drop(UnixDatagram::bind(path.join(format!("0.0.0.{number}"))).unwrap());
        }
        for number in 300..500 {
            sockets().listen(number).unwrap();
        }
        let left = lives.names().len();
        assert!(left <= 8, "{left} are left");
        assert!(lives.is_found(1) && sockets().reaches(1), "who listens is left alone");
        fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn many_clients_that_do_not_read_silence_nobody() {
        let path = std::env::temp_dir().join(format!("tenure-sockets-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir(&path).unwrap();
        let sockets = || Sockets::new(File::open(&path).unwrap()).unwrap();
        let (mut ours, mut reads) = (sockets(), sockets());
        let name = Name::new(Space::Lock, "x").unwrap();
        let outcome = Word::Settled(std::sync::Arc::from(&[7; 20_000][..]));
        let said = |word: Word| {
            let id = ClaimId::from_bytes([7; 16]);
            [Message { name: name.clone(), id, word, holder: 0 }]
        };
        let mut standing_still = Vec::new();
        for number in 1..100 {
            let mut other = sockets();
            other.listen(number).unwrap();
            standing_still.push(other);
            for _ in 0..3 {
                ours.tell(number, Moment::ORIGIN, &said(outcome.clone()));
            }
        }
        reads.listen(1000).unwrap();
        ours.tell(1000, Moment::ORIGIN, &said(Word::LookAgain));
        assert_eq!(reads.heard(), [(Moment::ORIGIN, said(Word::LookAgain)[0].clone())]);
        fs::remove_dir_all(path).unwrap();
    }
}
