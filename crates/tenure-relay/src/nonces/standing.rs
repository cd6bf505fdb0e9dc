use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tenure::{Fence, Holder};

use crate::in_flight::{Seen, next, said, seen};

/// The key of a unit that publishes a count, and so covers all nonces below it.
pub(super) const COUNT: &str = "count";

/// The state of an account's nonces at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// How many transactions the chain has, as far as known: the highest count that this process has seen now, or
    /// another one recently.
    pub count: u64,
    /// The nonces from `count` on that are taken, each listed once.
    pub in_flight: Vec<Seen>,
    /// The units behind them; one nonce may have several.
    units: Vec<Seen>,
    /// Units of transactions that no node knows and whose senders are gone.
    given_up: BTreeSet<Fence>,
}

impl Standing {
    /// From the units of the set, and the count that was read from the chain after them.
    pub(super) fn new(units: &[Holder], counted: u64) -> Standing {
        let floors = units.iter().filter_map(|unit| said(unit, COUNT)?.parse().ok());
        let count = floors.fold(counted, u64::max);
        let above = |seen: &Seen| seen.nonce >= count;
        let units: Vec<Seen> = units.iter().filter_map(seen).filter(above).collect();
        Standing { count, in_flight: by_nonce(&units), units, given_up: BTreeSet::new() }
    }

    /// The transactions whose senders are gone or have given them up: those with a hash but without the unit of
    /// the process that took the nonce. By nonce.
    pub(super) fn orphans(&self) -> Vec<Seen> {
        let had = |nonce| self.units.iter().any(|unit| unit.nonce == nonce && unit.hash.is_none());
        let mut orphans: Vec<Seen> = self.units.clone();
        orphans.retain(|unit| !had(unit.nonce));
        orphans.sort_by_key(|unit| unit.nonce);
        orphans
    }

    /// How long a nonce certainly stays taken.
    pub(super) fn remaining(&self, nonce: u64) -> Duration {
        let same = self.units.iter().filter(|unit| unit.nonce == nonce);
        same.map(|unit| unit.remaining).max().unwrap_or_default()
    }

    /// Gives that unit up: it no longer takes a nonce.
    pub(super) fn give_up(&mut self, unit: Fence) {
        self.given_up.insert(unit);
        self.units.retain(|seen| seen.fence != unit);
        self.in_flight = by_nonce(&self.units);
    }

    /// The same, without what an earlier look gave up.
    pub(super) fn after(mut self, earlier: &Standing) -> Standing {
        self.units.retain(|unit| !earlier.given_up.contains(&unit.fence));
        self.in_flight = by_nonce(&self.units);
        self
    }

    /// The lowest nonce that is free.
    pub fn next(&self) -> u64 {
        next(self.count, &self.in_flight)
    }

    /// The free nonces below one that is taken: the chain accepts nothing above the lowest of them before that.
    pub fn gaps(&self) -> Vec<u64> {
        let taken: BTreeSet<u64> = self.in_flight.iter().map(|seen| seen.nonce).collect();
        let highest = taken.last().copied().unwrap_or(self.count);
        let is_free = |nonce: &u64| !taken.contains(nonce);
        // A single nonce far above all others is a mistake, not a billion gaps.
        (self.count..highest).filter(is_free).take(MOST_GAPS).collect()
    }

    /// Whether it is neither used nor taken.
    #[cfg(feature = "relay")]
    pub(super) fn is_free(&self, nonce: u64) -> bool {
        nonce >= self.count && self.in_flight.iter().all(|seen| seen.nonce != nonce)
    }

    /// The reservation with this signer's name.
    #[cfg(feature = "relay")]
    pub(super) fn of(&self, id: &str) -> Option<&Seen> {
        self.units.iter().find(|unit| unit.id.as_deref() == Some(id))
    }

    /// Ends nonces that were given out in an earlier turn and not sent: the next turn has begun.
    #[cfg(feature = "relay")]
    pub(super) fn end_turns_before(&mut self, turn: Fence) {
        let is_over = |unit: &&Seen| unit.turn.is_some_and(|other| other < turn);
        let over: Vec<Fence> = self.units.iter().filter(is_over).map(|unit| unit.fence).collect();
        over.into_iter().for_each(|unit| self.give_up(unit));
    }

    /// Whether the nonce that was joined with `own` is someone else's, or used.
    ///
    /// Of two that join for the same nonce, the one that sees the other's lower fence gives way; the
    /// other need not. A unit with a hash belongs to a nonce that was taken before.
    pub(super) fn is_anothers(&self, nonce: u64, own: Fence) -> bool {
        let others = |seen: &&Seen| seen.nonce == nonce && seen.fence != own;
        let before = |seen: &Seen| seen.fence < own || seen.hash.is_some();
        // The same signer asked twice at the same time: the first counts.
        let id = self.units.iter().find(|seen| seen.fence == own).and_then(|seen| seen.id.as_ref());
        let is_had = |seen: &Seen| id.is_some() && seen.id.as_ref() == id && seen.fence < own;
        nonce < self.count
            || self.units.iter().filter(others).any(before)
            || self.units.iter().any(is_had)
    }
}

