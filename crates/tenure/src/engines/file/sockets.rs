//! How clients of a file reach each other: a datagram socket for each, in a folder beside it.
//!
//! A socket whose process was killed refuses at once, which is how a waiter that is gone is passed
//! over within the step that would have served it.

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
    /// The files that clients which can be reached have open, too.
    world: Option<Inodes>,
    out: UnixDatagram,
    own: Option<UnixDatagram>,
    /// For those whose socket was full, with how often it was tried: that they should ask. What
    /// should have been said may be wrong by the time it can be.
    unsent: Vec<(Process, Vec<u8>, u32)>,
}

/// How often a datagram is tried before its waiters are left to look by themselves.
const TRIES: u32 = 50;
/// How much is kept for clients that do not read, at most.
const MOST_UNSENT: usize = 1000;
/// How many sockets a new client looks at.
const SOME: usize = 4;

impl Sockets {
    pub(super) fn new(folder: File) -> io::Result<Sockets> {
        let out = UnixDatagram::unbound()?;
        out.set_nonblocking(true)?;
        Ok(Sockets { folder, world: None, out, own: None, unsent: Vec::new() })
    }

    /// Says which files this client has open.
    pub(super) fn belong_to(&mut self, world: Inodes) {
        self.world = Some(world);
    }

    /// Begins to listen as client `number`. Under the writer lock: a socket has a name before it answers, and
    /// would be taken for one that was left behind.
    pub(super) fn listen(&mut self, number: Process) -> io::Result<()> {
        self.clean_some(number);
        let path = self.path(number);
        let _ = fs::remove_file(&path);
        let own = UnixDatagram::bind(&path)?;
        own.set_nonblocking(true)?;
        // Root and the owner of the file reach each other; nobody else comes into the folder.
        fs::set_permissions(&path, fs::Permissions::from_mode(0o666))?;
        self.own = Some(own);
        Ok(())
    }

    /// Whether others find this client where it listens.
    pub(super) fn is_found(&self, number: Process) -> bool {
        self.own.is_none() || self.path(number).exists()
    }

    /// Whether the folder was deleted.
    pub(super) fn has_lost_its_folder(&self) -> bool {
        self.folder.metadata().is_ok_and(|about| about.nlink() == 0)
    }

    /// Goes on in a folder that was made anew.
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

    /// Removes what a client left behind.
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

    /// Whether a client can be reached: asked before a step is committed, told after it.
    pub(super) fn reaches(&self, number: Process) -> bool {
        answers(&self.path(number))
    }

    /// Tells a client what was said to its claims. Whoever cannot be told looks by itself.
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

    /// Sends, unless the socket there is full, and says whether it was. What clients that stand still
    /// have not read counts against the socket that it was sent from, and must not silence it.
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

    /// Whether something is kept that could not be sent.
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

    /// How many clients listen that have other files open than there are now.
    pub(super) fn strangers(&self, world: Option<Inodes>) -> usize {
        let all = self.names().into_iter();
        let others = all.filter(|name| world.is_none() || read_world(name) != world);
        others.filter(|name| answers(&self.within(name))).count()
    }

    /// Removes what was left behind by clients that nobody knows of. Under the writer lock.
    pub(super) fn clean(&self) {
        self.names().iter().for_each(|name| self.remove_if_dead(name));
    }

    /// The same for a few of them, at another place each time: whoever leaves one finds more than one, so
    /// that they do not pile up however many processes come and go between two sweeps.
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

/// What is known about who can be reached, within one step.
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

    /// A process that ends at once after its claim leaves its socket: it has no time to remove it.
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
    fn many_who_do_not_read_silence_nobody() {
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
