//! What the core says about itself, through `tracing`. Claim ids appear as fingerprints only.

use std::time::Duration;

use tracing::{debug, error, info, warn};

use crate::claim::{Claim, Ended, Fence, Note};
use crate::name::Name;
use crate::stake::Stake;

/// An event about a hold, with what identifies it and whatever else there is to say.
macro_rules! about {
    ($level:ident, $event:literal, $stake:expr, $($rest:tt)*) => {{
        let claim = &$stake.claim;
        let (owner, meta) = (&claim.details.owner, &claim.details.meta);
        $level!(
            event = $event, name = %claim.name, claim = %claim.id, fence = %$stake.fence(),
            owner, ?meta, $($rest)*
        )
    }};
}

pub(crate) fn granted(stake: &Stake, waited: Duration) {
    let (wait_ms, ttl_ms) = (waited.as_millis() as u64, stake.claim.ttl.as_millis() as u64);
    about!(debug, "lock.granted", stake, wait_ms, ttl_ms);
}

/// This process goes on with a hold that it or another let go of.
pub(crate) fn attached(stake: &Stake) {
    let ttl_ms = stake.claim.ttl.as_millis() as u64;
    about!(debug, "lock.attached", stake, ttl_ms);
}

/// This process has let go of a hold without leaving it.
pub(crate) fn detached(stake: &Stake) {
    let ttl_ms = stake.claim.ttl.as_millis() as u64;
    about!(debug, "lock.detached", stake, ttl_ms);
}

/// It was not granted: it did not want to wait, or its wait is over.
pub(crate) fn busy(stake: &Stake) {
    let Claim { name, id, details, .. } = &stake.claim;
    debug!(event = "lock.busy", %name, claim = %id, owner = details.owner, meta = ?details.meta);
}

/// An operator broke a hold; its holder says for itself what it lost.
pub(crate) fn broken(name: &Name, fence: Fence, note: &Note) {
    warn!(event = "lock.broken", %name, %fence, by = note.by, reason = note.reason);
}

pub(crate) fn released(stake: &Stake) {
    about!(debug, "lock.released", stake,);
}

pub(crate) fn released_late(stake: &Stake) {
    let ttl_ms = stake.claim.ttl.as_millis() as u64;
    about!(
        warn,
        "lock.expired_before_release",
        stake,
        ttl_ms,
        "the hold had ended before it was released: raise the ttl, or find out why renewals failed"
    );
}

/// A candidate leads from now on.
pub(crate) fn elected(stake: &Stake) {
    about!(info, "leader.elected", stake, value = stake.claim.details.value);
}

/// A leader hands over.
pub(crate) fn resigned(stake: &Stake) {
    about!(info, "leader.resigned", stake,);
}

/// The outcome of a once comes after its hold was lost; it counts unless someone began again.
pub(crate) fn settled_late(stake: &Stake) {
    about!(warn, "once.settled_late", stake,);
}

pub(crate) fn at_risk(stake: &Stake, why: &str) {
    about!(warn, "lock.renew_late", stake, reason = why);
}

pub(crate) fn lost(stake: &Stake, ended: &Ended) {
    about!(error, "lock.lost", stake, reason = %ended);
}

/// Something guarded has refused a write. Every enforcer of fences says it here.
pub(crate) fn stale_write(name: &str, offered: Fence, seen: Option<Fence>) {
    let seen = seen.map(Fence::get);
    warn!(
        event = "fence.stale",
        name,
        %offered,
        seen,
        "a write came after its hold had ended, and was refused"
    );
}

/// Whether a request comes too late cannot be told, so it is refused.
#[cfg(feature = "fence-http")]
pub(crate) fn fence_unknown(name: &str, offered: Fence, why: &dyn std::fmt::Display) {
    error!(event = "fence.unknown", name, %offered, reason = %why);
}
