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

/// A worker goes from one state to another.
pub(crate) fn worker(about: &Worker<'_>, from: &str, to: &str, on: &str) {
    let Worker { name, id, .. } = about;
    let term = about.term.map(Fence::get);
    info!(event = "worker.state", %name, worker = id, term, from, to, on);
}

/// A worker's work could not be started, or it could not campaign: it tries again.
pub(crate) fn worker_failed(about: &Worker<'_>, what: &str, reason: &str) {
    let Worker { name, id, .. } = about;
    let term = about.term.map(Fence::get);
    warn!(event = "worker.failed", %name, worker = id, term, what, reason);
}

/// A worker's work could not be stopped.
pub(crate) fn worker_stuck(about: &Worker<'_>, reason: &str) {
    let Worker { name, id, .. } = about;
    let term = about.term.map(Fence::get);
    error!(
        event = "worker.stuck", %name, worker = id, term, reason,
        "the work may still run: its term is not released but left to run out"
    );
}

/// A worker's work ended after its term had.
pub(crate) fn worker_late(about: &Worker<'_>) {
    let Worker { name, id, .. } = about;
    let term = about.term.map(Fence::get);
    error!(
        event = "worker.late", %name, worker = id, term,
        "the work ended after its term, and another's may have run beside it"
    );
}

/// Whom an event is about.
pub(crate) struct Worker<'a> {
    pub(crate) name: &'a Name,
    pub(crate) id: &'a str,
    /// The number of the term, while it leads.
    pub(crate) term: Option<Fence>,
}
