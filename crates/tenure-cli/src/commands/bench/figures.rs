//! What several contenders for one lock did. Nothing here measures.

use tenure_measure::figures::{Stamps, jain};

/// What the contenders did until a certain time.
pub(super) struct Contest {
    /// Every acquisition in the order of grants, with its contender. Includes those that were requested in time
    /// but served after the end.
    all: Vec<(usize, Stamps)>,
    contenders: usize,
    end: u64,
}

impl Contest {
    pub(super) fn new(contenders: &[Vec<Stamps>], end: u64) -> Contest {
        let all = contenders.iter().enumerate();
        let all = all.flat_map(|(who, theirs)| theirs.iter().map(move |stamps| (who, *stamps)));
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|(_, stamps)| stamps.granted);
        Contest { all, contenders: contenders.len(), end }
    }

    /// Those that were granted in time.
    fn in_time(&self) -> &[(usize, Stamps)] {
        let count = self.all.partition_point(|(_, stamps)| stamps.granted <= self.end);
        &self.all[..count]
    }

    /// The number of acquisitions.
    pub(super) fn acquisitions(&self) -> usize {
        self.in_time().len()
    }

    /// How often the lock went from one contender to another.
    pub(super) fn hand_overs(&self) -> usize {
        self.in_time().windows(2).filter(|pair| pair[0].0 != pair[1].0).count()
    }

    /// How many began before the previous one had ended. There must be none.
    pub(super) fn overlaps(&self) -> usize {
        self.all.windows(2).filter(|pair| pair[1].1.granted < pair[0].1.leaving).count()
    }

    /// How evenly the lock was shared.
    pub(super) fn fairness(&self) -> f64 {
        let mut counts = vec![0; self.contenders];
        self.in_time().iter().for_each(|(who, _)| counts[*who] += 1);
        jain(&counts)
    }

    /// The longest wait, in nanoseconds.
    pub(super) fn longest_wait(&self) -> u64 {
        let waits = self.all.iter().map(|(_, stamps)| stamps.granted - stamps.asked);
        waits.max().unwrap_or(0)
    }

    /// From each release to the next grant of a contender that was waiting by then, sorted, in nanoseconds.
    ///
    /// Only a contender that was waiting counts as a hand-off: with a lock that has no line, the one that releases
    /// is often back first, and those that wait keep waiting.
    pub(super) fn hand_offs(&self) -> Vec<u64> {
        let mut times: Vec<u64> = Vec::with_capacity(self.all.len());
        // The next acquisition of each contender. Only that can be a hand-off: later ones were requested later
        // still.
        let mut next: Vec<Option<&Stamps>> = vec![None; self.contenders];
        for (who, released) in self.all.iter().rev() {
            let waited = next.iter().flatten().filter(|next| next.asked < released.leaving);
            let served = waited.map(|next| next.granted).min();
            times.extend(served.map(|served| served.saturating_sub(released.leaving)));
            next[*who] = Some(released);
        }
        times.sort_unstable();
        times
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stamps(asked: u64, granted: u64, leaving: u64) -> Stamps {
        Stamps { task: 0, asked, granted, leaving, left: leaving }
    }

    #[test]
    fn a_line_hands_over_to_whoever_waited() {
        let a = vec![stamps(0, 10, 20), stamps(21, 45, 50)];
        let b = vec![stamps(5, 23, 40), stamps(41, 110, 120)];
        let contest = Contest::new(&[a, b], 100);
        assert_eq!((contest.acquisitions(), contest.hand_overs(), contest.overlaps()), (3, 2, 0));
        // 20 to 23, 40 to 45, 50 to 110: the last was requested in time, although it came late.
        assert_eq!(contest.hand_offs(), [3, 5, 60]);
        assert_eq!(contest.longest_wait(), 69);
    }

    #[test]
    fn the_one_that_is_back_first_is_no_hand_off() {
        let hog = vec![stamps(0, 1, 10), stamps(11, 12, 20), stamps(21, 22, 30)];
        let waiting = vec![stamps(2, 34, 35)];
        let contest = Contest::new(&[hog, waiting], 40);
        assert_eq!(contest.hand_offs(), [4, 14, 24]);
        assert_eq!(contest.hand_overs(), 1);
    }

    #[test]
    fn a_grant_inside_a_hold_is_an_overlap() {
        let contest = Contest::new(&[vec![stamps(0, 1, 10)], vec![stamps(0, 9, 12)]], 40);
        assert_eq!(contest.overlaps(), 1);
    }
}
