//! What the core says about itself, through `tracing`. Claim ids appear as fingerprints only.

use std::time::Duration;

use tracing::{debug, error, warn};

use crate::claim::{Ended, Fence};
use crate::stake::Stake;

pub(crate) fn granted(stake: &Stake, fence: Fence, waited: Duration) {
    let claim = &stake.claim;
    let wait_ms = waited.as_millis() as u64;
    let (owner, meta) = (&claim.details.owner, &claim.details.meta);
    debug!(event = "lock.granted", name = %claim.name, claim = %claim.id, %fence, owner, ?meta, wait_ms);
}

pub(crate) fn released(stake: &Stake) {
    let claim = &stake.claim;
    let (owner, meta) = (&claim.details.owner, &claim.details.meta);
    debug!(event = "lock.released", name = %claim.name, claim = %claim.id, owner, ?meta);
}

pub(crate) fn released_late(stake: &Stake) {
    let claim = &stake.claim;
    let (owner, meta, ttl_ms) =
        (&claim.details.owner, &claim.details.meta, claim.ttl.as_millis() as u64);
    warn!(
        event = "lock.expired_before_release",
        name = %claim.name, claim = %claim.id, owner, ?meta, ttl_ms,
        "the hold had ended before it was released: raise the ttl, or find out why renewals failed"
    );
}

pub(crate) fn at_risk(stake: &Stake, why: &str) {
    let claim = &stake.claim;
    let (owner, meta) = (&claim.details.owner, &claim.details.meta);
    warn!(event = "lock.renew_late", name = %claim.name, claim = %claim.id, owner, ?meta, reason = why);
}

pub(crate) fn lost(stake: &Stake, ended: &Ended) {
    let claim = &stake.claim;
    let (owner, meta) = (&claim.details.owner, &claim.details.meta);
    error!(event = "lock.lost", name = %claim.name, claim = %claim.id, owner, ?meta, reason = %ended);
}
