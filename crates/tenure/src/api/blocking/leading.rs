//! Leader election, and work that is done once.

use std::time::Duration;

use super::driver::Driver;
use super::hold::Hold;
use super::locks::request;
use crate::api::primitives::{self, CAMPAIGN_AGAIN, Done, Leader};
use crate::engine::View;
use crate::model::claim::Released;
use crate::model::claim::{Broken, Ended, Fence, Forgotten, OnceRecord, Outcome};
use crate::model::error::{Error, ErrorKind, Result};

/// Leader election: one leader at a time, visible to everyone. See [`Election`](crate::Election).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct Election {
    pub(super) inner: crate::Election,
    pub(super) driver: Driver,
}

request!(Election);

/// Work that is done once. See [`Once`](crate::Once).
#[derive(Clone, Debug)]
#[must_use = "this only describes the request"]
pub struct Once {
    pub(super) inner: crate::Once,
    pub(super) driver: Driver,
}

request!(Once);

impl Election {
    /// A text that everyone can read while this candidate leads. Default: none.
    pub fn value(self, value: impl Into<String>) -> Election {
        Election { inner: self.inner.value(value), ..self }
    }

    /// Waits until this candidate leads.
    pub fn campaign(self) -> Result<Term> {
        let term = self.driver.wait(self.inner.campaign())?;
        Ok(Term(Hold::new(term.0, &self.driver)))
    }

    /// Becomes leader if nobody leads or waits to; otherwise returns `None`.
    pub fn try_campaign(self) -> Result<Option<Term>> {
        let term = self.driver.wait(self.inner.try_campaign())?;
        Ok(term.map(|term| Term(Hold::new(term.0, &self.driver))))
    }

    /// Campaigns, and runs `work` to completion as leader. If the term did not last until then, campaigns again, and
    /// never gives up, not even if the engine cannot be reached. See [`Election::run`](crate::Election::run).
    ///
    /// # Errors
    /// Only errors that a retry cannot fix, such as `Invalid`, `Denied` or `Closed`.
    pub fn run<T>(mut self, mut work: impl FnMut(&Term) -> T) -> Result<T> {
        self.inner.request.wait = None;
        loop {
            match self.clone().campaign() {
                Ok(term) => {
                    let done = work(&term);
                    if term.is_live() {
                        return term.resign().map(|_| done);
                    }
                }
                Err(error) if error.is_retryable() => std::thread::sleep(CAMPAIGN_AGAIN),
                Err(error) => return Err(error),
            }
        }
    }

    /// The current leader.
    pub fn leader(&self) -> Result<Option<Leader>> {
        self.driver.wait(self.inner.leader())
    }

    /// The leader and the candidates; `None` if there is neither.
    pub fn inspect(&self) -> Result<Option<View>> {
        self.driver.wait(self.inner.inspect())
    }

    /// Every change of the leader, starting with the current one. It also reports when nobody leads.
    pub fn observe(&self) -> Observer {
        Observer { inner: self.inner.observe(), driver: self.driver.clone() }
    }

    /// Ends a term by force. See [`Election::break_term`](crate::Election::break_term).
    pub fn break_term(&self, term: Fence, reason: impl Into<String>) -> Result<Broken> {
        self.driver.wait(self.inner.break_term(term, reason))
    }
}

/// The leadership. Dropping it resigns. See [`Term`](crate::Term).
#[derive(Debug)]
#[must_use = "a term that is dropped at once leads nobody"]
pub struct Term(Hold);

impl Term {
    /// The number of this term, which is its fence. Terms of a name rise.
    pub fn number(&self) -> Fence {
        self.0.fence()
    }

    /// Whether it certainly still leads. Only reads the clock.
    pub fn is_live(&self) -> bool {
        self.0.is_live()
    }

    /// Waits until the term ends other than by resigning, and returns the reason.
    pub fn lost(&self) -> Ended {
        self.0.lost()
    }

    /// The hold that keeps other candidates out.
    pub fn hold(&self) -> &Hold {
        &self.0
    }

    /// Resigns: the next candidate leads.
    pub fn resign(self) -> Result<Released> {
        let Hold { inner, driver } = self.0;
        driver.wait(primitives::Term(inner).resign())
    }
}

/// Every change of the leader. See [`Observer`](crate::Observer).
#[derive(Debug)]
#[must_use = "it looks only while it is asked"]
pub struct Observer {
    inner: primitives::Observer,
    driver: Driver,
}

/// Waits for the next change. Ends when the connection is closed.
impl Iterator for Observer {
    type Item = Result<Option<Leader>>;

