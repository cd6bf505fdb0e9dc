//! The guards that leave a claim when they are dropped.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::core::handle::{Core, Handle};
use crate::core::live_claim::{LiveClaim, ObserverId};
use crate::model::claim::{Ended, Fence, Grant, Released, Renewal, Renewed};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::options::{OnOutage, Protection, check_ttl};
use crate::observe::{HoldEnd, Reporter, Subject};

/// Leaves its claim when it is dropped. It exists before the request is sent, so a future that is dropped at any
/// await point leaves nothing behind.
pub(crate) struct ClaimGuard {
    handle: Arc<Handle>,
    live: Arc<LiveClaim>,
    /// Whether the caller has the hold: `hold_for` applies only to holds that someone had.
    given: bool,
    /// Its release is under way, or another guard has the claim: dropping this one does nothing.
    left: bool,
}

impl ClaimGuard {
    pub(crate) fn new(handle: Arc<Handle>, live: Arc<LiveClaim>) -> ClaimGuard {
        ClaimGuard { handle, live, given: false, left: false }
    }

    /// A guard for another claim of the same caller.
    pub(crate) fn beside(&self, live: Arc<LiveClaim>) -> ClaimGuard {
        ClaimGuard::new(self.handle.clone(), live)
    }

    pub(crate) fn live(&self) -> &Arc<LiveClaim> {
        &self.live
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        &self.handle.core
    }

    /// The claim was granted after waiting this long, in this span: it now holds.
    pub(crate) fn start(&self, grant: &Grant, now: Moment, waited: Duration, acquire: &Span) {
        let say = |reporter: &Reporter, live: &LiveClaim| reporter.granted(live, waited, acquire);
        self.start_and_say(grant, now, acquire, say);
    }

    fn start_and_say(
        &self,
        grant: &Grant,
        now: Moment,
        acquire: &Span,
        say: impl FnOnce(&Reporter, &LiveClaim),
    ) {
        let (core, live) = (self.core(), &self.live);
        let table = &core.table;
        table.saw(grant.fence);
        if live.outage() != OnOutage::Closed && live.protection == Protection::Engine {
            core.outage.granted(&live.claim.name, grant.fence);
        }
        let holding = table.reporter.holding(&live.claim, grant, acquire);
        let (look_at, work) = live.start(grant, now, holding);
        // Before reporting, because a listener may take its time.
        table.schedule(live, look_at);
        say(&table.reporter, live);
        if let Some(work) = work {
            table.carry_out(live, work);
        }
    }

    /// Moves the claim into a new guard; dropping this one then does nothing.
    pub(crate) fn take(&mut self) -> ClaimGuard {
        let (handle, live) = (self.handle.clone(), self.live.clone());
        ClaimGuard {
            handle,
            live,
            given: self.given,
            left: std::mem::replace(&mut self.left, true),
        }
    }

    /// Turns the guard into that of a hold, which was [started](ClaimGuard::start) with this fence.
    pub(crate) fn held(self, fence: Fence) -> HeldClaim {
        HeldClaim { guard: self, fence }
    }
}

impl Drop for ClaimGuard {
    fn drop(&mut self) {
        let core = &self.handle.core;
        if !self.left && !core.forked() {
            core.leave(&self.live, self.given);
        }
    }
}

/// A claim that was granted. Dropping it releases.
pub(crate) struct HeldClaim {
    guard: ClaimGuard,
    fence: Fence,
}

/// What a held claim becomes for the caller that asked for it.
pub(crate) trait FromHeld {
    fn from_held(held: HeldClaim) -> Self;
}

impl FromHeld for HeldClaim {
    fn from_held(held: HeldClaim) -> HeldClaim {
        held
    }
}

impl HeldClaim {
    /// Continues a hold with this id, which the engine says exists.
    pub(crate) fn attached(
        handle: Arc<Handle>,
        live: Arc<LiveClaim>,
        grant: &Grant,
        now: Moment,
    ) -> HeldClaim {
        let guard = ClaimGuard::new(handle, live);
        guard.live.with(|state, _| state.attached());
        let say = |reporter: &Reporter, live: &LiveClaim| reporter.attached(live);
        guard.start_and_say(grant, now, &Span::none(), say);
        guard.held(grant.fence).given()
    }

