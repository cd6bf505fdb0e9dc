//! A rate limit that allows bursts of one second's worth.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// A limit on calls per second.
pub(super) struct Rate {
    per_second: f64,
    /// How many calls are left, and since when. Negative if some were taken in advance.
    left: Mutex<(f64, Option<Instant>)>,
}

impl Rate {
    pub(super) fn new(per_second: u32) -> Rate {
        let per_second = f64::from(per_second);
        Rate { per_second, left: Mutex::new((per_second, None)) }
    }

    /// Takes `many` calls together. A caller that takes more than are left has to wait longer afterwards, so
    /// even a batch longer than a second's worth can be sent.
    ///
    /// # Errors
    /// How long to wait before another call may be taken.
    pub(super) fn take(&self, many: usize, now: Instant) -> Result<(), Duration> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let passed = left.1.map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64());
        let there = (left.0 + passed * self.per_second).min(self.per_second);
        if there < 1.0 {
            *left = (there, Some(now));
            return Err(Duration::from_secs_f64((1.0 - there) / self.per_second));
        }
        *left = (there - many as f64, Some(now));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_has_so_many_and_a_batch_is_paid_for() {
        let (rate, start) = (Rate::new(10), Instant::now());
        let at = |ms| start + Duration::from_millis(ms);
        for _ in 0..10 {
            assert_eq!(rate.take(1, start), Ok(()));
        }
        assert_eq!(rate.take(1, start), Err(Duration::from_millis(100)));
        assert!(rate.take(1, at(90)).is_err());
        assert_eq!(rate.take(1, at(101)), Ok(()));
        // At most one second's worth is saved up.
        assert_eq!(rate.take(30, at(60_000)), Ok(()));
        assert!(rate.take(1, at(62_050)).is_err());
        assert_eq!(rate.take(1, at(62_150)), Ok(()));
    }
}
