//! Checks that no claim that could be served is kept waiting.
//!
//! The engine's own view says who holds and who is in line; the scenario knows which of them still react. Units
//! that no process uses count as free while a claim waits that would react and fit, whatever the engine
//! believes.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tenure::engine::{Details, FIRST_LIFE, Holder, Moment, PLACE_LIFE, View};
use tenure::ledger::LOOKERS;

/// The effect of a fault may be delayed by this much: by a late push or request.
const FELT: Duration = Duration::from_secs(6);

/// A claim, by the number of its worker.
pub(super) type Asker = u64;

/// What is known about claims and holds.
#[derive(Debug, Default)]
pub(super) struct Liveness {
    last: Asker,
    /// The current claims, including those of stopped or dead processes.
    asking: HashSet<Asker>,
    /// The names and fences of holds that a process uses, or used when it was killed.
    in_hand: HashSet<(String, u64)>,
    /// By name: the first claim that would react, if it could be served.
    waits: HashMap<String, Wait>,
    /// By name: who waited at the last check.
    waited: HashMap<String, Vec<Asker>>,
    /// The longest time for which a claim could have been served, and was not.
    pub(super) longest: Duration,
}

/// Since when it could be served, how many unresponsive claims were before it, now and in total, and whether
/// the place of one of them has ended.
#[derive(Clone, Copy, Debug)]
struct Wait {
    asker: Asker,
    since: Moment,
    absent: u32,
    absent_in_all: u32,
    has_ended: bool,
    told: bool,
}

/// A fault, when it happened, and how long it may delay waiters.
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

    /// Checks a name; returns a violation if a claim was kept waiting for too long. `reacts` says whether the
    /// process of a claim runs.
    pub(super) fn look(
        &mut self,
        view: &View,
        now: Moment,
        mishaps: &Mishaps,
        reacts: impl Fn(Asker) -> bool,
    ) -> Option<String> {
        let name = view.name.as_str();
        let (first, absent) = self.first_to_serve(view, &reacts);
        let waiting: Vec<_> = view.waiters.iter().map(|it| asker_of(&it.details)).collect();
        let before = self.waited.insert(name.to_owned(), waiting.clone()).unwrap_or_default();
        let Some(asker) = first else {
            self.waits.remove(name);
            return None;
        };
        let ahead = before.iter().position(|other| *other == asker).unwrap_or_default();
        let has_ended = before[..ahead].iter().any(|other| {
            self.asking.contains(other) && !reacts(*other) && !waiting.contains(other)
        });
        let new =
            Wait { asker, since: now, absent: 0, absent_in_all: 0, has_ended: false, told: false };
        let wait = self.waits.entry(name.to_owned()).or_insert(new);
        if wait.asker != asker {
            *wait = new;
        }
        wait.absent_in_all += absent.saturating_sub(wait.absent);
        wait.absent = absent;
        wait.has_ended |= has_ended;
        let Wait { since, absent_in_all: absent, has_ended, .. } = *wait;
        let waited = since.until(now);
        self.longest = waited.max(self.longest);
        let met: Vec<_> = mishaps.iter().filter(|(at, _)| *at + FELT > since).collect();
        let (faults, cost) = (met.len(), met.iter().map(|(_, cost)| *cost).sum::<Duration>());
        let allowed = allowed(absent, has_ended, view.capacity) + cost;
        let is_new = waited > allowed && !std::mem::replace(&mut wait.told, waited > allowed);
        is_new.then(|| {
            format!(
                "{name}: free for {waited:?}, with {asker} in line, {absent} before it that do not \
                 react, and {faults} faults that explain {cost:?}"
            )
        })
    }

    /// The first in line that would react and fit, and how many unresponsive claims are before it. Units that
    /// no process uses count as free.
    fn first_to_serve(&self, view: &View, reacts: impl Fn(Asker) -> bool) -> (Option<Asker>, u32) {
        let name = view.name.as_str();
        // A hold that lasts longer than a pushed turn was started by a process that was stopped right after.
        let in_hand = |it: &&Holder| {
            // It may have been handed over within its process since the engine heard of it last.
            let later = |(of, fence): &(String, u64)| {
                of == name && *fence >= it.fence.get() && view.capacity == 1
            };
            it.remaining > FIRST_LIFE
                || self.in_hand.contains(&(name.to_owned(), it.fence.get()))
                || self.in_hand.iter().any(later)
        };
        let held: u64 = view.holders.iter().filter(in_hand).map(|it| u64::from(it.weight)).sum();
        let free = u64::from(view.capacity).saturating_sub(held);
        let untaken = view.holders.iter().filter(|it| !in_hand(it));
        let untaken = untaken.map(|it| (asker_of(&it.details), it.weight));
        let waiting = view.waiters.iter().map(|it| (asker_of(&it.details), it.weight));
        // An unresponsive claim is detected only when it is its turn.
        let mut absent = 0;
        for (asker, weight) in untaken.chain(waiting) {
            if u64::from(weight) > free {
                break;
            }
            if self.asking.contains(&asker) && reacts(asker) {
                return (Some(asker), absent);
            }
            absent += 1;
        }
        (None, absent)
    }
}

fn asker_of(details: &Details) -> Asker {
    details.owner.parse().unwrap_or_default()
}

/// How long a name may be free with this many unresponsive claims in front: a first life for each. The claims
/// that were told detect it, not at once, and by a clock that may be slow. If there are more than are told, a
/// claim may have to look by itself.
///
/// If a claim would fit but is delayed by a heavier one, it looks every first life, or more rarely if more
/// claims are before it: nobody is told that the other does not react, or that its place has ended.
fn allowed(absent: u32, has_ended: bool, capacity: u32) -> Duration {
    let nobody_told = if absent as usize >= LOOKERS { PLACE_LIFE / 3 } else { Duration::ZERO };
    let held_up = match (capacity, has_ended) {
        (1, _) => Duration::ZERO,
        (_, false) => FIRST_LIFE * absent.clamp(1, 10),
        (_, true) => FIRST_LIFE * 10,
    };
    let each = FIRST_LIFE + Duration::from_millis(250);
    each * (absent + 1) + Duration::from_secs(1) + nobody_told + held_up
}
