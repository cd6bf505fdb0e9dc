//! The jobs of the worker thread, in the order of the calls.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::sync::{Mutex, MutexGuard, PoisonError, RwLock, Weak};

use rustix::event::{EventfdFlags, eventfd};
use tokio::sync::oneshot;

use super::storage::SqlResult;
use super::transaction::Transaction;
use crate::engine::Turns;
use crate::model::error::{Error, Result};

/// A transaction with this many steps takes no further job: everyone else, in this process and in others, waits
/// for its end.
const BATCH: usize = 64;

/// A job for the worker. It may run more than once before its transaction is committed.
pub(super) trait Job: Send {
    fn act(&mut self, transaction: &mut Transaction<'_>) -> SqlResult<()>;
    fn done(self: Box<Self>, outcome: Result<()>);
    /// The file is gone, and everything in it.
    fn gone(self: Box<Self>, error: Error);
    fn kind(&self) -> JobKind;
    /// How many steps it makes: renewals come in batches.
    fn steps(&self) -> usize;
}

/// What a job needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum JobKind {
    /// Nothing.
    Plain,
    /// Others must be able to reach this client.
    Claim,
    /// Must be done even if the disk is full: it frees space, or keeps a hold.
    InAnyCase,
}

/// The jobs that wait for the worker thread, and the clients that turns are delivered to.
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

    /// Adds a job. After the end, the job fails at once.
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
        // It can only fail after 2^64 wakeups that were not read.
        let _ = rustix::io::write(&self.wakeup, &1u64.to_ne_bytes());
    }

    pub(super) fn take(&self) -> (Vec<Box<dyn Job>>, bool) {
        let mut jobs = self.jobs();
        let (mut steps, mut count) = (0, 0);
        while steps < BATCH
            && let Some(job) = jobs.waiting.get(count)
        {
            (steps, count) = (steps + job.steps(), count + 1);
        }
        (jobs.waiting.drain(..count).collect(), jobs.closed && jobs.waiting.is_empty())
    }

    /// The worker has ended: releases all callers that wait for its end.
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

#[cfg(test)]
mod tests {
    use super::*;

    struct Steps(usize);

    impl Job for Steps {
        fn act(&mut self, _: &mut Transaction<'_>) -> SqlResult<()> {
            Ok(())
        }

        fn done(self: Box<Self>, _: Result<()>) {}

        fn gone(self: Box<Self>, _: Error) {}

        fn kind(&self) -> JobKind {
            JobKind::Plain
        }

        fn steps(&self) -> usize {
            self.0
        }
    }

    /// A process that renews 100,000 holds must not keep the file from others for as long as all of them take.
    #[test]
    fn a_transaction_is_as_long_as_its_steps() {
        let queue = JobQueue::new().unwrap();
        for steps in [1, 256, 256, 1, 1].into_iter().chain([1; BATCH]) {
            queue.put(Box::new(Steps(steps)));
        }
        let taken: Vec<_> = (0..4).map(|_| queue.take().0.len()).collect();
        assert_eq!(taken, [2, 1, BATCH, 2]);
    }
}
