//! Work that does what it is told, and records what was done with it.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::future::{Future, pending};
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use tenure::worker::{State, States, Stopper};
use tenure::{Fence, Lost, Term, Work, Worker};
use tokio::task::JoinHandle;

/// Longer than anything takes that works at all.
const BOUND: Duration = Duration::from_secs(20);

/// Waits for a fact that causes no event.
pub(crate) async fn until(what: &str, mut fact: impl FnMut() -> bool) {
    let looks = async {
        while !fact() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    assert!(tokio::time::timeout(BOUND, looks).await.is_ok(), "not in time: {what}");
}

/// How a callback ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    Well,
    Fails,
    Panics,
    Hangs,
}

impl How {
    async fn end(self) -> Result<(), String> {
        match self {
            How::Well => Ok(()),
            How::Fails => Err("no luck".into()),
            How::Panics => panic!("on purpose"),
            How::Hangs => pending().await,
        }
    }
}

/// What was done with the work.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Call {
    Start(Fence),
    /// Whether the term was still good when the work had ended.
    Stop {
        in_time: bool,
    },
}

/// Work of a test. Clones are the same work.
#[derive(Clone, Default)]
pub(crate) struct TestWork(Arc<Mutex<Inner>>);

#[derive(Default)]
struct Inner {
    starts: Vec<How>,
    stops: Vec<How>,
    takes: Duration,
    lost: Option<Lost>,
    calls: Vec<Call>,
}

impl TestWork {
    pub(crate) fn new() -> TestWork {
        TestWork::default()
    }

    /// How the next starts end; later ones succeed.
    pub(crate) fn starts(self, how: &[How]) -> TestWork {
        self.inner().starts = how.to_vec();
        self
    }

    pub(crate) fn stops(self, how: &[How]) -> TestWork {
        self.inner().stops = how.to_vec();
        self
    }

    /// How long stopping takes.
    pub(crate) fn takes(self, takes: Duration) -> TestWork {
        self.inner().takes = takes;
        self
    }

    pub(crate) fn calls(&self) -> Vec<Call> {
        self.inner().calls.clone()
    }

    /// The terms in which it was started.
    pub(crate) fn terms(&self) -> Vec<Fence> {
        let started = |call: Call| if let Call::Start(term) = call { Some(term) } else { None };
        self.calls().into_iter().filter_map(started).collect()
    }

    /// Waits until it was started this often.
    pub(crate) async fn started(&self, times: usize) {
        until("the work is started", || self.terms().len() == times).await;
    }

    /// Runs a worker with it.
    pub(crate) fn work(&self, worker: Worker) -> Running {
        let (states, stopper) = (worker.states(), worker.stopper());
        Running { states, stopper, task: tokio::spawn(worker.run(self.clone())) }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn take(how: &mut Vec<How>) -> How {
    if how.is_empty() { How::Well } else { how.remove(0) }
}

impl Work for TestWork {
    type Error = String;

    async fn start(&mut self, term: &Term) -> Result<(), String> {
        let how = {
            let mut inner = self.inner();
            inner.calls.push(Call::Start(term.number()));
            inner.lost = Some(term.lost());
            take(&mut inner.starts)
        };
        how.end().await
    }

    async fn stop(&mut self) -> Result<(), String> {
        let (how, takes) = {
            let mut inner = self.inner();
            (take(&mut inner.stops), inner.takes)
        };
        tokio::time::sleep(takes).await;
        {
            let mut inner = self.inner();
            let mut cx = Context::from_waker(Waker::noop());
            let lost = inner.lost.as_mut();
            let in_time = lost.is_some_and(|lost| Pin::new(lost).poll(&mut cx).is_pending());
            inner.calls.push(Call::Stop { in_time });
        }
        how.end().await
    }
}

/// A worker that runs.
pub(crate) struct Running {
    pub(crate) states: States,
    pub(crate) stopper: Stopper,
    pub(crate) task: JoinHandle<tenure::Result<()>>,
}

impl Running {
    pub(crate) async fn reaches(&self, state: State) {
        let mut states = self.states.clone();
        match tokio::time::timeout(BOUND, states.reach(state)).await {
            Ok(reached) => assert!(reached, "gone at {}, before {state}", states.current()),
            Err(_) => panic!("not {state} in time, but {}", states.current()),
        }
    }

    /// Tells it to stop, and waits for its end.
    pub(crate) async fn ends(self) {
        self.stopper.stop();
        let ended = tokio::time::timeout(BOUND, self.task).await.expect("an end");
        ended.expect("no panic").expect("a good end");
        assert_eq!(self.states.current(), State::Idle);
    }
}
