//! Whether the engine can be reached, for those who would rather go on without it, and how they do.
//!
//! Only the watchdog finds an outage: it asks by a connection of its own, from a thread that nobody else
//! can block. Whoever misses an answer says so ([`Core::doubt`]), and the watchdog asks. From then on claims
//! with a policy do not ask; the watchdog does, until there is an answer.
//! Engines whose parts fail apart are told apart by shard.

mod fences;
mod stand_in;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tracing::Span;

use self::fences::LastFences;
pub(crate) use self::stand_in::StandIn;
use crate::claim::{Fence, Verdict};
use crate::client::{Core, Tenure};
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::moment::Moment;
use crate::name::{Name, Space};
use crate::observe;
use crate::options::OnOutage;
use crate::stake::{Stake, Todo};

/// How long an engine may be silent before it counts as out of reach, at most: whoever asks for a policy
/// would rather go on than wait.
const LONGEST_SILENCE: Duration = Duration::from_secs(1);

/// What is known about an engine that cannot be reached.
#[derive(Debug, Default)]
pub(crate) struct Outage {
    /// Whether any shard is down, so that nobody else need take the mutex.
    any: AtomicBool,
    /// Someone may stand in line who would rather hear of an outage than wait.
    watched: AtomicBool,
    known: Mutex<Known>,
    fences: Mutex<LastFences>,
}

#[derive(Debug, Default)]
struct Known {
    since: Moment,
    /// The shards that are down, each with a name to ask for and what was heard last.
    down: BTreeMap<u32, (Name, Error)>,
    /// The shards that someone missed an answer of, each with a name to ask for.
    doubted: BTreeMap<u32, Name>,
    /// The shards that answered that they cannot serve now.
    not_now: BTreeMap<u32, Error>,
}

impl Outage {
    fn known(&self) -> MutexGuard<'_, Known> {
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
    fn fence_without(&self, name: &Name) -> Fence {
        self.fences.lock().unwrap_or_else(PoisonError::into_inner).last(name)
    }
}

impl Core {
    /// How long the engine may be silent before it is out of reach.
    pub(crate) fn longest_silence(&self) -> Duration {
        self.engine.profile().patience.min(LONGEST_SILENCE)
    }

    /// Whether the name's part of the engine is out of reach.
    pub(crate) fn is_down(&self, name: &Name) -> bool {
        self.outage.any.load(SeqCst) && self.outage.is_down(self.engine.shard(name))
    }

    /// Someone missed an answer for this name: the watchdog finds out whether the engine is there.
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
            self.slots.bell.ring();
        }
    }

    /// Whether the watchdog has not found out yet.
    pub(crate) fn is_in_doubt(&self, name: &Name) -> bool {
        self.outage.known().doubted.contains_key(&self.engine.shard(name))
    }

    /// Why the name's part of the engine serves nobody, as the watchdog heard last.
    pub(crate) fn trouble(&self, name: &Name) -> Option<Error> {
        let shard = self.engine.shard(name);
        let known = self.outage.known();
        let down = known.down.get(&shard).map(|(_, error)| error);
        down.or_else(|| known.not_now.get(&shard)).map(Error::copy)
    }

    /// The engine cannot be reached. Whoever waits for it and has said what to do then is woken.
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
            let news = known.down.insert(shard, (name.clone(), error.copy())).is_none();
            self.outage.any.store(true, SeqCst);
            (begins, news)
        };
        if begins {
            observe::engine_down(&self.engine.profile().label, error);
        }
        if !news {
            return;
        }
        for stake in self.slots.all() {
            let asks = stake.outage() != OnOutage::Closed;
            if asks && self.engine.shard(&stake.claim.name) == shard {
                let mut todo = Todo::default();
                stake.ring(&mut todo);
                self.slots.carry_out(&stake, &mut todo);
            }
        }
        self.slots.bell.ring();
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

    /// Someone stands in line who would rather hear of an outage than wait.
    pub(crate) fn watch_line(&self) {
        if !self.outage.watched.swap(true, SeqCst) {
            self.slots.bell.ring();
        }
    }

    /// For each shard in which someone stands in line who would rather hear of an outage, a name.
    pub(crate) fn names_waited_for(&self) -> BTreeMap<u32, Name> {
        let waits =
            |stake: &Arc<Stake>| stake.outage() != OnOutage::Closed && stake.ticket().is_some();
        let all = self.slots.all().into_iter().filter(waits);
        all.map(|stake| (self.engine.shard(&stake.claim.name), stake.claim.name.clone())).collect()
    }
}

impl Tenure {
    /// Whether the engine can be reached for this name, as far as this connection knows: what
    /// `tenure_engine_up` shows. Nobody is asked; [`health`](Tenure::health) asks.
    pub fn is_reachable(&self, name: impl AsRef<str>) -> bool {
        !self.handle.core.is_down(&Name::unchecked(Space::Lock, name.as_ref()))
    }

    /// Has the watchdog ask whether the engine is there, as if a claim had missed an answer, and returns at
    /// once. A service that must notice an outage while nobody claims anything calls it every few seconds;
    /// `engine.down`, `tenure_engine_up` and [`is_reachable`](Tenure::is_reachable) say what came of it.
    pub fn probe(&self) {
        let core = &self.handle.core;
        if core.open().is_ok() && core.be_watched().is_ok() {
            core.doubt(&Name::unchecked(Space::Lock, "probe"));
        }
    }
}

/// Whether an error means that the engine is out of reach. One that asks for time is there.
pub(crate) fn is_outage(error: &Error) -> bool {
    error.kind() == ErrorKind::Unavailable && !error.asks_for_time()
}

impl Hold {
    /// Goes on without the engine: a hold of its own, with what this claim has in this process's line.
    /// What the engine may have of the claim is left when that is dropped.
    pub(crate) fn fall_back(&self, waited: Duration, acquire: &Span) -> Result<Hold> {
        let (core, stake) = (self.core(), self.stake());
        let mut ask = stake.elsewhere(core.world.mint()?);
        ask.claim.seen = core.outage.fence_without(&stake.claim.name);
        let stake = Arc::new(Stake::new(ask));
        let mut hold = self.beside(stake.clone());
        core.slots.insert(stake.clone());
        // A close that came meanwhile has not seen this one.
        core.open()?;
        match core.stand_in().claim(&stake.claim).at_hand() {
            Ok(Ok(Verdict::Granted(grant))) => {
                if let Some(place) = self.stake().part() {
                    stake.accompany(place);
                }
                hold.start(grant, grant.sent, waited, acquire);
                core.slots.reporter.unprotected(&stake);
                Ok(hold)
            }
            other => {
                let reason = format!("what stands in for the engine has not granted: {other:?}");
                Err(Error::new(ErrorKind::Internal, reason))
            }
        }
    }
}
