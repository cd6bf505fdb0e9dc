//! `http://`: locks kept by a server (`tenure serve`).
//!
//! The steps of a process go to the server in the order of the calls: one thread takes them from a queue and sends
//! them in batches, one at a time, over one connection. The watchdog's steps have a queue and a connection of their
//! own. A stream of events brings turns; after an interruption, all waiting claims ask again.

mod client;
mod config;
mod events;
mod io;
pub mod protocol;
mod shared;

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

pub use self::config::HttpConfig;
use self::io::{Job, Queue, ReplyTo};
use self::protocol::{StepAnswer, StepRequest};
use self::shared::Shared;
use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Fence, Forgotten, Leave, Left, Note, OnceRecord, Renewal, Renewed,
    Verdict,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

/// Locks kept by a server. [`Tenure::connect`](crate::Tenure::connect) lists the URLs.
pub struct Http {
    shared: Arc<Shared>,
    queue: Queue,
    lifeline: Queue,
}

impl fmt::Debug for Http {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Http").field("label", &self.shared.label).finish_non_exhaustive()
    }
}

impl Http {
    /// Connects, and learns what the engine behind the server promises.
    ///
    /// # Errors
    /// If the server cannot be reached, refuses the token, or is of another version.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    pub async fn connect(config: HttpConfig) -> Result<Http> {
        let http = Http::unconnected(config)?;
        http.reach().await?;
        Ok(http)
    }

    /// Connects with the first step.
    ///
    /// # Errors
    /// If the thread cannot be started, or the token cannot be read.
    pub fn unconnected(config: HttpConfig) -> Result<Http> {
        let shared = Arc::new(Shared::new(config)?);
        let (queue, lifeline) = io::start(&shared)?;
        Ok(Http { shared, queue, lifeline })
    }

    /// Asks the server what its engine promises.
    pub(crate) async fn reach(&self) -> Result<()> {
        let (told, done) = oneshot::channel();
        self.queue.put(Job::Profile(told))?;
        done.await.unwrap_or_else(|_| Err(closed()))
    }

    fn ask<T>(
        &self,
        step: StepRequest,
        read: impl FnOnce(StepAnswer) -> Option<T> + Send + 'static,
    ) -> Step<T> {
        let (reply, answer) = oneshot::channel();
        if let Err(error) = self.queue.put(Job::Step(step, ReplyTo::Step(reply))) {
            return Step::ready(Err(error));
        }
        Step::pending(async move {
            let answer = answer.await.unwrap_or_else(|_| Err(closed()))?;
            read(answer).ok_or_else(|| {
                let reason = "the server's answer is for another step";
                Error::new(ErrorKind::Unsupported, reason).in_doubt()
            })
        })
    }

    fn done(&self, step: StepRequest) -> Step<()> {
        self.ask(step, |answer| matches!(answer, StepAnswer::Done).then_some(()))
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Closed, "the connection to the server was closed")
}

impl Engine for Http {
    fn profile(&self) -> &Profile {
        self.shared.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        self.shared.attach(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let shared = self.shared.clone();
        let (id, may_wait) = (claim.id, claim.may_wait);
        self.ask(StepRequest::Claim(claim.clone()), move |answer| match answer {
            StepAnswer::Verdict(verdict) => {
                if may_wait && let Verdict::Waiting(place) = &verdict {
                    shared.waits(id, place.floor);
                }
                Some(verdict)
            }
            _ => None,
        })
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        let shared = self.shared.clone();
        let ids: Vec<ClaimId> = batch
            .iter()
            .map(|renewal| match renewal {
                Renewal::Hold { id, .. } => *id,
                Renewal::Place(claim) => claim.id,
            })
            .collect();
        self.ask(StepRequest::Renew(batch.to_vec()), move |answer| match answer {
            StepAnswer::Renewed(all) if all.len() == ids.len() => {
                for (id, renewed) in ids.iter().zip(&all) {
                    match renewed {
                        Renewed::Waiting(place) => shared.waits(*id, place.floor),
                        Renewed::Gone(_) => shared.forget(id),
                        Renewed::Held(_) | Renewed::Unknown(_) => {}
                    }
                }
                Some(all)
            }
            _ => None,
        })
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.shared.forget(&leave.id);
        self.ask(StepRequest::Leave(leave.clone()), |answer| match answer {
            StepAnswer::Left(left) => Some(left),
            _ => None,
        })
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        self.shared.forget(&leave.id);
        // If the queue is closed, dropping the acknowledgement reports that.
        let _ = self.queue.put(Job::Step(StepRequest::Leave(leave), ReplyTo::Leave(done)));
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        self.done(StepRequest::Detach(name.clone(), *id))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.done(StepRequest::Resize(name.clone(), capacity))
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.ask(StepRequest::Break(name.clone(), fence, note.clone()), |answer| match answer {
            StepAnswer::Broken(broken) => Some(broken),
            _ => None,
        })
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.ask(StepRequest::Forget(name.clone(), seen.clone()), |answer| match answer {
            StepAnswer::Forgotten(forgotten) => Some(forgotten),
            _ => None,
        })
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.ask(StepRequest::Inspect(scope.clone()), |answer| match answer {
            StepAnswer::Page(page) => Some(page),
            _ => None,
        })
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        let (queue, lifeline) = (self.lifeline.clone(), self.lifeline.clone());
        Some(Arc::new(Http { shared: self.shared.clone(), queue, lifeline }))
    }

    fn health(&self) -> Step<()> {
        self.done(StepRequest::Health)
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        self.ask(StepRequest::Examine, |answer| match answer {
            StepAnswer::Findings(findings) => Some(findings),
            _ => None,
        })
    }

    fn close(&self) -> Step<()> {
        self.shared.close();
        Step::ready(Ok(()))
    }
}
