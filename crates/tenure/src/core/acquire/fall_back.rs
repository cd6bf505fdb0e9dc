//! How a claim continues without the engine.

use std::sync::Arc;
use std::time::Duration;

use tracing::Span;

use crate::core::guard::{ClaimGuard, HeldClaim};
use crate::core::live_claim::LiveClaim;
use crate::model::claim::Verdict;
use crate::model::error::{Error, ErrorKind, Result};

impl ClaimGuard {
    /// Continues without the engine: makes a new hold, which takes over the claim's place in the local line.
    /// Whatever the engine may have of the claim is left when this guard is dropped.
    pub(crate) fn fall_back(&self, waited: Duration, acquire: &Span) -> Result<HeldClaim> {
        let (core, live) = (self.core(), self.live());
        let mut request = live.elsewhere(core.world.mint()?);
        request.claim.seen = core.outage.fence_without(&live.claim.name);
        let live = Arc::new(LiveClaim::new(request));
        let guard = self.beside(live.clone());
        core.table.insert(live.clone());
        // A concurrent close may have missed this claim.
        core.open()?;
        match core.stand_in().claim(&live.claim).at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                if let Some(place) = self.live().take_local_place() {
                    live.keep_local_place(place);
                }
                guard.start(&grant, grant.sent, waited, acquire);
                core.table.reporter.unprotected(&*live);
                Ok(guard.held(grant.fence))
            }
            other => {
                let reason = format!("the stand-in for the engine has not granted: {other:?}");
                Err(Error::new(ErrorKind::Internal, reason))
            }
        }
    }
}
