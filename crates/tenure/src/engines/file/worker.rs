//! The worker thread of a file: it takes jobs from the queue, several in one transaction if several are queued,
//! and delivers messages from other clients.
//!
//! It is a separate thread because steps wait for other processes and for the disk, and a caller's runtime must
//! do neither. It sleeps until there is a job or a message, or a process has ended.

use std::collections::HashMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, PoisonError, Weak};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::host::has_ended;
use super::messages::Message;
use super::queue::{Job, JobKind, JobQueue};
use super::storage::SqlResult;
use super::store::{Done, Store};
use super::transaction::{SWEEP_EVERY, Transaction};
use crate::engines::convert::turn;
use crate::ledger::{Process, Word};
use crate::model::claim::{ClaimId, Ended, Leave, Turn};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::{SystemWorld, World};

/// How soon a deleted or replaced file or socket is noticed. Being notified by the kernel would cost 10 ms at the
/// end of every process, and a user may have only a few such watches.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon a failed job for an ended client is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// Up to this many clients are watched without checking whether they still matter.
const MOST_LIVES: usize = 32;

pub(super) struct Worker {
    store: Store,
    queue: Arc<JobQueue>,
    /// The clients that are watched, by a pidfd each.
    lives: HashMap<Process, OwnedFd>,
    /// If more than this many are watched, those that no longer matter are dropped.
    most_lives: usize,
    /// Clients that have ended, but whose claims could not be ended yet.
    ended_clients: Vec<Process>,
    look_at: Instant,
    sweep_at: Instant,
}

impl Worker {
    pub(super) fn new(store: Store, queue: Arc<JobQueue>) -> Worker {
        let (look_at, sweep_at) = (Instant::now() + LOOK_EVERY, Instant::now() + SWEEP_EVERY);
        let (lives, ended_clients, most_lives) = (HashMap::new(), Vec::new(), MOST_LIVES);
        Worker { store, queue, lives, most_lives, ended_clients, look_at, sweep_at }
    }

    /// Works until it is told to end.
    pub(super) fn work(mut self) {
        loop {
            let (jobs, closed) = self.queue.take();
            let idle = jobs.is_empty();
            self.carry_out(jobs);
            if closed && idle {
                self.store.close();
                return;
            }
            if idle {
                self.listen();
            }
        }
    }

