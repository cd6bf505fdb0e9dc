//! Adding up what was counted.

use super::Report;

impl std::ops::Add for Report {
    type Output = Report;

    fn add(self, other: Report) -> Report {
        Report {
            granted: self.granted + other.granted,
            lost: self.lost + other.lost,
            dropped: self.dropped + other.dropped,
            over: self.over + other.over,
            passed_on: self.passed_on + other.passed_on,
            stopped: self.stopped + other.stopped,
            forgot: self.forgot + other.forgot,
            led: self.led + other.led,
            several: self.several + other.several,
            ran: self.ran + other.ran,
            replayed: self.replayed + other.replayed,
            unsettled: self.unsettled + other.unsettled,
            longest_free: self.longest_free.max(other.longest_free),
        }
    }
}
