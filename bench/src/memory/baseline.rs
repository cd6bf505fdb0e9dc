//! The usual hand-written solution: a map of mutexes.

use std::hash::BuildHasher;
use std::sync::{Arc, Mutex, PoisonError};

use hashbrown::HashMap;
use tokio::sync::{Mutex as AsyncMutex, OwnedMutexGuard};

type Shard = Mutex<HashMap<String, Arc<AsyncMutex<()>>, foldhash::fast::RandomState>>;

/// How long a name uses memory.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keep {
    /// While it is held or waited for, as with `memory:`.
    WhileUsed,
    /// For ever. Simpler, but the map grows with every name that was ever used.
    ForEver,
}

/// `tokio::sync::Mutex` by name, in a map of 64 shards.
#[derive(Clone)]
pub(crate) struct Table {
    shards: Arc<[Shard]>,
    hasher: foldhash::fast::RandomState,
    keep: Keep,
}

impl Table {
    pub(crate) fn new(keep: Keep) -> Table {
        let shards = (0..64).map(|_| Shard::default()).collect();
        Table { shards, hasher: foldhash::fast::RandomState::default(), keep }
    }

    pub(crate) async fn lock(&self, name: &str) -> Guard {
        let shard = self.hasher.hash_one(name) as usize % self.shards.len();
        let mutex = {
            let mut names = self.shards[shard].lock().unwrap_or_else(PoisonError::into_inner);
            names.entry_ref(name).or_default().clone()
        };
        let guard = Some(mutex.lock_owned().await);
        let name = (self.keep == Keep::WhileUsed).then(|| name.to_owned());
        Guard { guard, shards: self.shards.clone(), shard, name }
    }
}

pub(crate) struct Guard {
    guard: Option<OwnedMutexGuard<()>>,
    shards: Arc<[Shard]>,
    shard: usize,
    name: Option<String>,
}

impl Drop for Guard {
    fn drop(&mut self) {
        let Some(name) = &self.name else { return };
        let mut names = self.shards[self.shard].lock().unwrap_or_else(PoisonError::into_inner);
        self.guard = None;
        // Only the map refers to it: nobody holds the lock or waits for it.
        if names.get(name.as_str()).is_some_and(|mutex| Arc::strong_count(mutex) == 1) {
            names.remove(name.as_str());
        }
    }
}
