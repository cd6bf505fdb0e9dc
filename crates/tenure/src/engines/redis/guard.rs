//! Connections whose runtime does not run.
//!
//! A connection is read by a task on the runtime that used it first: an answer then needs no other thread. That
//! runtime may be kept and never polled again, or one of its workers may be blocked, while others of this
//! process wait for answers and turns. A task on the watchdog's runtime, which always runs, looks after that:
//! it wakes the reading task, and if that has not run a while later, makes the connection anew and reads it
//! itself. What was under way is in doubt, as after any break, and is asked again. It gives the
//! connection back to whoever asks next when some time has passed and nothing is under way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::Shared;
use super::link::{Duty, Link, Phase, State};
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// So many looks in a row find that the task has not run since it was woken. Together they are shorter
/// than the silence after which an engine counts as out of reach.
const MOST_MISSED: u32 = 3;
/// After so many looks without anything to look after, the guard rests until something is asked.
const MOST_QUIET: u32 = 5;
/// How long a connection stays with the guard the first time; each further time it is twice as long.
const FIRST_STAY: Duration = Duration::from_secs(10);

/// What wakes the guard.
#[derive(Default)]
pub(super) struct Attention {
    /// Something was asked since the last look.
    asked: AtomicBool,
    /// The guard looks, or has been told to.
    looks: AtomicBool,
    bell: Arc<Notify>,
}

/// Who drives a link, and whether it does.
#[derive(Default)]
pub(super) struct Driver {
    /// Rises with each task that drives it. Whatever an earlier one finds is not about this connection.
    number: AtomicU64,
    /// How often the task has run.
    polls: AtomicU64,
    waker: Mutex<Option<Waker>>,
    /// How often the guard had to take it over.
    taken: AtomicU32,
    /// What the guard saw last: polls, and how often in a row it saw no more.
    seen: AtomicU64,
    missed: AtomicU32,
}

impl Driver {
    /// The number of a new task; to be called with the state locked.
    pub(super) fn next(&self, _locked: &State) -> u64 {
        self.number.fetch_add(1, SeqCst) + 1
    }

    /// Whether that task still drives the link; to be believed with the state locked.
    pub(super) fn is(&self, number: u64) -> bool {
        self.number.load(SeqCst) == number
    }

    pub(super) fn begins(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// The task runs. Nobody else counts.
    pub(super) fn runs(&self) {
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Until when a link that the guard drives stays with it.
    pub(super) fn stays_until(&self, now: Moment) -> Moment {
        let times = self.taken.load(Relaxed).saturating_sub(1).min(6);
        now + FIRST_STAY * (1 << times)
    }
}

impl Shared {
    /// Something is asked of a connection that a caller's runtime drives.
    pub(super) fn be_guarded(&self) {
        let Attention { asked, looks, bell } = &self.attention;
        if !asked.load(Relaxed) {
            asked.store(true, SeqCst);
        }
        if !looks.load(SeqCst) && !looks.swap(true, SeqCst) {
            bell.notify_one();
        }
    }

    /// Looks after the callers' connections for as long as this runtime lasts.
    pub(super) fn guard(self: &Arc<Shared>) {
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(guard(Arc::downgrade(self)));
        }
    }

    /// Returns whether there is anything to look after.
    fn look_after_links(&self, in_time: bool) -> bool {
        let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
        let callers = links.iter().filter(|link| link.duty != Duty::Lifeline);
        callers.fold(false, |needed, link| link.look_after(in_time) | needed)
    }
}

async fn guard(shared: Weak<Shared>) {
    let mut quiet = 0;
    loop {
        let before = Instant::now();
        sleep(LOOK_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        // A machine that does not let this task run in time has no time for others, either.
        let in_time = before.elapsed() < LOOK_EVERY * 3 / 2;
        let needed = shared.look_after_links(in_time) | shared.attention.asked.swap(false, SeqCst);
        quiet = if needed { 0 } else { quiet + 1 };
        if quiet >= MOST_QUIET {
            quiet = 0;
            shared.attention.looks.store(false, SeqCst);
            let bell = shared.attention.bell.clone();
            drop(shared);
            bell.notified().await;
        }
    }
}

impl Link {
    /// Whether someone waits for what comes over it. Takes it over if nobody reads that.
    fn look_after(self: &Arc<Link>, in_time: bool) -> bool {
        let needed = {
            let state = self.state();
            match state.phase {
                Phase::Idle | Phase::Closed => false,
                Phase::Connecting | Phase::Down(_) => true,
                Phase::Up => {
                    let turns = self.duty == Duty::Data && self.shared.someone_waits();
                    turns || state.is_under_way()
                }
            }
        };
        let Driver { polls, seen, missed, waker, .. } = &self.driver;
        let polls = polls.load(Relaxed);
        let ran = seen.swap(polls, Relaxed) != polls;
        let count = match (needed, missed.load(Relaxed)) {
            (false, _) => 0,
            (true, before) if ran || before == 0 => 1,
            (true, before) => before + u32::from(in_time),
        };
        missed.store(count, Relaxed);
        if count > MOST_MISSED {
            missed.store(0, Relaxed);
            self.take_over();
        } else if needed {
            let waker = waker.lock().unwrap_or_else(PoisonError::into_inner).clone();
            waker.into_iter().for_each(Waker::wake);
        }
        needed
    }

    /// Makes the connection anew, and drives it here.
    fn take_over(self: &Arc<Link>) {
        let (driver, writer) = {
            let mut state = self.state();
            if matches!(state.phase, Phase::Idle | Phase::Closed) {
                return;
            }
            (self.driver.next(&state), state.writer.take())
        };
        // The server hears that nobody is there any more.
        drop(writer);
        self.driver.taken.fetch_add(1, Relaxed);
        let error =
            Error::new(ErrorKind::Unavailable, "the runtime of the connection does not run");
        self.is_down(driver, &error, Phase::Connecting);
        tokio::spawn(self.clone().drive(driver));
    }
}
