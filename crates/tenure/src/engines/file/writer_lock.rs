//! The writer lock: one writer at a time, in the kernel's queue and without polling.
//!
//! SQLite itself waits by sleeping and trying again, and a process can starve that way for more than a second.
//! Nearly always the lock is free and costs one call. If it is not, a separate thread waits in the kernel's
//! queue: if a process is stopped while it has the lock, the others fail in time instead of hanging.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use crate::model::error::{Error, ErrorKind, Result};

pub(super) struct WriterLock {
    file: Arc<File>,
    shared: Arc<(Mutex<Waiter>, Condvar)>,
    has_waiter: bool,
    /// Since when someone else has had it, as far as we know.
    locked_since: Instant,
}

/// How long to wait for a lock that the last wait did not get.
const AGAIN: Duration = Duration::from_millis(500);

/// The state of the thread that waits in the kernel's queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Waiter {
    /// Nothing to do.
    Rests,
    /// It waits for the lock.
    Waits,
    /// It waits, but nobody wants the lock.
    Abandoned,
    /// It has the lock.
    Locked,
    /// The kernel refused.
    Failed(Errno),
    /// The engine was dropped.
    Ended,
}

impl WriterLock {
    pub(super) fn new(file: File) -> WriterLock {
        let shared = Arc::new((Mutex::new(Waiter::Rests), Condvar::new()));
        WriterLock { file: Arc::new(file), shared, has_waiter: false, locked_since: Instant::now() }
    }

    /// Takes the lock, or reports who has it.
    pub(super) fn lock(&mut self, patience: Duration) -> Result<WriteGuard> {
        let (state, changed) = &*self.shared.clone();
        let mut waiter = lock(state);
        if *waiter == Waiter::Rests {
            match flock(self.file.as_fd(), FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(WriteGuard(self.file.clone())),
                Err(Errno::WOULDBLOCK | Errno::INTR) => {}
                Err(error) => return Err(refused(error)),
            }
            self.start_waiter()?;
            self.locked_since = Instant::now();
            *waiter = Waiter::Waits;
            changed.notify_all();
        }
        let mut until = Instant::now() + patience;
        if *waiter == Waiter::Abandoned {
            // The last wait failed: finding that out again need not take as long.
            *waiter = Waiter::Waits;
            until = Instant::now() + patience.min(AGAIN);
        }
        loop {
            match *waiter {
                Waiter::Waits => {}
                Waiter::Failed(error) => {
                    *waiter = Waiter::Rests;
                    return Err(refused(error));
                }
                _ => {
                    *waiter = Waiter::Rests;
                    return Ok(WriteGuard(self.file.clone()));
                }
            }
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                *waiter = Waiter::Abandoned;
                return Err(self.blocked());
            }
            let waited = changed.wait_timeout(waiter, left);
            waiter = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    fn start_waiter(&mut self) -> Result<()> {
        if self.has_waiter {
            return Ok(());
        }
        let (file, shared) = (self.file.clone(), self.shared.clone());
        let thread = thread::Builder::new().name("tenure-lock".into());
        let started = thread.spawn(move || wait_for_lock(&file, &shared));
        started.map_err(|error| {
            let reason = format!("cannot start a thread: {error}");
            Error::new(ErrorKind::Internal, reason).next("check the limits of this process")
        })?;
        self.has_waiter = true;
        Ok(())
    }

    fn blocked(&self) -> Error {
        let who = match self.file.metadata().ok().and_then(|about| holder_of(about.ino())) {
            Some(pid) => format!("process {pid} has"),
            None => "someone has".to_owned(),
        };
        let span = self.locked_since.elapsed().as_secs();
        let reason = format!("{who} had the writer lock for {span} s");
        Error::new(ErrorKind::Unavailable, reason)
            .next("if that process is stopped, resume or kill it; otherwise check the disk")
    }
}

impl Drop for WriterLock {
    fn drop(&mut self) {
        let (state, changed) = &*self.shared;
        *lock(state) = Waiter::Ended;
        changed.notify_all();
    }
}

/// The lock, until this is dropped.
pub(super) struct WriteGuard(Arc<File>);

impl WriteGuard {
    /// The locked file.
    pub(super) fn file(&self) -> &File {
        &self.0
    }
}

impl Drop for WriteGuard {
    fn drop(&mut self) {
        // It can only fail for a bad descriptor, and ours is good.
        let _ = flock(self.0.as_fd(), FlockOperation::Unlock);
    }
}

fn wait_for_lock(file: &File, (state, changed): &(Mutex<Waiter>, Condvar)) {
    let mut waiter = lock(state);
    loop {
        match *waiter {
            Waiter::Ended => return,
            Waiter::Waits | Waiter::Abandoned => {
                drop(waiter);
                let locked = loop {
                    match flock(file.as_fd(), FlockOperation::LockExclusive) {
                        Err(Errno::INTR) => {}
                        other => break other,
                    }
                };
                waiter = lock(state);
                *waiter = match (*waiter, locked) {
                    (Waiter::Waits, Ok(())) => Waiter::Locked,
                    (Waiter::Waits, Err(error)) => Waiter::Failed(error),
                    (unwanted, locked) => {
                        if locked.is_ok() {
                            let _ = flock(file.as_fd(), FlockOperation::Unlock);
                        }
                        if unwanted == Waiter::Ended { unwanted } else { Waiter::Rests }
                    }
                };
                changed.notify_all();
            }
            _ => waiter = changed.wait(waiter).unwrap_or_else(PoisonError::into_inner),
        }
    }
}

fn lock(state: &Mutex<Waiter>) -> MutexGuard<'_, Waiter> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refused(error: Errno) -> Error {
    let reason = format!("the lock file cannot be locked: {error}");
    Error::new(ErrorKind::Unavailable, reason).next("does this file system support locks?")
}

/// The process that holds the lock on the file with this inode, from the kernel's list.
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
    fn a_process_that_keeps_the_lock_too_long_is_named_and_the_next_lock_is_ours() {
        let path = std::env::temp_dir().join(format!("tenure-lock-{}", std::process::id()));
        let open = || fs::OpenOptions::new().create(true).append(true).open(&path).unwrap();
        let (mut ours, mut theirs) = (WriterLock::new(open()), WriterLock::new(open()));
        drop(ours.lock(Duration::ZERO).unwrap());
        let inside = theirs.lock(Duration::ZERO).unwrap();
        let error = ours.lock(Duration::from_millis(20)).err().unwrap();
        assert_eq!(error.kind(), ErrorKind::Unavailable);
        assert!(error.to_string().contains(&std::process::id().to_string()), "{error}");
        drop(inside);
        // A wait that was given up does not keep the lock from others.
        drop(theirs.lock(Duration::from_secs(10)).unwrap());
        drop(ours.lock(Duration::from_secs(10)).unwrap());
        drop(theirs.lock(Duration::from_secs(10)).unwrap());
        fs::remove_file(path).unwrap();
    }
}
