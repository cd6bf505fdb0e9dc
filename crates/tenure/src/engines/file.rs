//! `file:PATH`: locks in a file, for the processes of one machine.
//!
//! One SQLite file; every step is the ledger's, in one transaction. A worker thread does everything
//! that touches the file, so no caller waits for the disk or for another process.
//!
//! Time is `CLOCK_BOOTTIME`, which all processes of a machine share, together with the boot that it
//! belongs to; the wall clock plays no part. The claims of a process that was killed end at once if its pid
//! can be seen, and with their ttl otherwise.

mod examine;
mod exposed;
mod groups;
mod host;
mod messages;
mod paths;
mod queue;
mod reserve;
mod rows;
mod sockets;
mod statements;
mod storage;
mod store;
mod transaction;
mod worker;
mod writer_lock;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, Weak, mpsc};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, Fence, Forgotten, Keep, Kept, Leave, Left, Note, OnceRecord,
    Renewal, Renewed, Verdict,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;
use crate::observe;
use crate::system;
use queue::{Job, JobKind, JobQueue};
use storage::SqlResult;
use store::Store;
use transaction::Transaction;
use worker::Worker;

/// Locks in a file. [`Tenure::connect`](crate::Tenure::connect) lists the URLs.
pub struct File {
    queue: Arc<JobQueue>,
    path: PathBuf,
    profile: Profile,
    generation: u64,
}

impl File {
    /// Opens the file. Creates it, and the folders on the way to it, if they do not exist.
    ///
    /// Blocks for some milliseconds, and for up to 5 s while another process writes to it.
    ///
    /// # Errors
    /// `Denied` for a folder that everyone may write to or a file that others can read, `Unsupported` for a file
    /// system that is shared between machines, `Conflict` for a file of another program.
    pub fn open(path: impl AsRef<Path>) -> Result<File> {
        let (tell, told) = mpsc::channel();
        let opened = File::start(path.as_ref().to_owned(), None, move |opened| {
            // The caller waits right here.
            let _ = tell.send(opened);
        })?;
        told.recv().unwrap_or_else(|_| Err(ended()))?;
        Ok(opened)
    }

    /// The same, without blocking the caller's runtime. With a guard, this client's claims end only when the
    /// guard's process has ended, too.
    pub(crate) async fn open_in_background(path: PathBuf, guard: Option<u32>) -> Result<File> {
        let (tell, told) = oneshot::channel();
        let opened = File::start(path, guard, move |opened| {
            let _ = tell.send(opened);
        })?;
        told.await.unwrap_or_else(|_| Err(ended()))?;
        Ok(opened)
    }

    /// Starts the worker, which reports whether the file could be opened.
    fn start(
        path: PathBuf,
        guard: Option<u32>,
        opened: impl FnOnce(Result<()>) + Send + 'static,
    ) -> Result<File> {
        let fault = |error: std::io::Error| {
            let reason = format!("cannot start a thread: {error}");
            Error::new(ErrorKind::Internal, reason).next("check the limits of this process")
        };
        let path = std::path::absolute(&path).map_err(|_| paths::no_file(&path))?;
        let label = format!("file:{}", path.display());
        let queue = Arc::new(JobQueue::new().map_err(fault)?);
        let (its_queue, its_path) = (queue.clone(), path.clone());
        let thread = std::thread::Builder::new().name("tenure-file".into());
        let started = thread.spawn(move || match Store::open(&its_path, guard) {
            Ok(store) => {
                let worker = Worker::new(store, its_queue);
                opened(Ok(()));
                // Renewals are made on this thread, too.
                observe::keep_apart();
                worker.work();
            }
            Err(error) => opened(Err(error)),
        });
        started.map_err(fault)?;
        let generation = system::generation();
        let mut profile = Profile::new(label);
        // Longer than the wait for the writer lock, so that a caller that gives up can say who has it.
        profile.patience = store::PATIENCE + Duration::from_secs(1);
        profile.hands_over = true;
        Ok(File { queue, path, profile, generation })
    }

