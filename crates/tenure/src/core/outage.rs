//! What is known about an engine that cannot be reached, and what grants holds in its place.
//!
//! Engines whose parts fail apart are told apart by shard.

mod fences;
mod stand_in;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Mutex, MutexGuard, PoisonError};

use self::fences::LastFences;
pub(crate) use self::stand_in::StandIn;
use crate::model::claim::Fence;
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// What is known about an engine that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Whether any shard is down, so that nobody else need take the mutex.
    pub(super) any: AtomicBool,
    /// Someone may stand in line who would rather hear of an outage than wait.
    pub(super) watched: AtomicBool,
    known: Mutex<Known>,
    fences: Mutex<LastFences>,
}

#[derive(Debug, Default)]
pub(super) struct Known {
    pub(super) since: Moment,
    /// The shards that are down, each with a name to ask for and what was heard last.
    pub(super) down: BTreeMap<u32, (Name, Error)>,
    /// The shards that someone missed an answer of, each with a name to ask for.
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

    /// A name of each shard that is down.
    pub(crate) fn names_down(&self) -> Vec<Name> {
        match self.any.load(SeqCst) {
            true => self.known().down.values().map(|(name, _)| name.clone()).collect(),
            false => Vec::new(),
        }
    }

    /// A name of each shard that someone missed an answer of.
    pub(crate) fn names_doubted(&self) -> Vec<Name> {
        self.known().doubted.values().cloned().collect()
    }

    /// The shard has answered, and is not in doubt any more; `not_now`: that it cannot serve.
    pub(crate) fn is_there(&self, shard: u32, not_now: Option<Error>) {
        let mut known = self.known();
        known.doubted.remove(&shard);
        match not_now {
            Some(error) => known.not_now.insert(shard, error),
            None => known.not_now.remove(&shard),
        };
    }

    /// Whether someone may stand in line since this was last [taken back](Outage::nobody_waits).
    pub(crate) fn someone_waits(&self) -> bool {
        self.watched.load(SeqCst)
    }

    pub(crate) fn nobody_waits(&self) {
        self.watched.store(false, SeqCst);
    }

    /// The engine gave this process a hold that has a policy.
    pub(crate) fn granted(&self, name: &Name, fence: Fence) {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).granted(name, fence);
    }

    /// The number for a hold without the engine: see [`LastFences`].
    pub(crate) fn fence_without(&self, name: &Name) -> Fence {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).last(name)
    }
}

/// Whether an error means that the engine is out of reach. One that asks for time is there.
pub(crate) fn is_outage(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !error.asks_for_time()
}
