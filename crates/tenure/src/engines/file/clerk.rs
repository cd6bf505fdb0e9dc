//! The thread that keeps the file: it takes what is asked, several steps in one transaction where
//! several have come, and passes on what others say.
//!
//! A thread of its own, because steps wait for others and for the disk, and a caller's runtime must
//! do neither. It sleeps until something is asked, said, or has ended.

use std::collections::{HashMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};

use tokio::sync::oneshot;

use super::desk::{Desk, SWEEP_EVERY};
use super::host::has_ended;
use super::shelf::Kept;
use super::store::{Done, Store};
use super::wire::Said;
use crate::engine::Turns;
use crate::engines::words::turn;
use crate::ledger::{Process, Word};
use crate::model::claim::{Ended, Leave, Turn};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::world::{SystemWorld, World};

/// How soon it is noticed that the file was deleted or replaced, or the socket. To be told by the kernel
/// costs 10 ms at the end of every process, and a user may not ask for it often.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How soon what could not be done for others is tried again.
const TRY_AGAIN: Duration = Duration::from_millis(500);
/// So many clients are watched over without asking whether that is still of use.
const MOST_LIVES: usize = 32;
/// The most steps in one transaction.
const BATCH: usize = 64;

/// Something asked of the clerk. It may be done more than once before it counts.
pub(super) trait Job: Send {
    fn act(&mut self, desk: &mut Desk<'_>) -> Kept<()>;
    fn done(self: Box<Self>, outcome: Result<()>);
    /// The file is gone, and everything in it.
    fn gone(self: Box<Self>, error: Error);
    fn kind(&self) -> Kind;
}

/// What a job needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// Nothing.
    Plain,
    /// That others can reach this client.
    Claim,
    /// To be done even if the disk is full: it makes room, or keeps what is held.
    InAnyCase,
}

/// Where jobs are put.
pub(super) struct Desktop {
    jobs: Mutex<Jobs>,
    bell: OwnedFd,
    pub(super) clients: RwLock<Vec<Weak<dyn Turns>>>,
}

#[derive(Default)]
struct Jobs {
    waiting: VecDeque<Box<dyn Job>>,
    closed: bool,
    ended: bool,
    /// Whoever waits for the end.
    mourners: Vec<oneshot::Sender<()>>,
}

impl Desktop {
    pub(super) fn new() -> std::io::Result<Desktop> {
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Desktop { jobs: Mutex::default(), bell, clients: RwLock::default() })
    }

    /// Puts a job on the pile. One that comes after the end is told so.
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

    /// Lets the clerk finish what is there, and end; then `told` is dropped.
    pub(super) fn close(&self, told: Option<oneshot::Sender<()>>) {
        let mut jobs = self.jobs();
        jobs.closed = true;
        if !jobs.ended {
            jobs.mourners.extend(told);
        }
        self.ring();
    }

    fn jobs(&self) -> std::sync::MutexGuard<'_, Jobs> {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ring(&self) {
        // It can only fail when it has rung 2^64 times unheard.
        let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
    }

    fn take(&self) -> (Vec<Box<dyn Job>>, bool) {
        let mut jobs = self.jobs();
        let count = jobs.waiting.len().min(BATCH);
        (jobs.waiting.drain(..count).collect(), jobs.closed && jobs.waiting.is_empty())
    }
}

pub(super) struct Clerk {
    store: Store,
    desktop: Arc<Desktop>,
    /// Clients whose end we hear of.
    lives: HashMap<Process, OwnedFd>,
    /// With more than these it is time to see who of them still matters.
    most_lives: usize,
    /// Clients that have ended, and whose claims could not be ended yet.
    bereft: Vec<Process>,
    look_at: Instant,
    sweep_at: Instant,
}

impl Clerk {
    pub(super) fn new(store: Store, desktop: Arc<Desktop>) -> Clerk {
        let (look_at, sweep_at) = (Instant::now() + LOOK_EVERY, Instant::now() + SWEEP_EVERY);
        let (lives, bereft, most_lives) = (HashMap::new(), Vec::new(), MOST_LIVES);
        Clerk { store, desktop, lives, most_lives, bereft, look_at, sweep_at }
    }

