//! The measured operations: the same two calls, acquire and release, on tenure and on the naive lock.

use std::sync::Arc;
use std::time::Duration;

use tenure::{Hold, Options, Tenure};
use tenure_measure::clock;
use tenure_measure::figures::Stamps;
use tokio::time::timeout;

use super::naive::{Naive, Trouble};
use crate::engine;
use crate::failure::{Failure, INTERNAL, UNREACHABLE};
use crate::settings::Settings;

/// How long to wait for the last releases.
const FAREWELL: Duration = Duration::from_secs(2);

/// How long after the end a request may still wait.
const PATIENCE: Duration = Duration::from_secs(10);

/// Which lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Which {
    /// This library, on the engine of the URL.
    Tenure,
    /// The lock for comparison.
    Naive,
}

/// A connected lock of either kind. Clones share the connection.
#[derive(Clone)]
pub(super) struct Lock {
    settings: Arc<Settings>,
    kind: Kind,
    ttl: Duration,
}

#[derive(Clone)]
enum Kind {
    Tenure(Tenure),
    Naive(Arc<Naive>),
}

/// A hold of either kind.
pub(super) enum Held {
    /// A hold.
    Hold(Hold),
    /// The owner of a naive lock.
    Owner(String),
}

impl Lock {
    /// Connects. A hold lasts for `ttl` without renewal.
    pub(super) async fn connect(
        which: Which,
        settings: &Arc<Settings>,
        ttl: Duration,
    ) -> Result<Lock, Failure> {
        let kind = match which {
            Which::Tenure => {
                let tenure = engine::connect_alone(settings).await?;
                let ttl = ttl.clamp(tenure.profile().shortest_ttl, tenure.profile().longest_ttl);
                let options = options(&tenure, ttl);
                let tenure = tenure.with_defaults(options);
                Kind::Tenure(tenure.map_err(|error| engine::failure(&error, settings))?)
            }
            Which::Naive => {
                let naive = Naive::connect(settings.address.url()?, ttl).await;
                Kind::Naive(Arc::new(naive.map_err(|trouble| failed(&trouble))?))
            }
        };
        Ok(Lock { settings: settings.clone(), kind, ttl })
    }

    /// A lock for another task. A naive one has its own connection.
    pub(super) async fn another(&self) -> Result<Lock, Failure> {
        match self.kind {
            Kind::Tenure(_) => Ok(self.clone()),
            Kind::Naive(_) => Lock::connect(Which::Naive, &self.settings, self.ttl).await,
        }
    }

    /// The kind of the lock.
    pub(super) fn which(&self) -> Which {
        match self.kind {
            Kind::Tenure(_) => Which::Tenure,
            Kind::Naive(_) => Which::Naive,
        }
    }

    /// The library's handle, if it is that kind.
    pub(super) fn tenure(&self) -> Option<&Tenure> {
        match &self.kind {
            Kind::Tenure(tenure) => Some(tenure),
            Kind::Naive(_) => None,
        }
    }

    pub(super) async fn acquire(&self, name: &str) -> Result<Held, Failure> {
        match &self.kind {
            Kind::Tenure(tenure) => {
                let hold = tenure.mutex(name).acquire().await;
                hold.map(Held::Hold).map_err(|error| engine::failure(&error, &self.settings))
            }
            Kind::Naive(naive) => {
                let owner = naive.acquire(name).await;
                owner.map(Held::Owner).map_err(|trouble| failed(&trouble))
            }
        }
    }

    pub(super) async fn release(&self, name: &str, held: Held) -> Result<(), Failure> {
        match (&self.kind, held) {
            (_, Held::Hold(hold)) => {
                let released = hold.release().await;
                released.map(drop).map_err(|error| engine::failure(&error, &self.settings))
            }
            (Kind::Naive(naive), Held::Owner(owner)) => {
                naive.release(name, &owner).await.map_err(|trouble| failed(&trouble))
            }
            (Kind::Tenure(_), Held::Owner(_)) => {
                Err(Failure::new(INTERNAL, "a mix of locks", "a fault", "please report it"))
            }
        }
    }

    /// Acquires and releases repeatedly until `end`, but at most `most` times.
    ///
    /// A request that still waits at the end is served: the engine would remember a claim that was dropped while its
    /// request was on its way for a minute.
    pub(super) async fn go_round(
        &self,
        name: &str,
        end: u64,
        most: usize,
    ) -> Result<Vec<Stamps>, Failure> {
        let mut all = Vec::new();
        while all.len() < most {
            let asked = clock::now();
            if asked >= end {
                break;
            }
            let held = timeout(clock::until(end) + PATIENCE, self.acquire(name)).await;
            let granted = clock::now();
            let held = held.map_err(|_| stuck())??;
            let leaving = clock::now();
            self.release(name, held).await?;
            all.push(Stamps { task: 0, asked, granted, leaving, left: clock::now() });
        }
        Ok(all)
    }

    /// How many commands the engine has executed, if it can tell.
    pub(super) async fn commands(&self) -> Option<u64> {
        match &self.kind {
            Kind::Tenure(_) => None,
            Kind::Naive(naive) => naive.commands().await.ok(),
        }
    }

    /// Waits until everything has been released.
    pub(super) async fn close(&self) {
        if let Kind::Tenure(tenure) = &self.kind {
            // Releases that are not confirmed by then end with their ttl.
            let _ = timeout(FAREWELL, tenure.close()).await;
        }
    }
}

/// Measures the lock itself, without the defaults of the URL.
fn options(tenure: &Tenure, ttl: Duration) -> Options {
    let mut options = tenure.defaults();
    options.ttl = ttl;
    options.wait = None;
    options.renew = true;
    options.max_hold = None;
    options.hold_for = Duration::ZERO;
    options.max_waiters = None;
    options
}

fn stuck() -> Failure {
    let why = "someone still waits, long after the others have stopped claim";
    Failure::new(INTERNAL, "the line does not move", why, "please report it, with the engine")
}

fn failed(trouble: &Trouble) -> Failure {
    let help = "it is only there to compare with; tenure itself does not need it";
    Failure::new(UNREACHABLE, "the naive lock cannot be measured", trouble.to_string(), help)
}