    /// Queues a job for the worker thread, in the order of the calls.
    fn ask<T: Send + 'static>(
        &self,
        kind: JobKind,
        act: impl FnMut(&mut Transaction<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Step<T> {
        self.ask_or(None, kind, 1, act)
    }

    /// The same, with an answer for the case that the file is gone, and everything in it.
    fn ask_or<T: Send + 'static>(
        &self,
        if_gone: Option<T>,
        kind: JobKind,
        steps: usize,
        act: impl FnMut(&mut Transaction<'_>) -> SqlResult<T> + Send + 'static,
    ) -> Step<T> {
        let (tell, told) = oneshot::channel();
        let tell = move |answer| {
            // The caller may have stopped waiting.
            let _ = tell.send(answer);
        };
        self.queue.put(Box::new(Task { kind, steps, act, answer: None, if_gone, tell }));
        Step::pending(async move { told.await.unwrap_or_else(|_| Err(ended())) })
    }
}

/// The answer to a leave when the file is gone.
const FORGOTTEN: Left = Left::Gone(Ended::Forgotten);

/// A job with an answer.
struct Task<A, T, F> {
    kind: JobKind,
    steps: usize,
    act: A,
    answer: Option<T>,
    if_gone: Option<T>,
    tell: F,
}

impl<A, T, F> Job for Task<A, T, F>
where
    A: FnMut(&mut Transaction<'_>) -> SqlResult<T> + Send,
    T: Send,
    F: FnOnce(Result<T>) + Send,
{
    fn act(&mut self, transaction: &mut Transaction<'_>) -> SqlResult<()> {
        self.answer = Some((self.act)(transaction)?);
        Ok(())
    }

    fn done(self: Box<Self>, outcome: Result<()>) {
        let Task { answer, tell, .. } = *self;
        tell(outcome.and_then(|()| answer.ok_or_else(ended)));
    }

    fn gone(self: Box<Self>, error: Error) {
        let Task { if_gone, tell, .. } = *self;
        tell(if_gone.ok_or(error));
    }

    fn kind(&self) -> JobKind {
        self.kind
    }

    fn steps(&self) -> usize {
        self.steps
    }
}

impl Engine for File {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let mut clients = self.queue.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let claim = claim.clone();
        flatten(self.ask(JobKind::Claim, move |transaction| transaction.claim(&claim, true)))
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        let batch = batch.to_vec();
        let if_gone = batch.iter().map(|_| Renewed::Gone(Ended::Forgotten)).collect();
        let steps = batch.len();
        let renew = move |transaction: &mut Transaction<'_>| {
            batch.iter().map(|one| transaction.renew(one)).collect()
        };
        self.ask_or(Some(if_gone), JobKind::InAnyCase, steps, renew)
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        let keep = keep.clone();
        let if_gone = Some(Kept::Gone(Ended::Forgotten));
        let act = move |transaction: &mut Transaction<'_>| transaction.keep(&keep);
        self.ask_or(if_gone, JobKind::InAnyCase, 1, act)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        let leave = leave.clone();
        self.ask_or(Some(FORGOTTEN), JobKind::InAnyCase, 1, move |transaction| {
            transaction.leave(&leave)
        })
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let tell = move |answer: Result<Left>| match answer {
            Ok(left) => done.done(Ok(left)),
            // Dropped without an answer: the watchdog tries again.
            Err(_) => drop(done),
        };
        let act = move |transaction: &mut Transaction<'_>| transaction.leave(&leave);
        let (kind, answer, if_gone) = (JobKind::InAnyCase, None, Some(FORGOTTEN));
        self.queue.put(Box::new(Task { kind, steps: 1, act, answer, if_gone, tell }));
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        let name = name.clone();
        flatten(self.ask(JobKind::Plain, move |transaction| transaction.resize(&name, capacity)))
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        let (name, note) = (name.clone(), note.clone());
        self.ask(JobKind::Plain, move |transaction| transaction.break_hold(&name, fence, &note))
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        let (name, seen) = (name.clone(), seen.clone());
        self.ask(JobKind::Plain, move |transaction| transaction.forget(&name, &seen))
    }

    fn detach(&self, _name: &Name, id: &ClaimId) -> Step<()> {
        let id = *id;
        self.ask(JobKind::InAnyCase, move |transaction| transaction.detach(&id))
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let scope = scope.clone();
        self.ask(JobKind::Plain, move |transaction| transaction.inspect(&scope))
    }

    fn health(&self) -> Step<()> {
        self.ask(JobKind::Plain, |_| Ok(()))
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        let path = self.path.clone();
        self.ask(JobKind::Plain, move |transaction| transaction.examine(&path))
    }

    fn close(&self) -> Step<()> {
        let (tell, told) = oneshot::channel();
        self.queue.close(Some(tell));
        // The worker drops its end when everything is done.
        Step::pending(async move {
            let _: Option<()> = told.await.ok();
            Ok(())
        })
    }
}

impl Drop for File {
    fn drop(&mut self) {
        // After a fork the worker is the parent's, and so is everything that closing would end.
        if self.generation == system::generation() {
            self.queue.close(None);
        }
    }
}

fn flatten<T: Send + 'static>(step: Step<Result<T>>) -> Step<T> {
    Step::pending(async move { step.await? })
}

fn ended() -> Error {
    Error::new(ErrorKind::Internal, "the worker thread of the file has ended")
        .next("connect again; please report this")
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("label", &self.profile.label).finish_non_exhaustive()
    }
}
