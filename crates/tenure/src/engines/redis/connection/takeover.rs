//! Takes over connections whose runtime is not being polled.
//!
//! A connection is read by a task on the runtime that used it first, so that an answer needs no other thread.
//! That runtime may be kept and never polled again, or one of its workers may be blocked, while other tasks of
//! this process wait for answers and turns. So a task on the watchdog's runtime, which always runs, checks each
//! connection. It wakes the reading task, and if that has not run some checks later, it reconnects and
//! reads the new connection itself. Requests under way are then in doubt, as after any break, and are sent again. It
//! gives the connection back, to the runtime of the next request, after some time in which nothing is under way.

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::Waker;
use std::time::{Duration, Instant};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Connection, Phase, Purpose, State};
use crate::engines::redis::shared::Shared;
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;

const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A connection is taken over after this many checks in a row in which its task did not run. Together they
/// take less time than the silence after which an engine counts as unreachable.
const MOST_MISSED: u32 = 3;
/// After this many checks with nothing to watch, the task sleeps until the next request.
const MOST_QUIET: u32 = 5;
/// How long a connection is driven here the first time. Each further time is twice as long.
const FIRST_STAY: Duration = Duration::from_secs(10);

/// Wakes the watching task.
#[derive(Default)]
pub(crate) struct Wakeup {
    /// Set by a request; cleared by each check.
    asked: AtomicBool,
    /// The task is awake, or has been woken.
    looks: AtomicBool,
    notify: Arc<Notify>,
}

/// The task that drives a connection, and whether it runs.
#[derive(Default)]
pub(crate) struct Driver {
    /// Rises with each task that drives the connection. What a task with a lower number finds is out of date.
    number: AtomicU64,
    /// How often the task has run.
    polls: AtomicU64,
    waker: Mutex<Option<Waker>>,
    /// How often the connection was taken over.
    taken: AtomicU32,
    /// What the last check saw: the polls, and how many checks in a row found no new ones.
    seen: AtomicU64,
    missed: AtomicU32,
}

impl Driver {
    /// The number for a new task. Takes the locked state as proof that it is locked.
    pub(crate) fn next(&self, _locked: &State) -> u64 {
        self.number.fetch_add(1, SeqCst) + 1
    }

    /// Whether the task with this number still drives the connection. Only reliable while the state is locked.
    pub(crate) fn is(&self, number: u64) -> bool {
        self.number.load(SeqCst) == number
    }

    pub(crate) fn begins(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(PoisonError::into_inner) = Some(waker);
    }

    /// Counts a poll of the driving task. Only that task calls this.
    pub(crate) fn runs(&self) {
        self.polls.store(self.polls.load(Relaxed).wrapping_add(1), Relaxed);
    }

    /// Until when a connection that was taken over stays here.
    pub(crate) fn stays_until(&self, now: Moment) -> Moment {
        let times = self.taken.load(Relaxed).saturating_sub(1).min(6);
        now + FIRST_STAY * (1 << times)
    }
}

impl Wakeup {
    /// A request is sent on a connection that a caller's runtime drives.
    pub(super) fn asked(&self) {
        let Wakeup { asked, looks, notify } = self;
        if !asked.load(Relaxed) {
            asked.store(true, SeqCst);
        }
        if !looks.load(SeqCst) && !looks.swap(true, SeqCst) {
            notify.notify_one();
        }
    }
}

/// Checks the callers' connections for as long as this runtime lasts.
pub(crate) fn watch(shared: &Arc<Shared>) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(look_every_now_and_then(Arc::downgrade(shared)));
    }
}

/// Returns whether any connection needs to be watched.
fn look_after_all(shared: &Shared, in_time: bool) -> bool {
    let connections = shared.registry.all();
    let callers = connections.iter().filter(|connection| connection.purpose != Purpose::Lifeline);
    callers.fold(false, |needed, connection| connection.look_after(in_time) | needed)
}

async fn look_every_now_and_then(shared: Weak<Shared>) {
    let mut quiet = 0;
    loop {
        let before = Instant::now();
        sleep(LOOK_EVERY).await;
        let Some(shared) = shared.upgrade() else { return };
        // If this task was not scheduled in time, the others may not have been either.
        let in_time = before.elapsed() < LOOK_EVERY * 3 / 2;
        let needed =
            look_after_all(&shared, in_time) | shared.registry.wakeup.asked.swap(false, SeqCst);
        quiet = if needed { 0 } else { quiet + 1 };
        if quiet >= MOST_QUIET {
            quiet = 0;
            shared.registry.wakeup.looks.store(false, SeqCst);
            let notify = shared.registry.wakeup.notify.clone();
            drop(shared);
            notify.notified().await;
        }
    }
}

impl Connection {
    /// Takes the connection over if its task does not run. Returns whether anyone waits for this connection.
    fn look_after(self: &Arc<Connection>, in_time: bool) -> bool {
        let needed = {
            let state = self.state();
            match state.phase {
                Phase::Idle | Phase::Closed => false,
                Phase::Connecting | Phase::Down(_) => true,
                Phase::Up => {
                    let turns = self.purpose == Purpose::Turns && self.shared.waiting.is_any();
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

    /// Reconnects, and drives the connection here.
    fn take_over(self: &Arc<Connection>) {
        let (driver, writer) = {
            let mut state = self.state();
            if matches!(state.phase, Phase::Idle | Phase::Closed) {
                return;
            }
            (self.driver.next(&state), state.writer.take())
        };
        // Lets the server notice that the connection is closed.
        drop(writer);
        self.driver.taken.fetch_add(1, Relaxed);
        let error = Error::new(
            ErrorKind::Unavailable,
            "the tokio runtime that drives the connection is blocked",
        );
        self.is_down(driver, &error, Phase::Connecting);
        tokio::spawn(self.clone().drive(driver));
    }
}
