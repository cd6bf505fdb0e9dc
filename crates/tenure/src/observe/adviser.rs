//! Proposes ttls: compares how long holds last, by group, with their ttl.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use crate::model::moment::Moment;

/// How many holds of a group are remembered: the latest.
const WINDOW: usize = 500;
/// With fewer holds than this the 99th percentile is just the longest, and no reason to warn.
const FEWEST: usize = 100;
/// A group is checked after this many holds.
const LOOK_EVERY: usize = 50;
/// How long a group is not checked after a warning.
const QUIET: Duration = Duration::from_secs(10 * 60);
/// Nearly every hold should be over after this fraction of its ttl, here a third.
const ENOUGH: u32 = 3;
/// The proposed ttl is this many times the 99th percentile, rounded up to a round number.
const MULTIPLIER: u32 = 6;

/// How long the holds of a group last, and whether their ttl fits.
///
/// Only holds that are **not renewed** count (`.renew(false)`): for them the ttl has to outlast the work. A
/// hold that is renewed may last for days with a ttl of seconds, so its length says nothing about the ttl;
/// `tenure_renewal_margin_ratio` shows whether renewals come in time.
///
/// A hold counts when it is released, in time or late, with the length of its work: work that outlasts the ttl is
/// exactly what this looks for. The latest 500 holds of each group are kept.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Advice {
    /// The part of the names before the first `:`.
    pub group: String,
    /// The number of holds that this is based on.
    pub holds: usize,
    /// Half of the holds were shorter.
    pub p50: Duration,
    /// 99 of 100 holds were shorter.
    pub p99: Duration,
    /// The shortest ttl of these holds.
    pub ttl: Duration,
    /// The ttl that would fit: six times the 99th percentile, rounded up. `None` if the ttl is at least three
    /// times the 99th percentile, or if there are fewer than 100 holds.
    pub proposal: Option<Duration>,
}

