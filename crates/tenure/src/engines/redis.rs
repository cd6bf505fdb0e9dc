//! `redis://`: locks kept by a Redis or Valkey server, alone, behind sentinels or in a cluster.
//!
//! Every step is one script, which applies the ledger's rule atomically and pushes the turn to the next
//! claim. `docs/engines/redis.md` lists the guarantees, what a restart or a failover can cost, and the
//! permissions that the Redis user needs.

mod claims;
mod cluster;
mod config;
mod connection;
mod examine;
mod inspect;
mod numbers;
mod places;
mod protocol;
mod renewal_groups;
mod router;
mod sentinels;
mod setup;
mod shared;
mod steps;
mod turns;

use std::fmt;
use std::sync::{Arc, Weak};

pub use config::{Address, AfterRestart, RedisConfig, Secret, Tls, Topology};
#[cfg(all(feature = "http", feature = "tls"))]
pub(crate) use connection::stream::{Stream, TlsSetup};

use connection::{Outgoing, Purpose, ReplyTo, takeover};
use protocol::answer::{Change, read_change, read_leave};
use protocol::layout::partition;
use protocol::request::Request;
use protocol::resp::Value;
use router::Router;
use shared::Shared;
use steps::{SendOptions, Steps};

use super::convert::Limits;
use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Fence, Forgotten, Keep, Kept, Leave, Left, Note, OnceRecord, Renewal,
    Renewed, Verdict,
};
use crate::model::error::Result;
use crate::model::name::Name;

/// Keeps locks in Redis. [`Tenure::connect`](crate::Tenure::connect) lists the URLs.
pub struct Redis {
    steps: Arc<Steps>,
    pid: u32,
}

impl Redis {
    /// Connects, logs in, and checks that the server can keep locks.
    ///
    /// # Cancel safety
    /// Safe: if the future is dropped, the connection is closed.
    pub async fn connect(config: RedisConfig) -> Result<Redis> {
        let redis = Redis::unconnected(config)?;
        redis.reach().await?;
        Ok(redis)
    }

    /// Connects, unless it is connected already.
    pub(crate) async fn reach(&self) -> Result<()> {
        self.steps.shared.learn_map().await?;
        inspect::health(&self.steps).await
    }

    /// Sets everything up except the connections, which the first call makes.
    pub(crate) fn unconnected(config: RedisConfig) -> Result<Redis> {
        let shared = Arc::new(Shared::new(config)?);
        let redis = Redis::on(shared.clone(), Purpose::Turns);
        shared.set_callers(&redis.steps);
        Ok(redis)
    }

    fn on(shared: Arc<Shared>, purpose: Purpose) -> Redis {
        let router = Router::new(shared.clone(), purpose);
        Redis { steps: Arc::new(Steps { shared, router }), pid: std::process::id() }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A forked child has a copy of the connections. It must not touch them: the parent still uses them.
        if self.pid == std::process::id() {
            self.steps.router.close();
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.steps.shared.setup.profile.label)
    }
}