    /// Sleeps until there is something to do, and does what is not in the queue.
    fn listen(&mut self) {
        let gone: Vec<_> = {
            let mut watched = vec![PollFd::new(&self.queue.wakeup, PollFlags::IN)];
            let heard = self.store.sockets.own().map(|own| own.as_fd());
            watched.extend(heard.map(|own| PollFd::from_borrowed_fd(own, PollFlags::IN)));
            let first = watched.len();
            let clients: Vec<_> = self.lives.iter().collect();
            watched.extend(clients.iter().map(|(_, life)| PollFd::new(*life, PollFlags::IN)));
            // An interruption is just another wakeup.
            let _ = poll(&mut watched, Some(&timespec(self.patience())));
            let rung = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let ended = watched[first..].iter().zip(&clients).filter(|(fd, _)| rung(fd));
            ended.map(|(_, (client, _))| **client).collect()
        };
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.queue.wakeup, &mut rung);
        if Instant::now() >= self.look_at || !self.store.is_found() {
            self.look_at = Instant::now() + LOOK_EVERY;
            self.look_for_file();
        }
        let heard = self.store.sockets.heard();
        self.pass_on(heard);
        self.store.sockets.send_again();
        for client in &gone {
            self.lives.remove(client);
        }
        self.ended_clients.extend(gone);
        for client in std::mem::take(&mut self.ended_clients) {
            if !self.carry_out(vec![Box::new(OwnJob(OwnTask::LookAfter(client)))]) {
                self.ended_clients.push(client);
            }
        }
        if Instant::now() >= self.sweep_at {
            self.sweep_at = Instant::now() + SWEEP_EVERY;
            self.store.keep_reserve();
            self.carry_out(vec![Box::new(OwnJob(OwnTask::Sweep))]);
        }
    }

    fn patience(&self) -> Duration {
        if self.store.sockets.has_unsent() {
            return Duration::from_millis(1);
        }
        if !self.ended_clients.is_empty() || !self.store.is_found() {
            return TRY_AGAIN;
        }
        // A client without claims has nothing to lose.
        let next = if self.store.is_present() { self.look_at } else { self.sweep_at };
        next.min(self.sweep_at).saturating_duration_since(Instant::now())
    }

    /// Runs several jobs in one transaction; if that fails, each on its own. Returns whether all were done.
    fn carry_out(&mut self, mut jobs: Vec<Box<dyn Job>>) -> bool {
        if jobs.is_empty() {
            return true;
        }
        let mut outcome = self.transact(&mut jobs);
        // One of them may be at fault. If the file itself is unavailable, retrying each is useless.
        if outcome.is_err() && self.store.is_available && jobs.len() > 1 {
            let done: Vec<_> = jobs.into_iter().map(|job| self.carry_out(vec![job])).collect();
            return done.into_iter().all(|done| done);
        }
        if let Err(error) = &outcome
            && Store::lacks_room(error)
            && jobs.iter().all(|job| job.kind() == JobKind::InAnyCase)
        {
            self.store.use_reserve();
            outcome = self.transact(&mut jobs);
        }
        let is_done = outcome.is_ok();
        match outcome {
            Ok(Done { at, effects, heard }) => {
                self.pass_on(heard);
                jobs.into_iter().for_each(|job| job.done(Ok(())));
                self.watch_over(effects.watch);
                effects.removed.iter().for_each(|client| drop(self.lives.remove(client)));
                let own = self.store.own;
                let to_us = effects.said.into_iter().filter(|(client, _)| *client == own);
                self.pass_on(to_us.map(|(_, said)| (at, said)).collect());
            }
            Err(error) if self.store.is_gone() => {
                self.tell_that_all_is_forgotten();
                jobs.into_iter().for_each(|job| job.gone(error.clone()));
            }
            Err(error) => jobs.into_iter().for_each(|job| job.done(Err(error.clone()))),
        }
        is_done
    }

    /// Watches more clients. Now and then drops those that are in nobody's way any more, because each costs a
    /// descriptor.
    fn watch_over(&mut self, more: Vec<(Process, OwnedFd)>) {
        self.lives.extend(more);
        if self.lives.len() <= self.most_lives {
            return;
        }
        let in_the_way = self.store.transact(&|_| true, |transaction| transaction.in_the_way());
        if let Ok((in_the_way, _)) = in_the_way {
            self.lives.retain(|client, _| in_the_way.contains(client));
        }
        self.most_lives = (self.lives.len() * 2).max(MOST_LIVES);
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<Done> {
        if jobs.iter().any(|job| job.kind() == JobKind::Claim) {
            self.store.check_room()?;
            self.store.be_present()?;
        }
        let Worker { store, lives, .. } = self;
        // A client that ended since the last poll is only noticed after these jobs.
        let watched = |client| lives.get(&client).is_some_and(|life| !has_ended(life));
        let done = store.transact(&watched, |transaction| {
            jobs.iter_mut().try_for_each(|job| job.act(transaction))
        });
        done.map(|((), done)| done)
    }

    /// Delivers messages to this client's claims. A turn that nobody takes is passed on.
    fn pass_on(&mut self, heard: Vec<(Moment, Message)>) {
        for (at, Message { name, id, word, holder }) in heard {
            let granted = match word {
                // It ran out on the way, and its sender knows that.
                Word::Granted { life, .. } if at + life <= SystemWorld.now() => continue,
                Word::Granted { fence, .. } => Some(fence),
                // Nearly always the client that was given its turn was right before us.
                Word::LookAt(_) if !self.lives.contains_key(&holder) => {
                    self.queue.put(Box::new(OwnJob(OwnTask::LookAround(name.clone()))));
                    None
                }
                _ => None,
            };
            let taken = self.deliver(&name, &id, turn(word, at));
            if let Some(fence) = granted.filter(|_| !taken) {
                let leave = Leave { only: Some(fence), unbegun: true, ..Leave::new(name, id) };
                self.queue.put(Box::new(OwnJob(OwnTask::GiveBack(leave))));
            }
        }
    }

    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        // Cloned, because the receiver may call this engine, or attach to it.
        let clients = self.queue.clients.read().unwrap_or_else(PoisonError::into_inner).clone();
        clients.iter().filter_map(Weak::upgrade).any(|to| to.deliver(name, id, turn.clone()))
    }

    fn look_for_file(&mut self) {
        if self.store.is_gone() {
            return self.tell_that_all_is_forgotten();
        }
        if !self.store.is_found() && self.store.listen_again() {
            // Others may have passed over this client's places in the meantime.
            for (name, id) in self.store.own_claims() {
                self.deliver(&name, &id, Turn::LookAgain);
            }
        }
    }

    /// The file is gone: tells this client's claims at once, rather than when they next ask.
    fn tell_that_all_is_forgotten(&mut self) {
        for (name, id) in self.store.own_claims() {
            self.deliver(&name, &id, Turn::Ended(Ended::Forgotten));
        }
    }
}

/// However the worker ends, nobody must wait for it any longer.
impl Drop for Worker {
    fn drop(&mut self) {
        self.queue.end();
    }
}

/// What the worker does without being asked.
struct OwnJob(OwnTask);

enum OwnTask {
    LookAfter(Process),
    LookAround(Name),
    GiveBack(Leave),
    Sweep,
}

impl Job for OwnJob {
    fn act(&mut self, transaction: &mut Transaction<'_>) -> SqlResult<()> {
        match &self.0 {
            OwnTask::LookAfter(client) => transaction.look_after(*client),
            OwnTask::LookAround(name) => transaction.look_around(name),
            OwnTask::GiveBack(leave) => transaction.leave(leave).map(drop),
            OwnTask::Sweep => transaction.sweep_now_and_then(),
        }
    }

    // If it failed, the ttl or the next sweep takes care of it.
    fn done(self: Box<Self>, _: Result<()>) {}

    fn gone(self: Box<Self>, _: Error) {}

    fn kind(&self) -> JobKind {
        JobKind::InAnyCase
    }

    fn steps(&self) -> usize {
        1
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() }
}
