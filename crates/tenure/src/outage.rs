//! Whether the engine can be reached, for those who would rather go on without it, and how they do.
//!
//! An outage is noticed by a claim that is not answered, or by the watchdog, which asks while such claims
//! stand in line. From then on they do not ask; the watchdog does, until there is an answer.
//! Engines whose parts fail apart are told apart by shard.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tracing::Span;

use crate::claim::{Fence, Verdict};
use crate::client::Core;
use crate::error::{Error, ErrorKind, Result};
use crate::hold::Hold;
use crate::moment::Moment;
use crate::name::Name;
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
    down: Mutex<Down>,
}

#[derive(Debug, Default)]
struct Down {
    since: Moment,
    /// The shards that are down, each with a name to ask for.
    shards: BTreeMap<u32, Name>,
}

impl Outage {
    fn down(&self) -> MutexGuard<'_, Down> {
        self.down.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_down(&self, shard: u32) -> bool {
        self.any.load(SeqCst) && self.down().shards.contains_key(&shard)
    }

    /// A name of each shard that is down.
    pub(crate) fn names_down(&self) -> Vec<Name> {
        match self.any.load(SeqCst) {
            true => self.down().shards.values().cloned().collect(),
            false => Vec::new(),
        }
    }

    /// Whether someone may stand in line since this was last [taken back](Outage::nobody_waits).
    pub(crate) fn someone_waits(&self) -> bool {
        self.watched.load(SeqCst)
    }

    pub(crate) fn nobody_waits(&self) {
        self.watched.store(false, SeqCst);
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

    /// The engine cannot be reached. Whoever waits for it and has said what to do then is woken.
    pub(crate) fn goes_down(&self, name: &Name, error: &Error) {
        let shard = self.engine.shard(name);
        let now = self.world.now();
        let (begins, news) = {
            let mut down = self.outage.down();
            let begins = down.shards.is_empty();
            if begins {
                down.since = now;
            }
            let news = down.shards.insert(shard, name.clone()).is_none();
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
            let mut down = self.outage.down();
            let over = down.shards.remove(&shard).is_some() && down.shards.is_empty();
            if over {
                self.outage.any.store(false, SeqCst);
            }
            over.then_some(down.since)
        };
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
        // Above all that this process has seen, and what others were given: as far as clocks agree.
        ask.claim.seen = core.slots.seen().all.max(wall_clock());
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
                core.slots.saw_elsewhere(grant.fence);
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

/// The number that a counter begins with today.
fn wall_clock() -> Fence {
    let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // A clock that is out of its mind must not use up the numbers, of which there are 2^53.
    Fence::new((wall.as_micros() as u64).min(1 << 52))
}
