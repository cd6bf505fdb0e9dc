//! `Hold`, and the futures that report its state.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::core::guard::{FromHeld, HeldClaim};
use crate::core::handle::Core;
use crate::core::live_claim::{LiveClaim, ObserverId};
use crate::model::claim::{Ended, Fence, Released, Risk};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::options::Protection;
use crate::observe::Subject;

/// A lock that you hold.
///
/// The watchdog renews it in the background. Dropping it queues the release, which is **not
/// immediate**: [`release`](Hold::release) waits until the engine has confirmed it, and returns whether
/// the hold lasted until then. A hold that is leaked (`mem::forget`) is renewed until `max_hold`,
/// or until the process ends.
///
/// Holds are not re-entrant: acquiring a lock that you already hold blocks until its `wait` is over.
#[must_use = "a hold that is dropped at once protects nothing"]
pub struct Hold {
    first: HeldClaim,
    /// The other names of an `all`.
    rest: Vec<HeldClaim>,
}

impl FromHeld for Hold {
    fn from_held(held: HeldClaim) -> Hold {
        Hold { first: held.given(), rest: Vec::new() }
    }
}

impl Hold {
    /// A hold of several names, in the order of the names.
    pub(crate) fn of_all(first: HeldClaim, rest: Vec<HeldClaim>) -> Hold {
        let rest = rest.into_iter().map(HeldClaim::given).collect();
        Hold { first: first.given(), rest }
    }

    /// Hands it over without leaving. Returns whether a request of its claim may still arrive. If it has ended,
    /// it is left like any other.
    pub(crate) fn hand_over(self) -> Result<bool> {
        self.first.detach()
    }

    /// Asks the engine once to extend it to `ttl` from now.
    pub(crate) async fn renew_for(&self, ttl: Duration) -> Result<()> {
        self.first.renew_for(ttl).await
    }

    pub(crate) fn live(&self) -> &Arc<LiveClaim> {
        self.first.live()
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.first.core()
    }

    fn each(&self) -> impl Iterator<Item = &HeldClaim> {
        std::iter::once(&self.first).chain(&self.rest)
    }

    pub(crate) fn claims(&self) -> impl Iterator<Item = &Arc<LiveClaim>> {
        self.each().map(HeldClaim::live)
    }

    /// The name that is held; of several, the first.
    pub fn name(&self) -> &str {
        self.live().claim.name.as_str()
    }

    /// The number of this grant; of several names, that of the first.
    ///
    /// Pass it to the resource that the hold protects, and have that refuse every number lower than the highest it
    /// has seen: then a holder that comes back too late can do no harm. [`fencing`](crate::fencing)
    /// does that for databases, files and HTTP servers. Co-holders of a semaphore cannot be fenced
    /// against each other.
    pub fn fence(&self) -> Fence {
        self.first.fence()
    }

    /// Each name with its fence, in the order of the names.
    pub fn fences(&self) -> impl Iterator<Item = (&str, Fence)> {
        self.each().map(|held| (held.live().claim.name.as_str(), held.fence()))
    }

    /// What protects it; of several names, the weakest protection. Anything but [`Protection::Engine`] means that
    /// the engine could not be reached when the hold was requested, and does not change until it is released.
    pub fn protection(&self) -> Protection {
        let each = self.claims().map(|live| live.protection);
        each.max().unwrap_or(Protection::Engine)
    }

    /// How long it will certainly last by this process's clock, not counting future renewals.
    pub fn remaining(&self) -> Duration {
        if self.core().forked() {
            return Duration::ZERO;
        }
        let now = self.core().world.now();
        self.claims().map(|live| now.until(live.deadline())).min().unwrap_or_default()
    }

    /// Whether it is certainly still held. Only reads the clock.
    pub fn is_live(&self) -> bool {
        self.ended().is_none()
    }

    pub(crate) fn ended(&self) -> Option<Ended> {
        self.core().ended(self.claims())
    }

    /// Yields the reason when the hold ends other than by its release; of several names, when the first of them
    /// does.
    ///
    /// The future is independent of the hold and can be cloned. After the hold is released it never yields.
    pub fn lost(&self) -> Lost {
        let claims = self.claims().cloned().collect();
        Lost { core: self.core().clone(), claims, observer: ObserverId::new() }
    }

    /// Yields the reason when renewals start to fail while the hold is still good, or when it is lost.
    ///
    /// The future is independent of the hold and can be cloned. After the hold is released it never yields.
    pub fn at_risk(&self) -> AtRisk {
        AtRisk { lost: self.lost() }
    }

    /// The state of the hold, for a caller that needs `before` to stop its work in time.
    pub(crate) fn outlook(&self, before: Duration) -> Outlook {
        let lost = self.lost();
        for live in &lost.claims {
            lost.core.table.tell(live, |state, request| state.warn(request, before));
        }
        Outlook { lost, before }
    }

    /// Extends the hold to `ttl` from now. Never shortens it.
    ///
    /// # Errors
    /// `Invalid` if the ttl is out of the engine's range or beyond `max_hold`, `Lost` if the hold has ended,
    /// `Unavailable` if the engine did not answer; the hold is then unchanged.
    ///
    /// # Cancel safety
    /// An extension that was sent may take effect although the future was dropped.
    pub async fn extend(&self, ttl: Duration) -> Result<()> {
        for held in self.each() {
            let extended = held.extend(ttl).await;
            let explain = |error| held.core().explain(error, "extend", &held.live().claim.name);
            extended.map_err(explain)?;
        }
        Ok(())
    }

