//! How a claim goes on without the engine.

use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::core::claim_state::Stake;
use crate::core::hold::Hold;
use crate::model::claim::Verdict;
use crate::model::error::{Error, ErrorKind, Result};

impl Hold {
    /// Goes on without the engine: a hold of its own, with what this claim has in this process's line.
    /// What the engine may have of the claim is left when that is dropped.
    pub(crate) fn fall_back(&self, waited: Duration, acquire: &Span) -> Result<Hold> {
        let (core, stake) = (self.core(), self.stake());
        let mut ask = stake.elsewhere(core.world.mint()?);
        ask.claim.seen = core.outage.fence_without(&stake.claim.name);
        let stake = Arc::new(Stake::new(ask));
        let mut hold = self.beside(stake.clone());
        core.slots.insert(stake.clone());
        // A close that came meanwhile has not seen this one.
        core.open()?;
        match core.stand_in().claim(&stake.claim).at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                if let Some(place) = self.stake().part() {
                    stake.accompany(place);
                }
                hold.start(grant, grant.sent, waited, acquire);
                core.slots.reporter.unprotected(&stake);
                Ok(hold)
            }
            other => {
                let reason = format!("what stands in for the engine has not granted: {other:?}");
                Err(Error::new(ErrorKind::Internal, reason))
            }
        }
    }
}
