//! The gate: one writer at a time, in the kernel's queue and without polling.
//!
//! SQLite's own way to wait is to sleep and try again, and a process can starve in it for more than a
//! second. Nearly always the gate is free and costs one call. If it is not, a thread of its own waits
//! in the kernel's queue, so that a process that was stopped behind the gate makes the others fail
//! in time, and not hang.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::model::error::{Error, ErrorKind, Result};

pub(super) struct Gate {
    file: Arc<File>,
    shared: Arc<(Mutex<Doorman>, Condvar)>,
    has_doorman: bool,
    /// When someone else was first found in it, of this time.
    shut_since: Instant,
}

/// How long to wait for a gate that nobody came through just before.
const AGAIN: Duration = Duration::from_millis(500);

/// The thread that waits in the kernel's queue, as others see it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Doorman {
    /// Nothing to do.
    Rests,
    /// It waits for the gate.
    Waits,
    /// It waits, but nobody wants the gate any more.
    Abandoned,
    /// The gate is ours.
    Through,
    /// The kernel refused.
    Failed(Errno),
    /// The engine is gone.
    Dismissed,
}

impl Gate {
    pub(super) fn new(file: File) -> Gate {
        let shared = Arc::new((Mutex::new(Doorman::Rests), Condvar::new()));
        Gate { file: Arc::new(file), shared, has_doorman: false, shut_since: Instant::now() }
    }

    /// Passes the gate, or says who stands in it.
    pub(super) fn pass(&mut self, patience: Duration) -> Result<Passed> {
        let (state, changed) = &*self.shared.clone();
        let mut doorman = lock(state);
        if *doorman == Doorman::Rests {
            match flock(self.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Passed(self.file.clone())),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(refused(error)),
            }
            self.hire()?;
            self.shut_since = Instant::now();
            *doorman = Doorman::Waits;
            changed.notify_all();
        }
        let mut until = Instant::now() + patience;
        if *doorman == Doorman::Abandoned {
            // The one before has waited for nothing: to find out again need not take as long.
            *doorman = Doorman::Waits;
            until = Instant::now() + patience.min(AGAIN);
        }
        loop {
            match *doorman {
                Doorman::Waits => {}
                Doorman::Failed(error) => {
                    *doorman = Doorman::Rests;
                    return Err(refused(error));
                }
                _ => {
                    *doorman = Doorman::Rests;
                    return Ok(Passed(self.file.clone()));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *doorman = Doorman::Abandoned;
                return Err(self.blocked());
            }
            let waited = changed.wait_timeout(doorman, left);
            doorman = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn hire(&mut self) -> Result<()> {
        if self.has_doorman {
            return Ok(());
        }
        let (file, shared) = (self.file.clone(), self.shared.clone());
        let thread = thread::Builder::new().name("tenure-gate".into());
        let hired = thread.spawn(move || stand_in_line(&file, &shared));
        hired.map_err(|error| {
            let reason = format!("a thread cannot be started: {error}");
            Error::new(ErrorKind::Internal, reason).next("see the limits of this process")
        })?;
        self.has_doorman = true;
        Ok(())
    }

    fn blocked(&self) -> Error {
        let who = match self.file.metadata().ok().and_then(|about| holder_of(about.ino())) {
            Some(pid) => format!("process {pid} has"),
            None => "someone has".to_owned(),
        };
        let span = self.shut_since.elapsed().as_secs();
        let reason = format!("{who} kept the file to itself for {span} s");
        Error::new(ErrorKind::Unavailable, reason)
            .next("was it stopped, or is the disk stuck? let it go on, or end it")
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        let (state, changed) = &*self.shared;
        *lock(state) = Doorman::Dismissed;
        changed.notify_all();
    }
}

/// The gate is ours until this is dropped.
pub(super) struct Passed(Arc<File>);

impl Passed {
    /// What is locked.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for Passed {
    fn drop(&mut self) {
        // It can only fail for a bad descriptor, and ours is good.
        let _ = flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

fn stand_in_line(file: &File, (state, changed): &(Mutex<Doorman>, Condvar)) {
    let mut doorman = lock(state);
    loop {
        match *doorman {
            Doorman::Dismissed => return,
            Doorman::Waits | Doorman::Abandoned => {
                drop(doorman);
                let passed = loop {
                    match flock(file.as_fd(), FlockOperation::LockExclusive) {
                        Err(Errno::INTR) => {}
                        other => break other,
                    }
                };
                doorman = lock(state);
                *doorman = match (*doorman, passed) {
                    (Doorman::Waits, Ok(())) => Doorman::Through,
                    (Doorman::Waits, Err(error)) => Doorman::Failed(error),
                    (unwanted, passed) => {
                        if passed.is_ok() {
                            let _ = flock(file.as_fd(), FlockOperation::Unlock);
                        }
                        if unwanted == Doorman::Dismissed { unwanted } else { Doorman::Rests }
                    }
                };
                changed.notify_all();
            }
            _ => doorman = changed.wait(doorman).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn lock(state: &Mutex<Doorman>) -> MutexGuard<'_, Doorman> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: Errno) -> Error {
    let reason = format!("the gate cannot be locked: {error}");
    Error::new(ErrorKind::Unavailable, reason).next("is this file system able to lock files?")
}

/// Who holds the lock on the file with this inode, by the kernel's list.
fn holder_of(inode: u64) -> Option<u32> {
    let list = fs::read_to_string("/proc/locks").ok()?;
    list.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        if fields.next() != Some("FLOCK") {
            return None;
        }
        let (pid, file) = (fields.nth(2)?, fields.next()?);
        (file.rsplit(':').next()? == inode.to_string()).then(|| pid.parse().ok())?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_stands_in_the_gate_too_long_is_named_and_the_next_pass_is_ours() {
        let path = std::env::temp_dir().join(format!("tenure-gate-{}", std::process::id()));
        let open = || fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let (mut ours, mut theirs) = (Gate::new(open()), Gate::new(open()));
        drop(ours.pass(Duration::ZERO).unwrap());
        let inside = theirs.pass(Duration::ZERO).unwrap();
        let error = ours.pass(Duration::from_millis(20)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(inside);
        // Whoever gave up does not keep the gate shut for the others.
        drop(theirs.pass(Duration::from_secs(10)).unwrap());
        drop(ours.pass(Duration::from_secs(10)).unwrap());
        drop(theirs.pass(Duration::from_secs(10)).unwrap());
        fs::remove_file(path).unwrap();
    }
}
