//! Points in time, as plain numbers.
//!
//! A [`Moment`] belongs to one clock, and cannot be compared with moments of another: the caller's moments come
//! from its [`World`](crate::engine::World), an engine's from the engine. Nothing here reads a clock.

use std::ops::{Add, Sub};
use std::time::Duration;

/// A point in time, in nanoseconds since an origin that only its own clock knows.
///
/// Arithmetic saturates, so [`Moment::FAR`] stays far no matter what is added to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Moment(u64);

impl Moment {
    /// The origin.
    pub const ORIGIN: Moment = Moment(0);
    /// Later than everything: "never".
    pub const FAR: Moment = Moment(u64::MAX);

    /// The moment this many nanoseconds after the origin.
    pub const fn from_nanos(nanos: u64) -> Moment {
        Moment(nanos)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The time until `later`; zero if it has passed.
    pub fn until(self, later: Moment) -> Duration {
        Duration::from_nanos(later.0.saturating_sub(self.0))
    }

    /// The time since `earlier`; zero if it is in the future.
    pub fn since(self, earlier: Moment) -> Duration {
        earlier.until(self)
    }
}

impl Add<Duration> for Moment {
    type Output = Moment;

    fn add(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(nanos(span)))
    }
}

impl Sub<Duration> for Moment {
    type Output = Moment;

    fn sub(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(nanos(span)))
    }
}

/// In 64 bits, because every claim computes this. A duration that does not fit counts as infinite.
fn nanos(span: Duration) -> u64 {
    span.as_secs().saturating_mul(1_000_000_000).saturating_add(u64::from(span.subsec_nanos()))
}

/// When a grant with `remaining` time, requested at `sent`, stops counting.
///
/// The engine's clock started at or after the send, so counting from the send is early by the trip.
/// 1 % covers clocks that run at different rates. The fixed part, at most 25 ms and at most a
/// twentieth, covers the time between reading the clock and acting on it.
pub(crate) fn good_until(sent: Moment, remaining: Duration) -> Moment {
    let remaining = nanos(remaining);
    let allowance = (remaining / 20).min(25_000_000);
    Moment(sent.0.saturating_add(remaining - remaining / 100 - allowance))
}

/// The moment when one of `parts` equal parts of the time has passed.
pub(crate) fn part(sent: Moment, remaining: Duration, parts: u64) -> Moment {
    Moment(sent.0.saturating_add(nanos(remaining) / parts))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn far_stays_far() {
        assert_eq!(Moment::FAR + Duration::from_secs(1), Moment::FAR);
        assert_eq!(Moment::ORIGIN - Duration::from_secs(1), Moment::ORIGIN);
        assert_eq!(Moment::ORIGIN + Duration::MAX, Moment::FAR);
    }

    #[test]
    fn a_yes_is_believed_for_less_than_it_said() {
        let sent = Moment::from_nanos(7);
        let long = Duration::from_secs(30);
        assert_eq!(good_until(sent, long), sent + Duration::from_millis(29_675));
        let short = Duration::from_millis(100);
        assert_eq!(good_until(sent, short), sent + Duration::from_millis(94));
        assert_eq!(good_until(sent, Duration::ZERO), sent);
    }
}
