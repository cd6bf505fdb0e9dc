//! Reports of a worker.

use tracing::{Level, enabled, error, info, warn};

use super::TARGET;
use super::groups::group;
use crate::model::claim::{Fence, Holder};
use crate::model::name::Name;

/// The worker that a report is about.
pub(crate) struct Worker<'a> {
    pub(crate) name: &'a Name,
    pub(crate) id: &'a str,
    /// The fence of its term, from the grant until it has been given back.
    pub(crate) term: Option<Fence>,
}

/// An event with the fields that identify the worker, and any others.
macro_rules! about {
    ($level:ident, $event:literal, $worker:expr, $($rest:tt)*) => {{
        let Worker { name, id, term } = $worker;
        $level!(
            target: TARGET,
            event = $event, %name, group = group(name), worker = id, term = term.map(Fence::get),
            $($rest)*
        )
    }};
}

impl Worker<'_> {
    /// It moves from one state to another.
    pub(crate) fn moved(&self, from: &str, to: &str, on: &str) {
        about!(info, "worker.state", self, from, to, on);
    }

    /// Whether there is a listener for debug events.
    pub(crate) fn is_heard() -> bool {
        enabled!(target: TARGET, Level::INFO)
    }

    /// It waits for this leader to end.
    pub(crate) fn stands_by(&self, leader: &Holder) {
        let (details, fence) = (&leader.details, leader.fence.get());
        let value = details.value.as_deref();
        about!(
            info,
            "worker.standby",
            self,
            leader = value,
            blocked_by.owner = details.owner,
            blocked_by.fence = fence
        );
    }

    /// Something failed, and will be tried again.
    pub(crate) fn failed(&self, what: &str, reason: &str) {
        about!(warn, "worker.failed", self, what, reason);
    }

    /// Its work could not be stopped.
    pub(crate) fn stuck(&self, reason: &str) {
        about!(
            error,
            "worker.stuck",
            self,
            reason,
            "the work may still run: its term is not released but left to run out"
        );
    }

    /// Its work ended after its term did.
    pub(crate) fn late(&self) {
        about!(
            error,
            "worker.late",
            self,
            "the work ended after its term, and another worker's may have run at the same time"
        );
    }
}
