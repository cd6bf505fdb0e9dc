//! Computes figures from records. Nothing here measures.

/// One acquisition, in nanoseconds of the common [`clock`](crate::clock). A moment that has not been reached is
/// 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stamps {
    /// Which task it was.
    pub task: u64,
    /// When acquire was called.
    pub asked: u64,
    /// When acquire returned.
    pub granted: u64,
    /// When release was called.
    pub leaving: u64,
    /// When release returned.
    pub left: u64,
}

impl Stamps {
    /// The size of a record when it is sent to another process, in bytes.
    pub const BYTES: usize = 40;

    /// The form in which it is sent to another process.
    pub fn to_bytes(self) -> [u8; Stamps::BYTES] {
        let mut bytes = [0; Stamps::BYTES];
        let Stamps { task, asked, granted, leaving, left } = self;
        for (to, value) in bytes.chunks_mut(8).zip([task, asked, granted, leaving, left]) {
            to.copy_from_slice(&value.to_le_bytes());
        }
        bytes
    }

    /// Parses a sequence of records written by `to_bytes`; an incomplete one at the end is ignored.
    pub fn read(bytes: &[u8]) -> Vec<Stamps> {
        let value = |record: &[u8], field: usize| {
            let bytes = record[field * 8..].first_chunk().copied();
            bytes.map_or(0, u64::from_le_bytes)
        };
        let stamps = |record: &[u8]| Stamps {
            task: value(record, 0),
            asked: value(record, 1),
            granted: value(record, 2),
            leaving: value(record, 3),
            left: value(record, 4),
        };
        bytes.chunks_exact(Stamps::BYTES).map(stamps).collect()
    }
}

/// The smallest value that at least this share of all values does not exceed; zero if there are none.
pub fn percentile(sorted: &[u64], share: f64) -> u64 {
    let rank = (sorted.len() as f64 * share).ceil() as usize;
    sorted.get(rank.saturating_sub(1)).copied().unwrap_or(0)
}

/// The middle value; the upper one if their number is even.
pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Jain's fairness index: 1 if all counts are the same, 1/n if one has everything; zero if all are zero.
pub fn jain(counts: &[usize]) -> f64 {
    let (sum, squares) = counts.iter().fold((0.0, 0.0), |(sum, squares), count| {
        let count = *count as f64;
        (sum + count, squares + count * count)
    });
    if squares == 0.0 { 0.0 } else { sum * sum / (counts.len() as f64 * squares) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_come_out_as_they_went_in() {
        let stamps = |task, asked| Stamps { task, asked, granted: 2, leaving: 3, left: 4 };
        let all = [stamps(0, 1), stamps(7, u64::MAX)];
        let bytes: Vec<u8> = all.iter().flat_map(|stamps| stamps.to_bytes()).collect();
        assert_eq!(Stamps::read(&bytes), all);
        assert_eq!(Stamps::read(&bytes[..Stamps::BYTES + 3]), all[..1]);
    }

    #[test]
    fn percentiles_and_medians_are_values_that_were_seen() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!([0.5, 0.99, 1.0].map(|share| percentile(&sorted, share)), [50, 99, 100]);
        assert_eq!((percentile(&[7], 0.5), percentile(&[], 0.5)), (7, 0));
        assert_eq!((median(vec![3.0, 1.0, 2.0]), median(vec![2.0, 1.0])), (2.0, 2.0));
        assert!(median(Vec::new()).is_nan());
    }

    #[test]
    fn fairness_is_one_when_it_is_even() {
        assert!((jain(&[5, 5, 5, 5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[20, 0, 0, 0]) - 0.25).abs() < 1e-9);
        assert!(jain(&[0, 0]).abs() < 1e-9);
    }
}
