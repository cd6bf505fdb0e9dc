//! Whether anybody who could be served is kept waiting.
//!
//! The engine's own view says who holds and who stands in line; the scenario knows which of them are
//! there to react. Units that nobody has in hand while someone waits who would react and fit are free,
//! whatever the engine thinks of them.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure::engine::{FIRST_LIFE, Holder, Moment, PLACE_LIFE, View};
use tenure::ledger::LOOKERS;

/// A fault may be felt so much later: a push or a request that is late.
const FELT: Duration = Duration::from_secs(6);

/// One that asks, by the number that its claims carry.
pub(super) type Asker = u64;

/// What is known about those who ask and hold.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    last: Asker,
    /// Those who ask now, also if they are stopped or dead.
    asking: HashSet<Asker>,
    /// The names and fences of holds that somebody has in hand, or had when it was killed.
    in_hand: HashSet<(String, u64)>,
    /// By name: the first of all who would react, if it could be served.
    waits: HashMap<String, Wait>,
    /// The longest that someone could have been served, and was not.
    pub(super) longest: Duration,
}

/// Since when it could be served, and how many were before it that did not react: now, and in all.
#[derive(Clone, Copy, Debug)]
struct Wait {
    asker: Asker,
    since: Moment,
    absent: u32,
    absent_in_all: u32,
    told: bool,
}

/// What went wrong, when, and what it may cost those who wait.
pub(super) type Mishaps = Vec<(Moment, Duration)>;

impl Liveness {
    pub(super) fn asks(&mut self) -> Asker {
        self.last += 1;
        self.asking.insert(self.last);
        self.last
    }

    pub(super) fn asks_no_more(&mut self, asker: Asker) {
        self.asking.remove(&asker);
    }

    pub(super) fn takes(&mut self, name: &str, fence: u64) {
        self.in_hand.insert((name.to_owned(), fence));
    }

    pub(super) fn leaves(&mut self, name: &str, fence: u64) {
        self.in_hand.remove(&(name.to_owned(), fence));
    }

    /// Looks at a name; what is wrong, if someone was kept waiting for too long. `reacts` says whether
    /// the process of an asker runs, `hidden` how many may have been before it that are not shown any
    /// more: their places have ended, and whoever is behind them finds that out.
    pub(super) fn look(
        &mut self,
        view: &View,
        now: Moment,
        mishaps: &Mishaps,
        hidden: u32,
        reacts: impl Fn(Asker) -> bool,
    ) -> Option<String> {
        let name = view.name.as_str();
        // One that lasts longer than a pushed turn was taken by a process that was stopped right after.
        let in_hand = |it: &&Holder| {
            it.remaining > FIRST_LIFE || self.in_hand.contains(&(name.to_owned(), it.fence.get()))
        };
        let held = view.holders.iter().filter(in_hand);
        let held: u64 = held.map(|it| u64::from(it.weight)).sum();
        let free = u64::from(view.capacity).saturating_sub(held);
        let untaken = view.holders.iter().filter(|it| !in_hand(it));
        let untaken = untaken.map(|it| (&it.details, it.weight));
        let waiting = view.waiters.iter().map(|it| (&it.details, it.weight));
        let line = untaken.chain(waiting).map(|(details, weight)| {
            (details.owner.parse::<Asker>().unwrap_or_default(), u64::from(weight))
        });
        // Whoever does not react is found out only when it is its turn.
        let mut absent = 0_u32;
        let mut first = None;
        for (asker, weight) in line {
            if weight > free {
                break;
            }
            if self.asking.contains(&asker) && reacts(asker) {
                first = Some(asker);
                break;
            }
            absent += 1;
        }
        let Some(asker) = first else {
            self.waits.remove(name);
            return None;
        };
        let new = Wait { asker, since: now, absent: 0, absent_in_all: 0, told: false };
        let wait = self.waits.entry(name.to_owned()).or_insert(new);
        if wait.asker != asker {
            *wait = new;
        }
        wait.absent_in_all += absent.saturating_sub(wait.absent);
        wait.absent = absent;
        let Wait { since, absent_in_all: absent, .. } = *wait;
        let waited = since.until(now);
        self.longest = waited.max(self.longest);
        let met: Vec<_> = mishaps.iter().filter(|(at, _)| *at + FELT > since).collect();
        let (faults, cost) = (met.len(), met.iter().map(|(_, cost)| *cost).sum::<Duration>());
        let allowed = allowed(absent.max(hidden)) + cost;
        let is_new = waited > allowed && !std::mem::replace(&mut wait.told, waited > allowed);
        is_new.then(|| {
            format!(
                "{name}: free for {waited:?}, with {asker} in line, {absent} before it that do not \
                 react, and {faults} faults that explain {cost:?}"
            )
        })
    }
}

/// How long a name may be free with so many in front that do not react: a first life for each, found out by
/// whoever was told to look, which is not at once, and by a clock that may be slow. Where there are more than
/// are told, it can be one that asks of its own accord.
fn allowed(absent: u32) -> Duration {
    let nobody_told = if absent as usize > LOOKERS { PLACE_LIFE / 3 } else { Duration::ZERO };
    (FIRST_LIFE + Duration::from_millis(250)) * (absent + 1) + Duration::from_secs(1) + nobody_told
}