impl Engine for Redis {
    fn profile(&self) -> &Profile {
        &self.steps.shared.setup.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        self.steps.shared.waiting.attach(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let Shared { setup, waiting, numbers, cluster, .. } = &*self.steps.shared;
        let has_line = claim.may_wait && waiting.places.expect(&claim.name, claim.id);
        let request = match setup.layout.claim(claim, true, has_line, numbers.before(claim)) {
            Ok(request) => request,
            Err(error) => return Step::ready(Err(error)),
        };
        let place = claim.may_wait.then(|| (claim.name.clone(), claim.id));
        let options = SendOptions { place, counted: true, ..SendOptions::default() };
        let (steps, name, ttl) = (self.steps.clone(), claim.name.clone(), claim.ttl);
        let limits = Limits::of(claim);
        if cluster.is_unknown() {
            // The first request to a cluster: find out which server keeps the partition.
            return Step::pending(async move {
                steps.shared.know_map().await?;
                let pending = steps.send(request, options)?;
                let reply = steps.receive_claim(pending, &name, ttl).await?;
                steps.verdict(reply, limits)
            });
        }
        let pending = match self.steps.send(request, options) {
            Ok(pending) => pending,
            Err(error) => return Step::ready(Err(error)),
        };
        Step::pending(async move {
            let reply = steps.receive_claim(pending, &name, ttl).await?;
            steps.verdict(reply, limits)
        })
    }

    fn shard(&self, name: &Name) -> u32 {
        if self.steps.shared.setup.is_cluster { partition(name).into() } else { 0 }
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        self.steps.clone().renew(batch)
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        self.steps.clone().keep(keep)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        let request = self.leave_request(leave);
        let pending = match self.steps.send(request, SendOptions::default()) {
            Ok(pending) => pending,
            Err(error) => return Step::ready(Err(error)),
        };
        let (steps, name) = (self.steps.clone(), leave.name.clone());
        Step::pending(async move {
            let read = |value: &Value, _| read_leave(value);
            Ok(steps.receive(pending, &name, read).await?.answer)
        })
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let request = self.leave_request(&leave);
        if let Ok(connection) = self.steps.router.to(request.partition()) {
            let outgoing = Outgoing::new(ReplyTo::Left(done, leave));
            connection.send(request, Outgoing { lazy: true, ..outgoing });
        }
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        // Nothing to tell the server: it keeps the hold, and this process will never leave it.
        self.steps.shared.waiting.places.forget(name, id);
        Step::ready(Ok(()))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        let request = self.steps.shared.setup.layout.resize(name, capacity);
        self.change(request, name, |change| match change {
            Change::Done => Some(Ok(())),
            Change::Conflict => Some(Err(Claim::capacity_is_fixed())),
            Change::MovedOn => None,
        })
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        let request = self.steps.shared.setup.layout.break_hold(name, fence, note);
        self.change(request, name, |change| match change {
            Change::Done => Some(Ok(Broken::Done)),
            Change::MovedOn => Some(Ok(Broken::MovedOn)),
            Change::Conflict => None,
        })
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        let request = self.steps.shared.setup.layout.forget(name, seen);
        self.change(request, name, |change| match change {
            Change::Done => Some(Ok(Forgotten::Done)),
            Change::MovedOn => Some(Ok(Forgotten::MovedOn)),
            Change::Conflict => None,
        })
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let (steps, scope) = (self.steps.clone(), scope.clone());
        Step::pending(async move { inspect::page(&steps, scope).await })
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        takeover::watch(&self.steps.shared);
        Some(Arc::new(Redis::on(self.steps.shared.clone(), Purpose::Lifeline)))
    }

    fn health(&self) -> Step<()> {
        let steps = self.steps.clone();
        steps.shared.listen();
        Step::pending(async move { inspect::health(&steps).await })
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        let shared = self.steps.shared.clone();
        Step::pending(async move { examine::findings(&shared).await })
    }

    fn close(&self) -> Step<()> {
        self.steps.router.close();
        Step::ready(Ok(()))
    }
}

impl Redis {
    fn leave_request(&self, leave: &Leave) -> Request {
        let shared = &self.steps.shared;
        let has_line = shared.waiting.places.forget(&leave.name, &leave.id);
        shared.setup.layout.leave(leave, has_line)
    }

    /// Sends an operator's step. `means` translates the answer, and returns `None` for an answer that this
    /// step cannot have.
    fn change<T: Send + 'static>(
        &self,
        request: Request,
        name: &Name,
        means: impl Fn(Change) -> Option<Result<T>> + Send + Sync + 'static,
    ) -> Step<T> {
        let pending = match self.steps.send(request, SendOptions::default()) {
            Ok(pending) => pending,
            Err(error) => return Step::ready(Err(error)),
        };
        let (steps, name) = (self.steps.clone(), name.clone());
        Step::pending(async move {
            let read = |value: &Value, _| {
                let (change, marks) = read_change(value)?;
                Some((means(change)?, marks))
            };
            steps.receive(pending, &name, read).await?.answer
        })
    }
}
