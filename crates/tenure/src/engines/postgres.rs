//! `postgres://`: locks kept in a Postgres database.
//!
//! Every step is one call of a function and one commit: `sql/line.sql` is the ledger's rule, `sql/steps.sql` what is
//! called. `docs/engines/postgres.md` lists the guarantees, what a crash or a failover can cost, and the rights that
//! the role needs.

mod answers;
mod config;
mod errors;
mod examine;
mod guards;
mod leaves;
mod link;
mod links;
mod listener;
mod places;
mod pushes;
mod renewals;
mod row;
mod setup;
mod shared;
mod statements;
mod sweeper;
#[cfg(feature = "tls")]
mod tls;
#[cfg(not(feature = "tls"))]
#[path = "postgres/no_tls.rs"]
mod tls;

use std::fmt;
use std::sync::{Arc, Weak};

use tokio::sync::oneshot;

pub use config::{Listen, PostgresConfig};

use answers::{StepAnswer, read_page};
use link::{Link, Reply};
use links::Links;
use shared::Shared;
use statements::Statement;

use super::convert::{self, Limits};
use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns};
use crate::ledger::Answer;
use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, Fence, Forgotten, Leave, Left, Note, OnceRecord, Renewal,
    Renewed, Verdict,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::system;
use crate::world::{SystemWorld, World};

/// How often a claim that waits is sent again until somebody listens for its turn. Each takes a second at most.
const TRIES_TO_LISTEN: u8 = 5;

/// Keeps locks in Postgres. [`Tenure::connect`](crate::Tenure::connect) lists the URLs.
pub struct Postgres {
    shared: Arc<Shared>,
    links: Arc<Links>,
    /// Where holds are renewed. On the watchdog's side a connection of its own, over which nothing goes that may have to
    /// wait for the row of a name.
    renewals: Link,
    is_lifeline: bool,
    generation: u64,
}

impl Postgres {
    /// Connects, and checks that the tables are there.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    pub async fn connect(config: PostgresConfig) -> Result<Postgres> {
        let postgres = Postgres::unconnected(config)?;
        postgres.reach().await?;
        Ok(postgres)
    }

    /// Connects, unless it is connected already.
    pub(crate) async fn reach(&self) -> Result<()> {
        if self.shared.config.setup {
            let (tell, told) = oneshot::channel();
            let shared = self.shared.clone();
            self.shared.spawn(async move {
                let _ = tell.send(setup::run(&shared.config, &shared.tls).await);
            });
            told.await.unwrap_or_else(|_| Err(Error::closed()))?;
        }
        self.health().await
    }

    /// Sets everything up except the connections, which the first call makes.
    pub(crate) fn unconnected(config: PostgresConfig) -> Result<Postgres> {
        let (shared, asks) = Shared::start(config)?;
        let links = Links::new(&shared, shared.config.connections);
        let hearing = shared.hearing_link();
        if shared.config.listen_at.is_none() {
            links.begin_with(hearing.clone());
        }
        shared.hear_over(hearing, asks);
        sweeper::start(&links);
        let renewals = links.at(0).clone();
        Ok(Postgres {
            shared,
            links,
            renewals,
            is_lifeline: false,
            generation: system::generation(),
        })
    }

    fn leave_statement(&self, leave: &Leave) -> Statement {
        self.shared.places.forget(&leave.id);
        Statement::leave(leave, self.shared.process)
    }

    fn send_claim(
        &self,
        claim: &Claim,
        in_hand: bool,
    ) -> oneshot::Receiver<Result<(StepAnswer, Moment)>> {
        let (tell, told) = oneshot::channel();
        self.links.claim(claim.clone(), in_hand, TRIES_TO_LISTEN, tell);
        told
    }

    /// Sends an operator's step. `means` translates its code, and returns `None` for one that it cannot have.
    fn change<T: Send + 'static>(
        &self,
        name: &Name,
        statement: Statement,
        means: impl FnOnce(char) -> Option<Result<T>> + Send + 'static,
    ) -> Step<T> {
        let told = self.links.step(name, statement, |answer| answer);
        Step::pending(async move {
            let (answer, _) = told.await.unwrap_or_else(|_| Err(Error::closed()))?;
            let wrong = || strange("the server's answer does not match the step");
            means(answer.code).unwrap_or_else(|| Err(wrong()))
        })
    }
}

fn ask(link: &Link, statement: Statement) -> oneshot::Receiver<Reply> {
    let (tell, told) = oneshot::channel();
    link.send(statement, move |reply| {
        let _ = tell.send(reply);
    });
    told
}

fn strange(reason: &'static str) -> Error {
    Error::new(ErrorKind::Internal, reason).in_doubt()
}

