//! The hold of a process, and the claim that has it now.

use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::{Claim, ClaimId, Details, Fence, Grant, Keep};
use crate::model::moment::Moment;
use crate::model::name::Name;

#[derive(Clone, Debug)]
pub(super) struct Tenancy {
    pub(super) number: u64,
    pub(super) name: Name,
    /// The claim that the engine granted, under whose id the process holds.
    pub(super) carrier: ClaimId,
    /// Until when the engine's answers allow the process to hold.
    pub(super) good_until: Moment,
    /// When the last contact was sent that was answered.
    pub(super) contact_at: Option<Moment>,
    /// A request of the carrier may still arrive.
    pub(super) in_doubt: bool,
    /// Requests of the carrier that were never answered so far.
    pub(super) open: u32,
    /// The carrier's turn was taken, so that it may be extended.
    pub(super) taken: bool,
    /// The claim that has the hold. Without one, the next gets it as soon as the engine has answered.
    pub(super) inside: Option<Inside>,
    /// Since when there is none.
    pub(super) empty_since: Moment,
    /// The fence of the last claim that had the hold, and what it said about itself.
    pub(super) last: Fence,
    pub(super) details: Arc<Details>,
    /// It is not handed over any more.
    pub(super) shut: bool,
    /// It was handed over since the last contact.
    pub(super) active: bool,
    /// The last turn that was given here ran out.
    pub(super) untaken_before: bool,
}

/// The claim that has the hold.
#[derive(Clone, Debug)]
pub(super) struct Inside {
    pub(super) id: ClaimId,
    pub(super) grant: Grant,
    pub(super) details: Arc<Details>,
    /// It has renewed its hold, so its turn was taken.
    pub(super) begun: bool,
    /// Until when it may believe that it holds. It renews that itself.
    pub(super) until: Moment,
}

impl Inside {
    pub(super) fn new(claim: &Claim, grant: Grant) -> Inside {
        let (details, until) = (claim.details.clone(), grant.good_until);
        Inside { id: claim.id, grant, details, begun: false, until }
    }

    pub(super) fn fence(&self) -> Fence {
        self.grant.fence
    }

    pub(super) fn is(&self, id: &ClaimId, fence: Fence) -> bool {
        self.id == *id && self.fence() == fence
    }
}

impl Tenancy {
    pub(super) fn new(
        number: u64,
        claim: &Claim,
        grant: Grant,
        taken: bool,
        open: u32,
        now: Moment,
    ) -> Tenancy {
        Tenancy {
            number,
            name: claim.name.clone(),
            carrier: claim.id,
            good_until: grant.good_until,
            contact_at: None,
            in_doubt: false,
            open,
            taken,
            inside: Some(Inside::new(claim, grant)),
            empty_since: now,
            last: grant.fence,
            details: claim.details.clone(),
            shut: false,
            active: false,
            untaken_before: false,
        }
    }

    pub(super) fn knows(&self, id: &ClaimId) -> bool {
        self.carrier == *id || self.is_inside(id)
    }

    pub(super) fn is_inside(&self, id: &ClaimId) -> bool {
        self.inside.as_ref().is_some_and(|inside| inside.id == *id)
    }

    /// A task proves that it takes its turns.
    pub(super) fn is_taken(&mut self) {
        self.taken = true;
        self.untaken_before = false;
    }

    /// The claim that had the hold has left.
    pub(super) fn empty(&mut self, now: Moment) {
        if let Some(inside) = self.inside.take() {
            self.details = inside.details;
        }
        self.empty_since = now;
    }

    /// Whether the next claim may be given the hold without asking the engine first.
    pub(super) fn may_give(&self, now: Moment, fresh: Duration) -> bool {
        let is_known = |at: Moment| now < at + fresh || at >= self.empty_since;
        now < self.good_until && self.contact_at.is_some_and(is_known)
    }

    /// The engine says that the hold lasts, to a contact sent then.
    pub(super) fn held(&mut self, grant: &Grant, sent: Moment) {
        self.good_until = self.good_until.max(grant.good_until);
        self.contact_at = Some(self.contact_at.map_or(sent, |at| at.max(sent)));
    }

    pub(super) fn keep(&self, ttl: Duration) -> Keep {
        let details = self.inside.as_ref().map_or(&self.details, |inside| &inside.details);
        // A turn that nobody took must not last longer.
        let ttl = if self.taken { ttl } else { Duration::ZERO };
        Keep::new(self.name.clone(), self.carrier, self.last, ttl, details.clone())
    }
}
