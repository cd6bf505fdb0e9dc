//! Whether the engine can be reached: how that is found out, and who is told.
//!
//! Only the watchdog detects an outage: it asks over its own connection, from a thread that nobody else can block.
//! A claim that misses an answer reports that ([`Core::doubt`]), and the watchdog asks. During an outage, claims
//! with a policy do not ask the engine; the watchdog does, until there is an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::time::Duration;

use crate::core::handle::Core;
use crate::core::live_claim::LiveClaim;
use crate::model::error::Error;
use crate::model::name::Name;
use crate::model::options::OnOutage;
use crate::observe;

/// How long an engine may be silent before it counts as down, at most: a caller with an outage policy would
/// rather continue than wait.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

impl Core {
    /// How long the engine may be silent before it counts as down.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.engine.profile().patience.min(LONGEST_SILENCE)
    }

    /// Someone missed an answer about this name: the watchdog checks whether the engine can be reached.
    pub(crate) fn doubt(&self, name: &Name) {
        let shard = self.engine.shard(name);
        let news = {
            let mut known = self.outage.known();
            let old = known.down.contains_key(&shard) || known.doubted.contains_key(&shard);
            if !old {
                known.doubted.insert(shard, name.clone());
            }
            !old
        };
        if news {
            self.table.watchdog_signal.notify();
        }
    }

    /// Whether the watchdog has not found out yet.
    pub(crate) fn is_in_doubt(&self, name: &Name) -> bool {
        self.outage.known().doubted.contains_key(&self.engine.shard(name))
    }

    /// Why the part of the engine that keeps the name serves nobody, as the watchdog last heard.
    pub(crate) fn trouble(&self, name: &Name) -> Option<Error> {
        let shard = self.engine.shard(name);
        let known = self.outage.known();
        let down = known.down.get(&shard).map(|(_, error)| error);
        down.or_else(|| known.not_now.get(&shard)).cloned()
    }

    /// The engine cannot be reached. Wakes every waiting claim that has an outage policy.
    pub(crate) fn goes_down(&self, name: &Name, error: &Error) {
        let shard = self.engine.shard(name);
        let now = self.world.now();
        let (begins, news) = {
            let mut known = self.outage.known();
            let begins = known.down.is_empty();
            if begins {
                known.since = now;
            }
            known.doubted.remove(&shard);
            known.not_now.remove(&shard);
            let news = known.down.insert(shard, (name.clone(), error.clone())).is_none();
            self.outage.any.store(true, SeqCst);
            (begins, news)
        };
        if begins {
            observe::engine_down(&self.engine.profile().label, error);
        }
        if !news {
            return;
        }
        for live in self.table.all_that(|live| live.outage() != OnOutage::Closed) {
            if self.engine.shard(&live.claim.name) == shard {
                self.table.tell(&live, |state, _| state.ring());
            }
        }
        self.table.watchdog_signal.notify();
    }

    /// The engine answers again for this shard.
    pub(crate) fn comes_back(&self, shard: u32) {
        let now = self.world.now();
        let over = {
            let mut known = self.outage.known();
            let over = known.down.remove(&shard).is_some() && known.down.is_empty();
            if over {
                self.outage.any.store(false, SeqCst);
            }
            over.then_some(known.since)
        };
        self.outage.is_there(shard, None);
        if let Some(since) = over {
            observe::engine_up(&self.engine.profile().label, now.since(since));
        }
    }

    /// A claim is in line that would rather be told of an outage than wait.
    pub(crate) fn watch_line(&self, live: &Arc<LiveClaim>) {
        if self.outage.stands(live) {
            self.table.watchdog_signal.notify();
        }
    }

    /// A name for each shard in which a claim is in line that would rather be told of an outage.
    pub(crate) fn names_waited_for(&self) -> BTreeMap<u32, Name> {
        let all = self.outage.those_in_line().into_iter().filter(|live| live.ticket().is_some());
        all.map(|live| (self.engine.shard(&live.claim.name), live.claim.name.clone())).collect()
    }
}
