//! The state of an outage: which parts of the engine cannot be reached, and what grants holds in its place.
//!
//! The parts of an engine that fail independently are kept apart by shard.

mod fences;
mod stand_in;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use self::fences::LastFences;
pub(crate) use self::stand_in::StandIn;
use crate::core::live_claim::LiveClaim;
use crate::model::claim::{ClaimId, Fence};
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// What is known about an engine that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Whether any shard is down. If not, nobody needs to take the mutex.
    pub(super) any: AtomicBool,
    /// The claims that joined the line and have an outage policy other than *closed*: they must hear of an outage.
    in_line: Mutex<BTreeMap<ClaimId, Weak<LiveClaim>>>,
    known: Mutex<Known>,
    fences: Mutex<LastFences>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) since: Moment,
    /// The shards that are down, each with a name to probe with and the last error.
    pub(super) down: BTreeMap<u32, (Name, Error)>,
    /// The shards that did not answer a request in time, each with a name to probe with.
    pub(super) doubted: BTreeMap<u32, Name>,
    /// The shards that answered that they cannot serve now.
    pub(super) not_now: BTreeMap<u32, Error>,
}

impl Outage {
    pub(super) fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_down(&self, shard: u32) -> bool {
        self.any.load(SeqCst) && self.known().down.contains_key(&shard)
    }

    /// A name in each shard that is down.
    pub(crate) fn names_down(&self) -> Vec<Name> {
        match self.any.load(SeqCst) {
            true => self.known().down.values().map(|(name, _)| name.clone()).collect(),
            false => Vec::new(),
        }
    }

    /// A name in each shard that owes someone an answer.
    pub(crate) fn names_doubted(&self) -> Vec<Name> {
        self.known().doubted.values().cloned().collect()
    }

    /// The shard has answered, and is no longer in doubt. `not_now`: it answered that it cannot serve.
    pub(crate) fn is_there(&self, shard: u32, not_now: Option<Error>) {
        let mut known = self.known();
        known.doubted.remove(&shard);
        match not_now {
            Some(error) => known.not_now.insert(shard, error),
            None => known.not_now.remove(&shard),
        };
    }

    /// A claim is in line that would rather be told of an outage than wait. Returns whether it is the only one.
    pub(crate) fn stands(&self, live: &Arc<LiveClaim>) -> bool {
        let mut in_line = self.in_line();
        let first = in_line.is_empty();
        in_line.insert(live.claim.id, Arc::downgrade(live));
        first
    }

    /// Whether any of these may still wait.
    pub(crate) fn someone_waits(&self) -> bool {
        !self.in_line().is_empty()
    }

    /// Those of them that still wait, in the order of their ids. The others are forgotten.
    pub(crate) fn those_in_line(&self) -> Vec<Arc<LiveClaim>> {
        // Checked after unlocking: the last reference to a claim may be dropped here.
        let all: Vec<_> = self.in_line().iter().map(|(id, live)| (*id, live.upgrade())).collect();
        let waits = |live: &Arc<LiveClaim>| live.with(|state, _| state.is_asking());
        let mut waiting = Vec::new();
        for (id, live) in all {
            match live.filter(waits) {
                Some(live) => waiting.push(live),
                None => drop(self.in_line().remove(&id)),
            }
        }
        waiting
    }

    fn in_line(&self) -> MutexGuard<'_, BTreeMap<ClaimId, Weak<LiveClaim>>> {
        self.in_line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The engine granted this process a hold that has an outage policy.
    pub(crate) fn granted(&self, name: &Name, fence: Fence) {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).granted(name, fence);
    }

    /// The fence for a hold without the engine: see [`LastFences`].
    pub(crate) fn fence_without(&self, name: &Name) -> Fence {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).last(name)
    }
}

/// Whether an error means that the engine is down. One that asks for time can be reached.
pub(crate) fn is_outage(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !error.asks_for_time()
}