    /// Works until it is told to end.
    pub(super) fn work(mut self) {
        loop {
            let (jobs, closed) = self.desktop.take();
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

    /// Sleeps until there is something to do, and does what is not on the pile.
    fn listen(&mut self) {
        let gone: Vec<_> = {
            let mut watched = vec![PollFd::new(&self.desktop.bell, PollFlags::IN)];
            let heard = self.store.sockets.own().map(|own| own.as_fd());
            watched.extend(heard.map(|own| PollFd::from_borrowed_fd(own, PollFlags::IN)));
            let first = watched.len();
            let clients: Vec<_> = self.lives.iter().collect();
            watched.extend(clients.iter().map(|(_, life)| PollFd::new(*life, PollFlags::IN)));
            // An interruption is a reason to look, too.
            let _ = poll(&mut watched, Some(&timespec(self.patience())));
            let rung = |fd: &PollFd<'_>| !fd.revents().is_empty();
            let ended = watched[first..].iter().zip(&clients).filter(|(fd, _)| rung(fd));
            ended.map(|(_, (client, _))| **client).collect()
        };
        let mut rung = [0; 8];
        let _ = rustix::io::read(&self.desktop.bell, &mut rung);
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
        self.bereft.extend(gone);
        for client in std::mem::take(&mut self.bereft) {
            if !self.carry_out(vec![Box::new(Chore(Do::LookAfter(client)))]) {
                self.bereft.push(client);
            }
        }
        if Instant::now() >= self.sweep_at {
            self.sweep_at = Instant::now() + SWEEP_EVERY;
            self.store.keep_ballast();
            self.carry_out(vec![Box::new(Chore(Do::Sweep))]);
        }
    }

    fn patience(&self) -> Duration {
        if self.store.sockets.has_unsent() {
            return Duration::from_millis(1);
        }
        if !self.bereft.is_empty() || !self.store.is_found() {
            return TRY_AGAIN;
        }
        // Whoever has claimed nothing has nothing to lose.
        let next = if self.store.is_present() { self.look_at } else { self.sweep_at };
        next.min(self.sweep_at).saturating_duration_since(Instant::now())
    }

    /// Several jobs in one transaction; if that fails, each for itself. Returns whether all were done.
    fn carry_out(&mut self, mut jobs: Vec<Box<dyn Job>>) -> bool {
        if jobs.is_empty() {
            return true;
        }
        let mut outcome = self.transact(&mut jobs);
        // One of them may be at fault; if the file cannot be had, it cannot be had for any.
        if outcome.is_err() && self.store.is_had && jobs.len() > 1 {
            let done: Vec<_> = jobs.into_iter().map(|job| self.carry_out(vec![job])).collect();
            return done.into_iter().all(|done| done);
        }
        if let Err(error) = &outcome
            && Store::lacks_room(error)
            && jobs.iter().all(|job| job.kind() == Kind::InAnyCase)
        {
            self.store.drop_ballast();
            outcome = self.transact(&mut jobs);
        }
        let is_done = outcome.is_ok();
        match outcome {
            Ok(Done { at, out, heard }) => {
                self.pass_on(heard);
                jobs.into_iter().for_each(|job| job.done(Ok(())));
                self.watch_over(out.watch);
                out.buried.iter().for_each(|client| drop(self.lives.remove(client)));
                let own = self.store.own;
                let to_us = out.said.into_iter().filter(|(client, _)| *client == own);
                self.pass_on(to_us.map(|(_, said)| (at, said)).collect());
            }
            Err(error) if self.store.is_gone() => {
                self.mourn();
                jobs.into_iter().for_each(|job| job.gone(error.copy()));
            }
            Err(error) => jobs.into_iter().for_each(|job| job.done(Err(error.copy()))),
        }
        is_done
    }

    /// Watches over others, too; now and then, no longer over those who are in nobody's way any more,
    /// each of whom costs a descriptor.
    fn watch_over(&mut self, more: Vec<(Process, OwnedFd)>) {
        self.lives.extend(more);
        if self.lives.len() <= self.most_lives {
            return;
        }
        let in_the_way = self.store.transact(&|_| true, |desk| desk.in_the_way());
        if let Ok((in_the_way, _)) = in_the_way {
            self.lives.retain(|client, _| in_the_way.contains(client));
        }
        self.most_lives = (self.lives.len() * 2).max(MOST_LIVES);
    }

    fn transact(&mut self, jobs: &mut [Box<dyn Job>]) -> Result<Done> {
        if jobs.iter().any(|job| job.kind() == Kind::Claim) {
            self.store.check_room()?;
            self.store.be_present()?;
        }
        let Clerk { store, lives, .. } = self;
        // Whoever ended since the last look is not heard of before these jobs are done.
        let watched = |client| lives.get(&client).is_some_and(|life| !has_ended(life));
        let done =
            store.transact(&watched, |desk| jobs.iter_mut().try_for_each(|job| job.act(desk)));
        done.map(|((), done)| done)
    }

    /// Tells this client's claims what was said to them. A turn that nobody takes passes on.
    fn pass_on(&mut self, heard: Vec<(Moment, Said)>) {
        for (at, Said { name, id, word, holder }) in heard {
            let granted = match word {
                // It ran out on its way: whoever sent it knows as much.
                Word::Granted { life, .. } if at + life <= SystemWorld.now() => continue,
                Word::Granted { fence, .. } => Some(fence),
                // Nearly always the one that was given its turn stood right before us.
                Word::LookAt(_) if !self.lives.contains_key(&holder) => {
                    self.desktop.put(Box::new(Chore(Do::LookAround(name.clone()))));
                    None
                }
                _ => None,
            };
            let taken = self.deliver(&name, &id, turn(word, at));
            if let Some(fence) = granted.filter(|_| !taken) {
                let leave = Leave { only: Some(fence), unbegun: true, ..Leave::new(name, id) };
                self.desktop.put(Box::new(Chore(Do::GiveBack(leave))));
            }
        }
    }

    fn deliver(
        &self,
        name: &crate::model::name::Name,
        id: &crate::model::claim::ClaimId,
        turn: Turn,
    ) -> bool {
        // Whoever is told may ask this engine something, or attach to it.
        let clients = self.desktop.clients.read().unwrap_or_else(PoisonError::into_inner).clone();
        clients.iter().filter_map(Weak::upgrade).any(|to| to.deliver(name, id, turn.clone()))
    }

    fn look_for_file(&mut self) {
        if self.store.is_gone() {
            return self.mourn();
        }
        if !self.store.is_found() && self.store.be_found() {
            // Others may have passed this client's places over meanwhile.
            for (name, id) in self.store.own_claims() {
                self.deliver(&name, &id, Turn::LookAgain);
            }
        }
    }

    /// The file is gone: this client's claims are told at once, and not when they ask next.
    fn mourn(&mut self) {
        for (name, id) in self.store.own_claims() {
            self.deliver(&name, &id, Turn::Ended(Ended::Forgotten));
        }
    }
}

/// However it ends, nobody waits for it any longer.
impl Drop for Clerk {
    fn drop(&mut self) {
        let unheard = {
            let mut jobs = self.desktop.jobs();
            (jobs.closed, jobs.ended) = (true, true);
            jobs.mourners.clear();
            std::mem::take(&mut jobs.waiting)
        };
        unheard.into_iter().for_each(|job| job.done(Err(Error::closed())));
    }
}

/// What the clerk does without being asked.
struct Chore(Do);

enum Do {
    LookAfter(Process),
    LookAround(crate::model::name::Name),
    GiveBack(Leave),
    Sweep,
}

impl Job for Chore {
    fn act(&mut self, desk: &mut Desk<'_>) -> Kept<()> {
        match &self.0 {
            Do::LookAfter(client) => desk.look_after(*client),
            Do::LookAround(name) => desk.look_around(name),
            Do::GiveBack(leave) => desk.leave(leave).map(drop),
            Do::Sweep => desk.sweep_now_and_then(),
        }
    }

    // If it failed, the ttl or the next sweep sees to it.
    fn done(self: Box<Self>, _: Result<()>) {}

    fn gone(self: Box<Self>, _: Error) {}

    fn kind(&self) -> Kind {
        Kind::InAnyCase
    }
}

fn timespec(span: Duration) -> Timespec {
    Timespec { tv_sec: span.as_secs() as i64, tv_nsec: span.subsec_nanos().into() }
}