    /// The caller now has it.
    pub(crate) fn given(mut self) -> HeldClaim {
        self.guard.given = true;
        self
    }

    /// Takes it back before the caller has it.
    pub(crate) fn not_given(mut self) -> HeldClaim {
        self.guard.given = false;
        self
    }

    pub(crate) fn fence(&self) -> Fence {
        self.fence
    }

    pub(crate) fn live(&self) -> &Arc<LiveClaim> {
        &self.guard.live
    }

    pub(crate) fn core(&self) -> &Arc<Core> {
        self.guard.core()
    }

    /// Queues its release.
    pub(crate) fn leave(&mut self) {
        self.guard.core().leave(&self.guard.live, true);
        self.guard.left = true;
    }

    /// Hands it over without leaving. Returns whether a request of its claim may still arrive. If it has ended,
    /// it is left like any other.
    pub(crate) fn detach(mut self) -> Result<bool> {
        let (core, live) = (self.core(), self.live());
        if core.forked() {
            return Err(Error::closed());
        }
        let (forget_at, in_doubt) = live.detach(core.world.now())?;
        core.table.schedule(live, forget_at);
        let end = HoldEnd { claim: live, holding: live.take_holding(), world: &core.world };
        core.table.reporter.detached(end);
        self.guard.left = true;
        Ok(in_doubt)
    }

    /// Extends it to `ttl` from now, if its terms allow that.
    pub(crate) async fn extend(&self, ttl: Duration) -> Result<()> {
        let (core, live) = (self.core(), self.live());
        core.open()?;
        check_ttl(ttl, core.engine.profile())?;
        let now = core.world.now();
        if let Some(ended) = live.ended(now) {
            return Err(ended.into());
        }
        let since = live.with(|state, _| state.held_since());
        if let (Some(max_hold), Some(since)) = (live.terms.max_hold, since)
            && now + ttl > since + max_hold
        {
            let reason = format!("{ttl:?} from now is beyond max_hold {max_hold:?}");
            return Err(Error::invalid(reason).next("raise max_hold, or extend by less"));
        }
        self.renew_for(ttl).await
    }

    /// Asks the engine once to extend it to `ttl` from now.
    pub(crate) async fn renew_for(&self, ttl: Duration) -> Result<()> {
        let (core, live) = (self.core(), self.live());
        let (name, id) = (live.claim.name.clone(), live.claim.id);
        let renewal = Renewal::Hold { name, id, fence: self.fence, ttl };
        let engine = core.engine_of(live);
        let mut answers = engine.renew(engine.shard(&live.claim.name), &[renewal]).await?;
        let answer = answers.pop().ok_or_else(|| Error::new(ErrorKind::Internal, "no answer"))?;
        let outcome = match &answer {
            Renewed::Gone(ended) => Err(ended.clone().into()),
            Renewed::Unknown(error) => Err(Error::new(error.kind(), error.to_string())),
            Renewed::Held(_) | Renewed::Waiting(_) => Ok(()),
        };
        let now = core.world.now();
        core.table.tell(live, |state, request| state.extended(request, answer, now));
        outcome
    }
}

impl Core {
    /// Waits for the answer to a leave: to the end of the hold if `to_the_end`, otherwise as long as callers do.
    pub(crate) async fn answer_to_leave(
        &self,
        live: &Arc<LiveClaim>,
        to_the_end: bool,
    ) -> Released {
        let observer = ObserverId::new();
        let released = poll_fn(|cx| live.poll_released(cx, &observer, to_the_end)).await;
        if released == Released::Unknown {
            self.doubt(&live.claim.name);
            if live.fence() != Fence::default() {
                self.table.reporter.release_unanswered(live);
            }
        }
        released
    }

    /// The first end that is known or that the clock shows. A forked child holds nothing.
    pub(crate) fn ended<'a>(
        &self,
        mut claims: impl Iterator<Item = &'a Arc<LiveClaim>>,
    ) -> Option<Ended> {
        if self.forked() {
            return Some(Ended::Closed);
        }
        let now = self.world.now();
        claims.find_map(|live| live.ended(now))
    }
}
