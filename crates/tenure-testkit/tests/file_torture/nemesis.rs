//! What goes wrong around a file, when, and for how long.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::process::Pid;
use tenure::engine::Moment;
use tenure_testkit::rng::Rng;

use crate::journal::now;
use crate::liveness::{CALM, FAULTS_BETWEEN, Span};
use crate::workers::{Busy, Workers};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Fault {
    /// A worker that holds is killed, and replaced.
    KillHolder,
    KillWaiter,
    /// A worker is killed, whatever it is doing.
    KillAny,
    /// Two workers are killed at the same moment.
    KillTwo,
    /// A stopped worker is killed.
    KillPaused,
    /// A worker that holds is stopped, for less than its ttl or for more.
    PauseHolder,
    PauseWaiter,
    /// A worker is stopped for longer than any ttl, wherever it is.
    PauseLong,
    /// Somebody has the writer lock.
    LockWriters,
    /// The same, for longer than anyone is patient.
    LockWritersLong,
    DeleteLockFile,
    DeleteSockets,
    /// Another program reads the file, so that the journal cannot be emptied.
    Read,
}

/// Each kind once, and those that the rest depends on more often.
const DECK: [Fault; 20] = [
    Fault::KillHolder,
    Fault::KillHolder,
    Fault::KillHolder,
    Fault::KillWaiter,
    Fault::KillWaiter,
    Fault::KillAny,
    Fault::KillAny,
    Fault::KillTwo,
    Fault::KillPaused,
    Fault::PauseHolder,
    Fault::PauseHolder,
    Fault::PauseWaiter,
    Fault::PauseWaiter,
    Fault::PauseLong,
    Fault::LockWriters,
    Fault::LockWriters,
    Fault::LockWritersLong,
    Fault::DeleteLockFile,
    Fault::DeleteSockets,
    Fault::Read,
];

/// How long it takes until all of them are back.
const COMES_TO: Duration = Duration::from_secs(2);