/// Merges the units: each nonce once, with all details of its units.
fn by_nonce(units: &[Seen]) -> Vec<Seen> {
    let mut nonces: BTreeMap<u64, Seen> = BTreeMap::new();
    for unit in units {
        let known = nonces.entry(unit.nonce).or_insert_with(|| unit.clone());
        known.hash = known.hash.or(unit.hash);
        known.age = known.age.max(unit.age);
        known.remaining = known.remaining.max(unit.remaining);
    }
    nonces.into_values().collect()
}

/// The most gaps that are listed.
const MOST_GAPS: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use alloy_primitives::B256;
    use tenure::Details;

    use super::*;

    fn unit(fence: u64, meta: &[(&str, String)]) -> Holder {
        let mut details = Details::default();
        details.meta = meta.iter().map(|(key, value)| ((*key).to_owned(), value.clone())).collect();
        Holder {
            fence: Fence::new(fence),
            weight: 1,
            held_for: Duration::ZERO,
            remaining: Duration::from_secs(1),
            details: Arc::new(details),
        }
    }

    fn taken(fence: u64, nonce: u64) -> Holder {
        unit(fence, &[("nonce", nonce.to_string())])
    }

    fn sent(fence: u64, nonce: u64) -> Holder {
        unit(fence, &[("nonce", nonce.to_string()), ("hash", B256::ZERO.to_string())])
    }

    fn floor(fence: u64, count: u64) -> Holder {
        unit(fence, &[(COUNT, count.to_string())])
    }

    #[test]
    fn the_highest_count_that_is_known_counts() {
        let units = [taken(1, 4), taken(2, 6), floor(3, 6), floor(4, 5)];
        let late = Standing::new(&units, 3);
        assert_eq!((late.count, late.next(), late.in_flight.len()), (6, 7, 1));
        assert_eq!(Standing::new(&units, 9).next(), 9);
    }

    #[test]
    fn gaps_are_what_is_free_below_the_highest_in_flight() {
        let of = |nonces: &[u64]| {
            let units: Vec<_> = nonces.iter().map(|nonce| taken(*nonce, *nonce)).collect();
            Standing::new(&units, 5).gaps()
        };
        assert_eq!(of(&[]), [0; 0]);
        assert_eq!(of(&[5, 6]), [0; 0]);
        assert_eq!(of(&[6, 9]), [5, 7, 8]);
        assert_eq!(of(&[1, 2]), [0; 0]);
        assert_eq!(of(&[u64::MAX]).len(), MOST_GAPS);
    }

    #[test]
    fn a_nonce_is_in_flight_once_and_an_orphan_when_nobody_holds_on_to_it() {
        let standing = Standing::new(&[taken(1, 7), sent(2, 8), sent(3, 7), sent(4, 8)], 7);
        let shown: Vec<_> =
            standing.in_flight.iter().map(|seen| (seen.nonce, seen.hash.is_some())).collect();
        assert_eq!(shown, [(7, true), (8, true)]);
        let orphans: Vec<_> = standing.orphans().iter().map(|seen| seen.fence.get()).collect();
        assert_eq!(orphans, [2, 4]);
    }

    #[test]
    fn of_two_that_took_the_same_nonce_only_the_first_keeps_it() {
        let both = Standing::new(&[taken(10, 7), taken(11, 7)], 7);
        assert!(!both.is_anothers(7, Fence::new(10)));
        assert!(both.is_anothers(7, Fence::new(11)));
        assert!(Standing::new(&[taken(10, 7)], 8).is_anothers(7, Fence::new(10)), "used");
        assert!(Standing::new(&[taken(10, 7), floor(9, 8)], 7).is_anothers(7, Fence::new(10)));
        // What was given up is in nobody's way.
        let mut earlier = Standing::new(&[sent(9, 7)], 7);
        assert_eq!((earlier.next(), earlier.is_anothers(7, Fence::new(10))), (8, true));
        earlier.give_up(Fence::new(9));
        assert_eq!(earlier.next(), 7);
        let later = Standing::new(&[sent(9, 7), taken(10, 7)], 7).after(&earlier);
        assert!(!later.is_anothers(7, Fence::new(10)));
        // The first has recorded its hash since, with a higher fence, and died.
        let written = Standing::new(&[taken(11, 7), sent(12, 7)], 7);
        assert!(written.is_anothers(7, Fence::new(11)));
    }
}
