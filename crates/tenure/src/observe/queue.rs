//! Reports that are made by a thread other than the one on which something happened.
//!
//! A listener (a subscriber of `tracing`, a recorder of `metrics`) is foreign code: it may block for as long as a
//! log pipe is stuck, and it may panic. The threads that keep locks alive must not run it. They put their reports
//! into a bounded queue, and another thread makes them, one after the other. When the queue is full, reports are
//! dropped and counted, and the count is reported when the queue moves again.

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

/// The largest number of reports in the queue.
const MOST: usize = 4096;
/// The thread ends after this long without reports.
const IDLE: Duration = Duration::from_secs(5);
/// How long closing a `Tenure` waits for queued reports.
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
    /// The number of reports not finished yet, including the one that is being made.
    unsaid: AtomicUsize,
}

#[derive(Default)]
struct State {
    reports: VecDeque<Report>,
    /// The spans of holds whose report was dropped. They end when the queue moves again, because ending a span
    /// runs foreign code, too.
    ended: Vec<Arc<Holding>>,
    dropped: u64,
    /// Whether the thread that makes the reports is running.
    running: bool,
}

thread_local! {
    static OWN: RefCell<Option<Arc<Queue>>> = const { RefCell::new(None) };
}

impl Queue {
    /// From now on this thread runs no foreign code: its reports go through this queue.
    pub(super) fn keep_apart(self: &Arc<Queue>) {
        OWN.set(Some(self.clone()));
    }

    /// Whether this thread must not report directly, or would do so before earlier reports are made.
    pub(super) fn is_needed(&self) -> bool {
        self.unsaid.load(SeqCst) > 0 || OWN.with_borrow(Option::is_some)
    }

    /// Queues a report. `holding` ends after it.
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

    /// Waits until everything has been reported, so that a process that exits has reported its last events; but
    /// not for long, because the listener may be stuck.
    pub(super) fn finish(&self) {
        let unsaid = |_: &mut State| self.unsaid.load(SeqCst) > 0;
        drop(self.less.wait_timeout_while(self.state(), LAST_WORDS, unsaid));
    }

    /// Starts the thread unless it is running.
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
            // A listener may panic; later reports are still made. The span of the hold ends after that: a second
            // panic while unwinding from the first would abort the process.
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

    /// The next report; `None` if there has been none for a while.
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

/// From now on this thread, which belongs to an engine, runs no foreign code.
#[cfg(any(feature = "file", feature = "postgres"))]
pub(crate) fn keep_apart() {
    Arc::<Queue>::default().keep_apart();
}

/// Reports at once, or queues the report if this thread must not.
pub(super) fn say(report: impl FnOnce() + Send + 'static) {
    match OWN.with_borrow(Clone::clone) {
        Some(queue) => queue.put(None, |_| report()),
        None => report(),
    }
}

fn say_dropped(dropped: u64) {
    warn!(
        target: TARGET, event = "reports.dropped", dropped,
        "a listener was too slow: this many events were dropped"
    );
    measure!(reports_dropped(dropped));
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Queue")
    }
}