/// What ends a fault.
#[derive(Debug)]
enum Cure {
    /// With the moment at which it was stopped, if it has the writer lock.
    Worker(u32, Option<Moment>),
    /// Drops it; with the moment at which it was shut.
    WriterLock(#[allow(dead_code, reason = "the lock ends with it")] File, Moment),
    Reader(#[allow(dead_code, reason = "the reading ends with it")] rusqlite::Connection),
}

/// Deals faults from a shuffled deck, so that each kind comes.
#[derive(Debug)]
pub(crate) struct Nemesis {
    path: PathBuf,
    rng: Rng,
    deck: Vec<Fault>,
    cures: Vec<(Instant, Cure)>,
    next: Instant,
    struck: BTreeMap<Fault, u64>,
    /// When nothing went wrong.
    calms: Vec<Span>,
    /// When waiters could not be reached, through no fault of theirs.
    unreached: Vec<(Moment, Moment)>,
    /// The faults so far, one line each, by the clock of the journals.
    log: File,
}

impl Nemesis {
    /// Faults against the users of the file; a record of them is written to the folder of the journals.
    pub(crate) fn new(path: &Path, folder: &Path, rng: Rng) -> Nemesis {
        let log = File::create(folder.join("faults")).expect("a log of the faults");
        Nemesis {
            path: path.to_owned(),
            rng,
            deck: Vec::new(),
            cures: Vec::new(),
            // Not before the workers have started.
            next: Instant::now() + Duration::from_millis(700),
            struck: BTreeMap::new(),
            calms: Vec::new(),
            unreached: Vec::new(),
            log,
        }
    }

    /// How many of each kind there were.
    pub(crate) fn struck(&self) -> &BTreeMap<Fault, u64> {
        &self.struck
    }

    /// When nothing went wrong.
    pub(crate) fn calms(&self) -> &[Span] {
        &self.calms
    }

    pub(crate) fn count(&self) -> u64 {
        self.struck.values().sum()
    }

    /// When waiters could not be reached.
    pub(crate) fn unreached(&self) -> Vec<(Moment, Moment)> {
        self.unreached.clone()
    }

    /// Ends the faults that are due to end, and begins new ones when it is time.
    pub(crate) fn act(&mut self, workers: &mut Workers) {
        let due = Instant::now();
        let (ended, lasting) = self.cures.drain(..).partition(|(at, _)| *at <= due);
        self.cures = lasting;
        self.cure(ended, workers);
        if due >= self.next && self.count() / FAULTS_BETWEEN > self.calms.len() as u64 {
            let from = self.rest(workers);
            self.calms.push((from, from + CALM));
            self.next = Instant::now() + CALM;
        } else if due >= self.next {
            if self.deck.is_empty() {
                self.deck = shuffled(&mut self.rng);
            }
            let fault = self.deck.pop().expect("a deck with cards");
            self.note(format_args!("{fault:?}"));
            if self.strike(fault, workers) {
                *self.struck.entry(fault).or_default() += 1;
            } else if !self.deck.is_empty() {
                // Not now: it comes last, and if it is the only one left it waits for the next deck.
                self.deck.insert(0, fault);
            }
            self.next = Instant::now() + self.rng.micros(100_000, 700_000);
        }
    }

    /// Ends all faults; from this moment on nothing goes wrong any more.
    pub(crate) fn rest(&mut self, workers: &mut Workers) -> Moment {
        let all = self.cures.drain(..).collect();
        self.cure(all, workers);
        now()
    }

    fn cure(&mut self, ended: Vec<(Instant, Cure)>, workers: &mut Workers) {
        for (_, cure) in ended {
            self.note(format_args!("end of {cure:?}"));
            match cure {
                Cure::Worker(number, locked_since) => {
                    workers.resume(number);
                    self.was_locked(locked_since);
                }
                Cure::WriterLock(_, since) => self.was_locked(Some(since)),
                Cure::Reader(_) => {}
            }
        }
    }

    /// Nobody could write since then. Whatever could not be renewed or released has run out, and processes were
    /// passed over until they came back.
    fn was_locked(&mut self, since: Option<Moment>) {
        self.unreached.extend(since.map(|since| (since, now() + COMES_TO)));
    }

    fn strike(&mut self, fault: Fault, workers: &mut Workers) -> bool {
        use Fault::*;
        match fault {
            KillHolder => self.kill(Busy::Holding, workers),
            KillWaiter => self.kill(Busy::Waiting, workers),
            KillTwo => self.kill(Busy::Holding, workers) && self.kill(Busy::Waiting, workers),
            KillAny => {
                let victim = workers.any(&mut self.rng);
                self.kill_one(victim, workers)
            }
            KillPaused => match workers.paused() {
                Some(victim) => self.kill_one(victim, workers),
                None => false,
            },
            PauseHolder => self.pause(Busy::Holding, workers, 200_000, 2_500_000),
            PauseWaiter => self.pause(Busy::Waiting, workers, 200_000, 2_500_000),
            PauseLong => self.pause(Busy::Holding, workers, 3_000_000, 5_000_000),
            LockWriters => self.lock_writers(50_000, 1_500_000),
            LockWritersLong => self.lock_writers(5_200_000, 6_000_000),
            DeleteLockFile => fs::remove_file(self.beside("-gate")).is_ok(),
            DeleteSockets => self.delete_sockets(),
            Read => self.read(),
        }
    }

    fn kill(&mut self, busy: Busy, workers: &mut Workers) -> bool {
        let Some(victim) = workers.victim(&mut self.rng, busy) else { return false };
        self.kill_one(victim, workers)
    }

    fn kill_one(&mut self, victim: u32, workers: &mut Workers) -> bool {
        let is_of_victim =
            |cure: &Cure| matches!(cure, Cure::Worker(number, _) if *number == victim);
        let paused = self.cures.iter().position(|(_, cure)| is_of_victim(cure));
        let paused = paused.map(|at| self.cures.remove(at).1);
        workers.kill(victim, &mut self.rng);
        if let Some(Cure::Worker(_, locked_since)) = paused {
            self.was_locked(locked_since);
        }
        self.note(format_args!("killed worker {victim}"));
        true
    }

    fn pause(&mut self, busy: Busy, workers: &mut Workers, low: u64, high: u64) -> bool {
        let Some(victim) = workers.victim(&mut self.rng, busy) else { return false };
        let before = now();
        let pid = workers.pause(victim);
        let has_lock = self.has_writer_lock(pid);
        self.note(format_args!("paused worker {victim}, which has the writer lock: {has_lock}"));
        self.until(Cure::Worker(victim, has_lock.then_some(before)), low, high)
    }

    fn lock_writers(&mut self, low: u64, high: u64) -> bool {
        if self.cures.iter().any(|(_, cure)| matches!(cure, Cure::WriterLock(..))) {
            return false;
        }
        let lock = File::options().read(true).write(true).open(self.beside("-gate"));
        let Ok(lock) = lock else { return false };
        // The process that has it is there only for a moment, unless it is stopped.
        if flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err() {
            return false;
        }
        self.until(Cure::WriterLock(lock, now()), low, high)
    }

    /// Whether a process that was sent a stop signal has the writer lock, according to the kernel's list.
    fn has_writer_lock(&self, pid: Pid) -> bool {
        let pid = pid.as_raw_nonzero().to_string();
        let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        while stat().rsplit(") ").next().is_some_and(|state| !state.starts_with('T')) {
            std::thread::sleep(Duration::from_millis(1));
        }
        let Ok(about) = fs::metadata(self.beside("-gate")) else { return false };
        let inode = format!(":{}", about.ino());
        let list = fs::read_to_string("/proc/locks").expect("a list of locks");
        list.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields[1] == "FLOCK" && fields[4] == pid && fields[5].ends_with(&inode)
        })
    }

    fn delete_sockets(&mut self) -> bool {
        let from = now();
        // They may be back before the folder itself is deleted.
        let _ = fs::remove_dir_all(self.beside("-sockets"));
        self.unreached.push((from, now() + COMES_TO));
        true
    }

    fn read(&mut self) -> bool {
        let Ok(db) = rusqlite::Connection::open(&self.path) else { return false };
        let begun = db.execute_batch("BEGIN; SELECT count(*) FROM claim;");
        begun.is_ok() && self.until(Cure::Reader(db), 500_000, 2_000_000)
    }

    fn beside(&self, suffix: &str) -> PathBuf {
        let mut name = self.path.as_os_str().to_owned();
        name.push(suffix);
        name.into()
    }

    fn until(&mut self, cure: Cure, low: u64, high: u64) -> bool {
        let lasts = self.rng.micros(low, high);
        self.cures.push((Instant::now() + lasts, cure));
        true
    }

    fn note(&mut self, what: std::fmt::Arguments<'_>) {
        writeln!(self.log, "{} {what}", now().as_nanos()).expect("room for a log");
    }
}

fn shuffled(rng: &mut Rng) -> Vec<Fault> {
    let mut deck = DECK.to_vec();
    for last in (1..deck.len()).rev() {
        deck.swap(last, rng.between(0, last as u64) as usize);
    }
    deck
}
