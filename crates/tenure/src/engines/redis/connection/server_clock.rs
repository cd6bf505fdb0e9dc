//! Compares the server's clock with ours.
//!
//! The server's wall clock decides when holds end. If it is set forward, holds end early, and the renewal
//! that finds this out should report the reason.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use super::{Connection, Outgoing, Reply, ReplyTo};
use crate::engines::redis::config::Address;
use crate::engines::redis::protocol::request::Request;
use crate::engines::redis::protocol::resp::Value;
use crate::model::moment::Moment;
use crate::observe;

/// How often a server that keeps holds is asked for the time: often enough that drift does not look like a step.
const ASK_EVERY: Duration = Duration::from_secs(5);
/// Shorter steps cannot be told from slow answers.
const SHORTEST_STEP: Duration = Duration::from_millis(20);
/// Two clocks drift apart by less than one part in this many.
const DRIFT: u32 = 1000;
/// How long a step is given as the reason for losses.
const REMEMBERED: Duration = Duration::from_secs(60);

/// The clocks of the servers of a cluster; otherwise one, the primary's, whichever server that is.
#[derive(Default)]
pub(crate) struct Clocks(Mutex<HashMap<Option<Address>, Arc<ServerClock>>>);

impl Clocks {
    pub(super) fn of(&self, address: Option<Address>) -> Arc<ServerClock> {
        let mut clocks = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        clocks.entry(address).or_default().clone()
    }
}

/// The clock of a server, read over all connections to it.
#[derive(Default)]
pub(crate) struct ServerClock(Mutex<Readings>);

#[derive(Default)]
struct Readings {
    last: Option<Reading>,
    asked: Moment,
    /// The last step forward, and when it was found.
    step: Option<(Duration, Moment)>,
}

/// The time since 1970 that the server's clock showed at some point between two of our moments.
#[derive(Clone, Copy)]
struct Reading {
    from: Moment,
    to: Moment,
    shown: Duration,
}

impl Reading {
    /// By how much the clock was set forward since `before`, if that is certain.
    fn step_since(&self, before: &Reading) -> Option<Duration> {
        let went = self.shown.checked_sub(before.shown)?;
        let elapsed = before.from.until(self.to);
        let certain = went.checked_sub(elapsed + elapsed / DRIFT)?;
        let (middle, middle_before) = (middle(self), middle(before));
        let likely = went.saturating_sub(middle_before.until(middle));
        (certain >= SHORTEST_STEP).then_some(likely)
    }
}

fn middle(reading: &Reading) -> Moment {
    reading.from + reading.from.until(reading.to) / 2
}

/// Reads the answer to `TIME`: seconds and microseconds.
pub(crate) fn read_time(value: &Value) -> Option<Duration> {
    let [seconds, micros] = value.as_list()? else { return None };
    let part = |value: &Value| u64::try_from(value.as_int()?).ok();
    Some(Duration::from_secs(part(seconds)?) + Duration::from_micros(part(micros)?))
}

impl ServerClock {
    fn readings(&self) -> MutexGuard<'_, Readings> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a reading. Returns the step that it reveals.
    fn note(&self, reading: Reading) -> Option<Duration> {
        let mut readings = self.readings();
        let before = readings.last.replace(reading);
        let step = before.and_then(|before| reading.step_since(&before))?;
        readings.step = Some((step, reading.to));
        Some(step)
    }

    fn recent_step(&self, now: Moment) -> Option<Duration> {
        let step = self.readings().step;
        step.filter(|(_, found)| now.since(*found) < REMEMBERED).map(|(step, _)| step)
    }
}

impl Connection {
    /// Handles an answer to `TIME`.
    pub(crate) fn heard_time(&self, from: Moment, value: &Value) {
        let Some(shown) = read_time(value) else { return };
        let to = self.shared.setup.now();
        if let Some(step) = self.clock.note(Reading { from, to, shown }) {
            observe::clock_stepped(&self.shared.setup.profile.label, step);
        }
    }

    /// Asks for the time, unless that was done recently.
    pub(crate) fn ask_for_time(self: &Arc<Connection>) {
        let now = self.shared.setup.now();
        {
            let mut readings = self.clock.readings();
            if readings.asked + ASK_EVERY > now {
                return;
            }
            readings.asked = now;
        }
        self.send(Request::plain(&[b"TIME"]), Outgoing::new(ReplyTo::Time));
    }

    /// By how much the server's clock was recently set forward.
    pub(crate) async fn clock_step(self: &Arc<Connection>) -> Option<Duration> {
        let (reply, heard) = oneshot::channel();
        self.send(Request::plain(&[b"TIME"]), Outgoing::new(ReplyTo::One(reply)));
        if let Ok(Ok(Reply { value, sent })) = heard.await {
            self.heard_time(sent, &value);
        }
        self.clock.recent_step(self.shared.setup.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(from: u64, to: u64, shown: u64) -> Reading {
        let at = |ms| Moment::ORIGIN + Duration::from_millis(ms);
        Reading { from: at(from), to: at(to), shown: Duration::from_millis(shown) }
    }

    #[test]
    fn a_step_is_what_no_slow_answer_explains() {
        let clock = ServerClock::default();
        assert_eq!(clock.note(reading(0, 10, 5_000)), None);
        // 40 ms more than passed between the midpoints, but the first answer may have been quick.
        assert_eq!(clock.note(reading(1000, 1090, 6_080)), None);
        assert_eq!(clock.recent_step(Moment::ORIGIN), None);
        let step = clock.note(reading(2000, 2010, 3_607_045)).unwrap();
        assert!(step.as_millis().abs_diff(3_600_000) < 100, "{step:?}");
        // The clock continues from there, and setting it back does not count.
        assert_eq!(clock.note(reading(3000, 3010, 3_608_045)), None);
        assert_eq!(clock.note(reading(4000, 4010, 9_000)), None);
        let soon = Moment::ORIGIN + Duration::from_secs(30);
        assert_eq!(clock.recent_step(soon), Some(step));
        assert_eq!(clock.recent_step(soon + REMEMBERED), None);
    }
}
