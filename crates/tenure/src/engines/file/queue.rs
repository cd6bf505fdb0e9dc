//! The jobs of the worker thread, in the order of calls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, Weak};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::storage::SqlResult;
use super::transaction::Transaction;
use crate::engine::Turns;
use crate::model::error::{Error, Result};

/// The most steps in one transaction.
const BATCH: usize = 64;

/// A job for the worker. It may run more than once before its transaction is committed.
pub(super) trait Job: Send {
    fn act(&mut self, transaction: &mut Transaction<'_>) -> SqlResult<()>;
    fn done(self: Box<Self>, outcome: Result<()>);
    /// The file is gone, and everything in it.
    fn gone(self: Box<Self>, error: Error);
    fn kind(&self) -> JobKind;
}

/// What a job needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobKind {
    /// Nothing.
    Plain,
    /// That others can reach this client.
    Claim,
    /// To be done even if the disk is full: it makes room, or keeps what is held.
    InAnyCase,
}

/// The jobs that wait for the worker thread, and the clients that hear of turns.
pub(super) struct JobQueue {
    jobs: Mutex<Jobs>,
    pub(super) wakeup: OwnedFd,
    pub(super) clients: RwLock<Vec<Weak<dyn Turns>>>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Box<dyn Job>>,
    closed: bool,
    ended: bool,
    /// Dropped when the worker has ended.
    told_at_end: Vec<oneshot::Sender<()>>,
}

impl JobQueue {
    pub(super) fn new() -> std::io::Result<JobQueue> {
        let wakeup = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(JobQueue { jobs: Mutex::default(), wakeup, clients: RwLock::default() })
    }

    /// Adds a job. One that comes after the end is told so.
    pub(super) fn put(&self, job: Box<dyn Job>) {
        {
            let mut jobs = self.jobs();
            if !jobs.closed {
                jobs.waiting.push_back(job);
                if jobs.waiting.len() == 1 {
                    self.ring();
                }
                return;
            }
        }
        job.done(Err(Error::closed()));
    }

    /// Lets the worker finish the queued jobs and end; then `told` is dropped.
    pub(super) fn close(&self, told: Option<oneshot::Sender<()>>) {
        let mut jobs = self.jobs();
        jobs.closed = true;
        if !jobs.ended {
            jobs.told_at_end.extend(told);
        }
        self.ring();
    }

    fn jobs(&self) -> MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // It can only fail when it has rung 2^64 times unheard.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> (Vec<Box<dyn Job>>, bool) {
        let mut jobs = self.jobs();
        let count = jobs.waiting.len().min(BATCH);
        (jobs.waiting.drain(..count).collect(), jobs.closed && jobs.waiting.is_empty())
    }

    /// The worker has ended: nobody waits for it any longer.
    pub(super) fn end(&self) {
        let unheard = {
            let mut jobs = self.jobs();
            (jobs.closed, jobs.ended) = (true, true);
            jobs.told_at_end.clear();
            std::mem::take(&mut jobs.waiting)
        };
        unheard.into_iter().for_each(|job| job.done(Err(Error::closed())));
    }
}
