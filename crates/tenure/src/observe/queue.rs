//! Reports that leave the thread on which something happened, for another to say them.
//!
//! Whoever listens (a subscriber of `tracing`, a recorder of `metrics`) is foreign code: it may block for as
//! long as a log pipe is stuck, and it may panic. The threads that keep locks alive must not run it. They put
//! what they have to say into a queue with a bound, and a thread of its own says it, one report after the
//! other. When the queue is full, reports are dropped and counted, and the count is said when it moves again.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::warn;

#[cfg(feature = "metrics")]
use super::meters;
use super::{Holding, TARGET, measure};

/// How many reports wait at most.
const MOST: usize = 4096;
/// A thread that has had nothing to say for this long ends.
const IDLE: Duration = Duration::from_secs(5);
/// How long a connection that is closed waits for what was not said yet.
const LAST_WORDS: Duration = Duration::from_millis(250);

struct Report {
    say: Box<dyn FnOnce(Option<Arc<Holding>>) + Send>,
    holding: Option<Arc<Holding>>,
}

#[derive(Default)]
pub(super) struct Queue {
    state: Mutex<State>,
    more: Condvar,
    less: Condvar,
    /// How many are not said yet, with the one that is being said.
    unsaid: AtomicUsize,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    /// What ended with reports that were dropped: it ends when the queue moves again, because its end is
    /// foreign code, too.
    ended: Vec<Arc<Holding>>,
    dropped: u64,
    /// There is a thread that says them.
    running: bool,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Queue>>> = const { RefCell::new(None) };
}

impl Queue {
    /// From now on this thread runs nothing foreign: what it has to say goes through this queue.
    pub(super) fn keep_apart(self: &Arc<Queue>) {
        OWN.set(Some(self.clone()));
    }

    /// Whether this thread must not say anything itself, or would say it before what happened earlier.
    pub(super) fn is_needed(&self) -> bool {
        self.unsaid.load(SeqCst) > 0 || OWN.with_borrow(Option::is_some)
    }

    /// Says it after what was put here before. `holding` ends with it.
    pub(super) fn put(
        self: &Arc<Queue>,
        holding: Option<Arc<Holding>>,
        say: impl FnOnce(Option<Arc<Holding>>) + Send + 'static,
    ) {
        let mut state = self.state();
        if state.reports.len() >= MOST || !self.runs(&mut state) {
            state.dropped += 1;
            state.ended.extend(holding);
            return;
        }
        state.reports.push_back(Report { say: Box::new(say), holding });
        self.unsaid.fetch_add(1, SeqCst);
        drop(state);
        self.more.notify_one();
    }

    /// Waits until everything was said, so that a process that ends has told its last events; but not for
    /// long, because whoever listens may be stuck.
    pub(super) fn finish(&self) {
        let unsaid = |_: &mut State| self.unsaid.load(SeqCst) > 0;
        drop(self.less.wait_timeout_while(self.state(), LAST_WORDS, unsaid));
    }

    /// Sees to it that there is a thread.
    fn runs(self: &Arc<Queue>, state: &mut State) -> bool {
        if !state.running {
            let queue = self.clone();
            let thread = std::thread::Builder::new().name("tenure-reports".into());
            state.running = thread.spawn(move || queue.run()).is_ok();
        }
        state.running
    }

    fn run(&self) {
        while let Some(Report { say, holding }) = self.next() {
            // Whoever listens may panic; those who come after it are still told. What ends with the report
            // ends behind it: a second panic on the way out of the first would end the process.
            let with = holding.clone();
            let _ = catch_unwind(AssertUnwindSafe(|| say(with)));
            self.unsaid.fetch_sub(1, SeqCst);
            let (dropped, mut ended) = {
                let mut state = self.state();
                (std::mem::take(&mut state.dropped), std::mem::take(&mut state.ended))
            };
            ended.extend(holding);
            if dropped > 0 {
                let _ = catch_unwind(AssertUnwindSafe(|| say_dropped(dropped)));
            }
            for ended in ended {
                let _ = catch_unwind(AssertUnwindSafe(|| drop(ended)));
            }
            self.less.notify_all();
        }
    }

    /// The next report; `None` if there was none for a while.
    fn next(&self) -> Option<Report> {
        let state = self.state();
        let nothing = |state: &mut State| state.reports.is_empty();
        let waited = self.more.wait_timeout_while(state, IDLE, nothing);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let next = state.reports.pop_front();
        state.running = next.is_some();
        next
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// From now on this thread, which is an engine's own, runs nothing foreign.
#[cfg(feature = "file")]
pub(crate) fn keep_apart() {
    Arc::<Queue>::default().keep_apart();
}

/// Says it at once, or has it said if this thread must not.
pub(super) fn say(report: impl FnOnce() + Send + 'static) {
    match OWN.with_borrow(Clone::clone) {
        Some(queue) => queue.put(None, |_| report()),
        None => report(),
    }
}

fn say_dropped(dropped: u64) {
    warn!(
        target: TARGET, event = "reports.dropped", dropped,
        "whoever listens was too slow: so many events were not told"
    );
    measure!(reports_dropped(dropped));
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}