/// The holds that are not renewed, by group. Bounded, because the number of groups is.
#[derive(Debug, Default)]
pub(super) struct Adviser(Mutex<HashMap<&'static str, Group>>);

#[derive(Debug, Default)]
struct Group {
    /// Length and ttl in seconds: a quarter of the size of two `Duration`s.
    holds: VecDeque<(f32, f32)>,
    since_look: usize,
    quiet_until: Moment,
}

impl Adviser {
    /// Records the end of a hold. Occasionally returns a warning.
    pub(super) fn ended(
        &self,
        group: &'static str,
        held: Duration,
        ttl: Duration,
        now: Moment,
    ) -> Option<Advice> {
        let mut groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let known = groups.entry(group).or_default();
        if known.holds.len() == WINDOW {
            known.holds.pop_front();
        }
        known.holds.push_back((held.as_secs_f32(), ttl.as_secs_f32()));
        known.since_look += 1;
        if known.since_look < LOOK_EVERY || now < known.quiet_until {
            return None;
        }
        known.since_look = 0;
        let advice = known.advice(group)?;
        if advice.proposal.is_some() {
            known.quiet_until = now + QUIET;
        }
        Some(advice).filter(|advice| advice.proposal.is_some())
    }

    /// The advice for each group, by its name.
    pub(super) fn all(&self) -> Vec<Advice> {
        let groups = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> =
            groups.iter().filter_map(|(group, known)| known.advice(group)).collect();
        all.sort_by(|a, b| a.group.cmp(&b.group));
        all
    }
}

impl Group {
    fn advice(&self, group: &str) -> Option<Advice> {
        let mut lengths: Vec<f32> = self.holds.iter().map(|(length, _)| *length).collect();
        lengths.sort_by(f32::total_cmp);
        let at = |share: usize| lengths.get(lengths.len() * share / 100).copied();
        let seconds = |length: f32| Duration::from_micros((f64::from(length) * 1e6).round() as u64);
        let (p50, p99) = (seconds(at(50)?), seconds(at(99)?));
        let ttl = self.holds.iter().map(|(_, ttl)| *ttl).min_by(f32::total_cmp).map(seconds)?;
        let fits = ttl >= p99 * ENOUGH || lengths.len() < FEWEST;
        let proposal = (!fits).then(|| round(p99 * MULTIPLIER));
        Some(Advice { group: group.to_owned(), holds: lengths.len(), p50, p99, ttl, proposal })
    }
}

/// The next of 1, 2, 5, 10, 20, 50 … milliseconds.
fn round(duration: Duration) -> Duration {
    let mut ten = Duration::from_millis(1);
    loop {
        for step in [ten, ten * 2, ten * 5] {
            if duration <= step {
                return step;
            }
        }
        ten *= 10;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    /// Ends `count` holds of the group one after another. Returns the warnings.
    fn held(adviser: &Adviser, count: usize, length: Duration, ttl: Duration) -> Vec<Advice> {
        let ended = |_| adviser.ended("table", length, ttl, Moment::ORIGIN);
        (0..count).filter_map(ended).collect()
    }

    fn only(adviser: &Adviser) -> Advice {
        let all = adviser.all();
        assert_eq!(all.len(), 1, "{all:?}");
        all.into_iter().next().unwrap()
    }

    #[test]
    fn the_proposals_are_those_of_the_rule_of_thumb() {
        for (p99, ttl) in [(200, 2_000), (800, 5_000), (5, 50), (1_000, 10_000), (70_000, 500_000)]
        {
            let adviser = Adviser::default();
            let warned = held(&adviser, 150, ms(p99), ms(p99));
            assert_eq!(warned.len(), 1, "{p99}: {warned:?}");
            assert_eq!(warned[0].proposal, Some(ms(ttl)), "{p99}");
            assert_eq!((warned[0].group.as_str(), warned[0].holds), ("table", 100));
        }
    }

    #[test]
    fn a_ttl_of_three_times_the_p99_is_enough() {
        let adviser = Adviser::default();
        assert_eq!(held(&adviser, 500, ms(100), ms(300)), []);
        let Advice { p50, p99, ttl, proposal, holds, .. } = only(&adviser);
        assert_eq!((p50, p99, ttl, proposal, holds), (ms(100), ms(100), ms(300), None, 500));
        assert_eq!(held(&Adviser::default(), 500, ms(101), ms(300)).len(), 1);
    }

    #[test]
    fn one_slow_hold_in_a_hundred_is_forgiven_and_two_are_not() {
        for (slow, warns) in [(1, false), (2, true)] {
            let adviser = Adviser::default();
            held(&adviser, slow, ms(900), ms(1_000));
            let warned = held(&adviser, 198 - slow, ms(10), ms(1_000));
            // With 198 holds, the 99th percentile is the second longest.
            assert_eq!(only(&adviser).proposal.is_some(), warns, "{warned:?}");
        }
    }

    #[test]
    fn a_group_is_warned_about_once_and_then_left_alone() {
        let adviser = Adviser::default();
        let ended = |at| adviser.ended("table", ms(900), ms(1_000), at);
        let at = |secs| Moment::ORIGIN + Duration::from_secs(secs);
        let warned = |secs| (0..1_000).filter_map(|_| ended(at(secs))).count();
        assert_eq!((warned(0), warned(599), warned(600), warned(601)), (1, 0, 1, 0));
    }

    #[test]
    fn a_few_holds_are_shown_without_a_warning() {
        let adviser = Adviser::default();
        assert_eq!(held(&adviser, 99, ms(900), ms(1_000)), []);
        assert_eq!((only(&adviser).holds, only(&adviser).proposal), (99, None));
        assert_eq!(Adviser::default().all(), []);
    }

    #[test]
    fn old_holds_are_forgotten() {
        let adviser = Adviser::default();
        held(&adviser, 200, ms(900), ms(1_000));
        held(&adviser, WINDOW, ms(100), ms(2_000));
        let Advice { p99, ttl, proposal, holds, .. } = only(&adviser);
        assert_eq!((p99, ttl, proposal, holds), (ms(100), ms(2_000), None, WINDOW));
    }
}
