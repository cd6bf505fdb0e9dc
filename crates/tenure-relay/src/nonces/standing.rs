use std::collections::BTreeSet;

use tenure::{Fence, Holder};

use crate::in_flight::{Seen, next, said, seen};

/// With a count that someone has seen, of all the nonces below it at once.
pub(super) const COUNT: &str = "count";

/// How the nonces of an account stand, at one look.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// How many transactions the chain has, as far as anyone knows: the highest count that this process
    /// was told now, or another a short time ago.
    pub count: u64,
    /// The nonces from `count` on that someone has, by the order in which they were had.
    pub in_flight: Vec<Seen>,
    /// The units of transactions that no node knows, and that whoever sent them does not renew.
    given_up: BTreeSet<Fence>,
}

impl Standing {
    /// The units of the set, and the count that the chain told after they were read.
    pub(super) fn new(units: &[Holder], counted: u64) -> Standing {
        let floors = units.iter().filter_map(|unit| said(unit, COUNT)?.parse().ok());
        let count = floors.fold(counted, u64::max);
        let above = |seen: &Seen| seen.nonce >= count;
        let in_flight = units.iter().filter_map(seen).filter(above).collect();
        Standing { count, in_flight, given_up: BTreeSet::new() }
    }

    /// That unit has nothing any more.
    pub(super) fn give_up(&mut self, unit: Fence) {
        self.given_up.insert(unit);
        self.in_flight.retain(|seen| seen.fence != unit);
    }

    /// The same, less what an earlier look gave up.
    pub(super) fn after(mut self, earlier: &Standing) -> Standing {
        earlier.given_up.iter().for_each(|unit| self.give_up(*unit));
        self
    }

    /// The lowest nonce that nobody has.
    pub fn next(&self) -> u64 {
        next(self.count, &self.in_flight)
    }

    /// The nonces that nobody has, although someone has a higher one: the chain takes none above the
    /// lowest of them before that.
    pub fn gaps(&self) -> Vec<u64> {
        let taken: BTreeSet<u64> = self.in_flight.iter().map(|seen| seen.nonce).collect();
        let highest = taken.last().copied().unwrap_or(self.count);
        let is_free = |nonce: &u64| !taken.contains(nonce);
        // Whoever has one nonce far above all others has a fault, and not a billion gaps.
        (self.count..highest).filter(is_free).take(MOST_GAPS).collect()
    }

    /// Whether the nonce that was joined for with `own` is someone else's, or used.
    ///
    /// Of two that join for the same nonce, the one that sees the other's lower fence steps back; the
    /// other need not. One with a hash was taken before, and is only written anew.
    pub(super) fn is_anothers(&self, nonce: u64, own: Fence) -> bool {
        let others = |seen: &&Seen| seen.nonce == nonce && seen.fence != own;
        let before = |seen: &Seen| seen.fence < own || seen.hash.is_some();
        nonce < self.count || self.in_flight.iter().filter(others).any(before)
    }
}

/// The most gaps that are listed.
const MOST_GAPS: usize = 1000;

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

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
        // The first has said its hash since, with a higher fence.
        let written_anew = Standing::new(&[taken(11, 7), sent(12, 7)], 7);
        assert!(written_anew.is_anothers(7, Fence::new(11)));
    }
}