impl Engine for Postgres {
    fn profile(&self) -> &Profile {
        &self.shared.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        self.shared.attach(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        self.shared.places.expect(claim.id);
        self.shared.leaves.forget(&claim.id);
        let (told, limits) = (self.send_claim(claim, true), Limits::of(claim));
        Step::pending(async move {
            let (answer, sent) = told.await.unwrap_or_else(|_| Err(Error::closed()))?;
            convert::verdict(answer.answer, limits, sent, || answer.holder)
        })
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        renewals::send(&self.links, &self.renewals, batch)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        let now = SystemWorld.now();
        let told = self.shared.leaves.shares(leave, now).unwrap_or_else(|| {
            let statement = self.leave_statement(leave);
            let on_its_way = self.shared.leaves.send(leave, now);
            self.links.step(&leave.name, statement, move |answer| {
                let left = answer.map(|(answer, _)| left(answer));
                on_its_way.answered(&left);
                left
            })
        });
        Step::pending(async move { told.await.unwrap_or_else(|_| Err(Error::closed())) })
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let statement = self.leave_statement(&leave);
        let on_its_way = self.shared.leaves.send(&leave, SystemWorld.now());
        // Nobody awaits this receiver: the answer goes to `done`.
        drop(self.links.step(&leave.name, statement, move |answer| {
            let left = answer.map(|(answer, _)| left(answer));
            on_its_way.answered(&left);
            match left {
                Ok(left) => done.done(Ok(left)),
                // Dropped without an answer: the watchdog tries again.
                Err(_) => drop(done),
            }
        }));
    }

    fn detach(&self, _name: &Name, id: &ClaimId) -> Step<()> {
        // Nothing to tell the server: it keeps the hold, and this process will never leave it.
        self.shared.places.forget(id);
        Step::ready(Ok(()))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.change(name, Statement::resize(name, capacity), |code| match code {
            'D' => Some(Ok(())),
            'C' => Some(Err(Claim::capacity_is_fixed())),
            _ => None,
        })
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.change(name, Statement::break_hold(name, fence, note), |code| match code {
            'D' => Some(Ok(Broken::Done)),
            'M' => Some(Ok(Broken::MovedOn)),
            _ => None,
        })
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.change(name, Statement::forget(name, seen), |code| match code {
            'D' => Some(Ok(Forgotten::Done)),
            'M' => Some(Ok(Forgotten::MovedOn)),
            _ => None,
        })
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let link = match scope {
            // Behind every step that this process has sent for the name.
            Scope::Name(name) => self.links.of(name),
            Scope::Prefix { .. } => self.links.at(0),
        };
        let told = ask(link, Statement::view(scope));
        let scope = scope.clone();
        Step::pending(async move {
            let (rows, _) = told.await.unwrap_or_else(|_| Err(Error::closed()))?;
            read_page(&rows, &scope)
        })
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        let (shared, links) = (self.shared.clone(), Links::new(&self.shared, 1));
        let renewals = shared.link();
        // Now: once there are holds to renew, the server may have no room for another session.
        drop(ask(&renewals, Statement::plain("SELECT 1")));
        let generation = self.generation;
        Some(Arc::new(Postgres { shared, links, renewals, is_lifeline: true, generation }))
    }

    fn health(&self) -> Step<()> {
        let told = ask(&self.renewals, Statement::ready());
        // Steps that were sent before over the other connections have ended as well when this has.
        let others = self.links.opened().skip(usize::from(!self.is_lifeline));
        let others: Vec<_> = others.map(|link| ask(link, Statement::plain("SELECT 1"))).collect();
        let shared = self.shared.clone();
        Step::pending(async move {
            let (rows, _) = told.await.unwrap_or_else(|_| Err(Error::closed()))?;
            let version: Option<i32> = rows.first().and_then(|row| row.try_get(0).ok());
            if version != Some(setup::LAYOUT) {
                return Err(errors::other_version(version));
            }
            for told in others {
                let _ = told.await;
            }
            shared.flush().await;
            Ok(())
        })
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        let shared = self.shared.clone();
        let (tell, told) = oneshot::channel();
        self.shared.spawn(async move {
            let _ = tell.send(examine::findings(&shared).await);
        });
        Step::pending(async move { told.await.unwrap_or_else(|_| Err(Error::closed())) })
    }

    fn close(&self) -> Step<()> {
        if !self.is_lifeline {
            self.shared.close();
        }
        Step::ready(Ok(()))
    }
}

fn left(answer: StepAnswer) -> Left {
    match (answer.code, answer.answer) {
        ('R', _) => Left::Released,
        ('Q', _) => Left::Quit,
        (_, Answer::Gone(ended)) => Left::Gone(ended),
        _ => Left::Gone(Ended::Expired),
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        // After a fork the thread is the parent's, and so are its connections.
        if !self.is_lifeline && self.generation == system::generation() {
            self.shared.close();
        }
    }
}

impl fmt::Debug for Postgres {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Postgres({})", self.shared.profile.label)
    }
}
