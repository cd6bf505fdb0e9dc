//! From what was seen to figures. Nothing here measures.

/// One acquisition, in nanoseconds of the common clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Stamps {
    /// When it was asked for.
    pub(super) asked: u64,
    /// When the grant was seen.
    pub(super) granted: u64,
    /// When its release was asked for.
    pub(super) leaving: u64,
    /// When that was answered.
    pub(super) left: u64,
}

impl Stamps {
    /// How many bytes one takes on its way between processes.
    pub(super) const BYTES: usize = 32;

    pub(super) fn to_bytes(self) -> [u8; Stamps::BYTES] {
        let mut bytes = [0; Stamps::BYTES];
        let Stamps { asked, granted, leaving, left } = self;
        for (to, value) in bytes.chunks_mut(8).zip([asked, granted, leaving, left]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Reads what `to_bytes` wrote; what is left over is not read.
    pub(super) fn read(bytes: &[u8]) -> Vec<Stamps> {
        let value = |bytes: &[u8], at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&bytes[at..at + 8]);
            u64::from_le_bytes(value)
        };
        let read = |bytes: &[u8]| Stamps {
            asked: value(bytes, 0),
            granted: value(bytes, 8),
            leaving: value(bytes, 16),
            left: value(bytes, 24),
        };
        bytes.chunks_exact(Stamps::BYTES).map(read).collect()
    }
}

/// The value that this share of all is not above; zero of none.
pub(super) fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// Jain's index: 1 if all had the same number, 1/n if one had all.
pub(super) fn jain(counts: &[usize]) -> f64 {
    let (sum, squares) = counts.iter().fold((0.0, 0.0), |(sum, squares), count| {
        let count = *count as f64;
        (sum + count, squares + count * count)
    });
    if squares == 0.0 { 0.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

/// What some contenders did until a moment.
pub(super) struct Contest {
    /// Every acquisition, by grant, with who it was. Those that were asked for in time are all there,
    /// also if they were served after the end.
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

    /// How many acquisitions there were.
    pub(super) fn acquisitions(&self) -> usize {
        self.in_time().len()
    }

    /// How often it went from one to another.
    pub(super) fn hand_overs(&self) -> usize {
        self.in_time().windows(2).filter(|pair| pair[0].0 != pair[1].0).count()
    }

    /// How many began before the one before them had ended. There must be none.
    pub(super) fn overlaps(&self) -> usize {
        self.all.windows(2).filter(|pair| pair[1].1.granted < pair[0].1.leaving).count()
    }

    /// How evenly it was shared out.
    pub(super) fn fairness(&self) -> f64 {
        let mut counts = vec![0; self.contenders];
        self.in_time().iter().for_each(|(who, _)| counts[*who] += 1);
        jain(&counts)
    }

    /// The longest that anyone waited, in nanoseconds.
    pub(super) fn longest_wait(&self) -> u64 {
        let waits = self.all.iter().map(|(_, stamps)| stamps.granted - stamps.asked);
        waits.max().unwrap_or(0)
    }

    /// From each release to the next grant of one who was waiting by then, sorted, in nanoseconds.
    ///
    /// That it waited is what makes it a hand-off: with a lock that has no line, the one who releases
    /// is often back first, and those who wait go on waiting.
    pub(super) fn hand_offs(&self) -> Vec<u64> {
        let mut times: Vec<u64> = Vec::with_capacity(self.all.len());
        // What each of them has next. Only that can be a hand-off: they ask again later still.
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
        Stamps { asked, granted, leaving, left: leaving }
    }

    #[test]
    fn stamps_come_out_as_they_went_in() {
        let all = [stamps(1, 2, 3), stamps(u64::MAX, 0, 7)];
        let bytes: Vec<u8> = all.iter().flat_map(|stamps| stamps.to_bytes()).collect();
        assert_eq!(Stamps::read(&bytes), all);
    }

    #[test]
    fn percentiles_are_values_that_were_seen() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| percentile(&sorted, share)), [50, 99, 100]);
        assert_eq!((percentile(&[7], 0.5), percentile(&[], 0.5)), (7, 0));
    }

    #[test]
    fn fairness_is_one_when_it_is_even() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[20, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!(jain(&[0, 0]).abs() < 1e-9);
    }

    #[test]
    fn a_line_hands_over_to_whoever_waited() {
        let a = vec![stamps(0, 10, 20), stamps(21, 45, 50)];
        let b = vec![stamps(5, 23, 40), stamps(41, 110, 120)];
        let contest = Contest::new(&[a, b], 100);
        assert_eq!((contest.acquisitions(), contest.hand_overs(), contest.overlaps()), (3, 2, 0));
        // 20 to 23, 40 to 45, 50 to 110: that was asked for in time, although it came late.
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