    /// Releases, and returns whether the hold lasted until then.
    ///
    /// The release is queued at once, and then awaited for at most a second: if the engine does not answer, the
    /// result is [`Released::Unknown`], and the release is sent again in the background for as long as this process
    /// runs. With `hold_for` this returns at once, and the name stays taken for the rest of that time.
    ///
    /// # Cancel safety
    /// The release happens even if the future is dropped.
    pub async fn release(self) -> Result<Released> {
        self.release_and_wait(false).await
    }

    /// The same, but if `to_the_end`, waits for an answer until the hold ends.
    pub(crate) async fn release_and_wait(mut self, to_the_end: bool) -> Result<Released> {
        let core = self.core();
        core.open().map_err(|error| core.explain(error, "release", &self.live().claim.name))?;
        self.first.leave();
        self.rest.iter_mut().for_each(HeldClaim::leave);
        let mut all = Released::InTime;
        for live in self.claims() {
            let released = self.core().answer_to_leave(live, to_the_end).await;
            if all != Released::Late && released != Released::InTime {
                all = released;
            }
        }
        Ok(all)
    }

    /// Runs `work` until it is done or the hold is lost, whichever comes first; then releases.
    pub(crate) async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T> {
        let done = self.until_lost(work(&self)).await?;
        // A late release is logged; the work itself ended in time.
        let _ = self.release().await?;
        Ok(done)
    }

    /// Runs `work` until it is done, or drops it when the hold is lost.
    pub(crate) async fn until_lost<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let mut lost = self.lost();
        let mut work = std::pin::pin!(work);
        let done = poll_fn(|cx| {
            // Check the clock first: after a pause, the work must not run for a single step.
            match Pin::new(&mut lost).poll(cx) {
                Poll::Ready(ended) => Poll::Ready(Err(ended)),
                Poll::Pending => work.as_mut().poll(cx).map(Ok),
            }
        });
        done.await.map_err(|ended| {
            let error = Error::new(ErrorKind::Lost, ended.to_string())
                .next("the work was stopped; guard what it writes with the fence");
            self.core().explain(error, "run", &self.live().claim.name)
        })
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", &self.name())
            .field("fence", &self.fence())
            .field("claim", &self.live().claim.id)
            .finish_non_exhaustive()
    }
}

/// Yields the reason when a hold is lost. See [`Hold::lost`].
#[derive(Clone)]
#[must_use = "futures do nothing unless awaited"]
pub struct Lost {
    core: Arc<Core>,
    claims: Vec<Arc<LiveClaim>>,
    observer: ObserverId,
}

impl Drop for Lost {
    fn drop(&mut self) {
        if !self.core.forked() {
            self.claims.iter().for_each(|live| live.unobserve(&self.observer));
        }
    }
}

impl Lost {
    fn look(&self, cx: &Context<'_>) -> Option<Ended> {
        // Observe before checking, so that nothing in between is missed.
        if !self.core.forked() {
            self.claims.iter().for_each(|live| live.observe(cx, &self.observer));
        }
        self.core.ended(self.claims.iter())
    }
}

impl Future for Lost {
    type Output = Ended;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Ended> {
        self.look(cx).map_or(Poll::Pending, Poll::Ready)
    }
}

impl fmt::Debug for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Lost")
    }
}

/// Yields the reason when a hold is at risk. See [`Hold::at_risk`].
#[derive(Clone, Debug)]
#[must_use = "futures do nothing unless awaited"]
pub struct AtRisk {
    lost: Lost,
}

impl Future for AtRisk {
    type Output = Risk;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Risk> {
        if let Some(ended) = self.lost.look(cx) {
            return Poll::Ready(Risk::Lost(ended));
        }
        let why = self.lost.claims.iter().find_map(|live| live.with(|state, _| state.at_risk()));
        why.map_or(Poll::Pending, |why| Poll::Ready(Risk::clone(&why)))
    }
}

/// Reports the state of a hold repeatedly. See [`Hold::outlook`].
pub(crate) struct Outlook {
    lost: Lost,
    before: Duration,
}

/// The state of a hold.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Standing {
    Good,
    /// Renewals fail.
    AtRisk,
    /// Only as much time is left as stopping takes.
    RunningOut,
    Lost,
}

impl Outlook {
    /// The current state; `cx` is woken when it may have changed. It reads the clock, so it is right even after
    /// the whole machine was paused.
    pub(crate) fn look(&self, cx: &Context<'_>) -> Standing {
        if self.lost.look(cx).is_some() {
            return Standing::Lost;
        }
        let enough = self.lost.core.world.now() + self.before;
        let claims = &self.lost.claims;
        if claims.iter().any(|live| live.deadline() <= enough) {
            Standing::RunningOut
        } else if claims.iter().any(|live| live.with(|state, _| state.at_risk()).is_some()) {
            Standing::AtRisk
        } else {
            Standing::Good
        }
    }
}
