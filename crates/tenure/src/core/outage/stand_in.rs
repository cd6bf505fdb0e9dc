//! Stands in for an engine that cannot be reached: grants everything at once.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use crate::engine::{Ack, Engine, Page, Profile, Scope, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, Fence, Forgotten, Grant, Leave, Left, Note, OnceRecord, Renewal,
    Renewed, Verdict,
};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::World;

/// Keeps the holds that the engine did not grant. Who may have one has been decided before; here they only end by
/// their ttl, as they would on the engine.
pub(crate) struct StandIn {
    world: Arc<dyn World>,
    profile: Profile,
    /// When each hold ends.
    ends: Mutex<HashMap<ClaimId, Moment>>,
}

impl StandIn {
    pub(crate) fn new(world: Arc<dyn World>) -> StandIn {
        StandIn { world, profile: Profile::new("stand-in"), ends: Mutex::default() }
    }

    fn ends(&self) -> MutexGuard<'_, HashMap<ClaimId, Moment>> {
        self.ends.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn renew_one(&self, renewal: &Renewal) -> Renewed {
        let Renewal::Hold { id, fence, ttl, .. } = renewal else {
            return Renewed::Gone(Ended::Expired);
        };
        let now = self.world.now();
        match self.ends().get_mut(id).filter(|ends| now < **ends) {
            Some(ends) => {
                *ends = (*ends).max(now + *ttl);
                Renewed::Held(Grant::new(*fence, now, now.until(*ends), false))
            }
            None => Renewed::Gone(Ended::Expired),
        }
    }

    fn leave_now(&self, leave: &Leave) -> Left {
        let now = self.world.now();
        match self.ends().remove(&leave.id).filter(|ends| now < *ends) {
            Some(_) => Left::Released,
            None => Left::Gone(Ended::Expired),
        }
    }
}

impl Engine for StandIn {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn attach(&self, _: Weak<dyn Turns>) {}

    /// Grants with the fence that the claim carries.
    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let now = self.world.now();
        self.ends().insert(claim.id, now + claim.ttl);
        Step::ready(Ok(Verdict::Granted(Grant::new(claim.seen, now, claim.ttl, false))))
    }

    fn renew(&self, _: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        Step::ready(Ok(batch.iter().map(|renewal| self.renew_one(renewal)).collect()))
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        Step::ready(Ok(self.leave_now(leave)))
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        done.done(Ok(self.leave_now(&leave)));
    }

    // Nobody inspects it.

    fn resize(&self, _: &Name, _: u32) -> Step<()> {
        Step::ready(Ok(()))
    }

    fn break_hold(&self, _: &Name, _: Fence, _: &Note) -> Step<Broken> {
        Step::ready(Ok(Broken::MovedOn))
    }

    fn forget(&self, _: &Name, _: &OnceRecord) -> Step<Forgotten> {
        Step::ready(Ok(Forgotten::MovedOn))
    }

    fn inspect(&self, _: &Scope) -> Step<Page> {
        Step::ready(Ok(Page::default()))
    }

    fn health(&self) -> Step<()> {
        Step::ready(Ok(()))
    }

    fn close(&self) -> Step<()> {
        Step::ready(Ok(()))
    }
}

impl fmt::Debug for StandIn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StandIn")
    }
}