    fn next(&mut self) -> Option<Result<Option<Leader>>> {
        match self.driver.wait(self.inner.next()) {
            Err(error) if error.kind() == ErrorKind::Closed => None,
            change => Some(change),
        }
    }
}

impl Once {
    /// How long its start and its outcome are remembered. Default: 24 h.
    pub fn keep(self, keep: Duration) -> Once {
        Once { inner: self.inner.keep(keep), ..self }
    }

    /// Run it again if an earlier holder started it and never settled it. Default: no.
    pub fn rerun(self, rerun: bool) -> Once {
        Once { inner: self.inner.rerun(rerun), ..self }
    }

    /// The content of the work: the same name with other content is refused.
    pub fn content(self, content: impl AsRef<[u8]>) -> Once {
        Once { inner: self.inner.content(content), ..self }
    }

    /// Runs `work` to completion, unless it was done before. Its `Ok` is remembered as the outcome; its `Err` means
    /// that it did not happen. See [`Once::run`](crate::Once::run).
    ///
    /// # Errors
    /// `Lost` if the hold did not last until the end of the work. The outcome was still sent to the engine, and
    /// counts unless another caller has started the work again.
    pub fn run<T: AsRef<[u8]>, E>(
        self,
        work: impl FnOnce(&Run) -> Result<T, E>,
    ) -> Result<Result<Done, E>> {
        let run = match self.begin()? {
            Begun::Mine(run) => run,
            Begun::Replayed(outcome) => return Ok(Ok(Done::Replayed(outcome))),
            Begun::InProgress(holder) => return Ok(Ok(Done::InProgress(holder))),
            Begun::Unsettled => return Ok(Ok(Done::Unsettled)),
        };
        let done = work(&run);
        let (name, settled) = (
            run.hold().name().to_owned(),
            match &done {
                Ok(outcome) => run.settle(outcome)?,
                Err(_) => run.undo()?,
            },
        );
        match (settled, done) {
            (Released::Late | Released::Unknown, _) => {
                let error = Error::new(ErrorKind::Lost, "its hold ended before the work did");
                Err(error
                    .next("raise the ttl, or find out why renewals failed")
                    .context("run", &name, ""))
            }
            (Released::InTime, Ok(outcome)) => Ok(Ok(Done::Ran(Outcome::from(outcome.as_ref())))),
            (Released::InTime, Err(failed)) => Ok(Err(failed)),
        }
    }

    /// Starts the work if it has to be done, for callers that settle it themselves.
    pub fn begin(self) -> Result<Begun> {
        Ok(match self.driver.wait(self.inner.begin())? {
            primitives::Begun::Mine(run) => Begun::Mine(Run(Hold::new(run.0, &self.driver))),
            primitives::Begun::Replayed(outcome) => Begun::Replayed(outcome),
            primitives::Begun::InProgress(holder) => Begun::InProgress(holder),
            primitives::Begun::Unsettled => Begun::Unsettled,
        })
    }

    /// Who runs it and who waits for its outcome; `None` if nobody does, done or not.
    pub fn inspect(&self) -> Result<Option<View>> {
        self.driver.wait(self.inner.inspect())
    }

    /// Forgets the record of it. See [`Once::forget`](crate::Once::forget).
    pub fn forget(&self, seen: &OnceRecord) -> Result<Forgotten> {
        self.driver.wait(self.inner.forget(seen))
    }

    /// Ends a run by force. See [`Once::break_run`](crate::Once::break_run).
    pub fn break_run(&self, fence: Fence, reason: impl Into<String>) -> Result<Broken> {
        self.driver.wait(self.inner.break_run(fence, reason))
    }
}

/// What [`Once::begin`] found.
pub type Begun = primitives::Begun<Run>;

/// Work that this caller has to do. Dropping it leaves the work unsettled. See [`Run`](crate::Run).
#[derive(Debug)]
#[must_use = "work that is dropped stays unsettled"]
pub struct Run(Hold);

impl Run {
    /// The number of this run: higher than that of every earlier run.
    pub fn fence(&self) -> Fence {
        self.0.fence()
    }

    /// The hold that keeps others out.
    pub fn hold(&self) -> &Hold {
        &self.0
    }

    /// Settles the work: it is done, with this outcome.
    pub fn settle(self, outcome: impl AsRef<[u8]>) -> Result<Released> {
        let Hold { inner, driver } = self.0;
        driver.wait(primitives::Run(inner).settle(outcome))
    }

    /// Settles the work: it did not happen. Nothing is remembered, and the next caller runs it.
    pub fn undo(self) -> Result<Released> {
        let Hold { inner, driver } = self.0;
        driver.wait(primitives::Run(inner).undo())
    }
}
