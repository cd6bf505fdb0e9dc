//! Notices to claims that wait, besides their turn: when to look whether a turn before theirs was not taken, and
//! whether they can be reached.

use std::time::Duration;

use super::{Entry, Ledger, Process, Storage, Word};
use crate::model::moment::Moment;

/// After a push, this many at the front of the line are told when to look whether the turn was taken.
pub const LOOKERS: usize = 8;
/// So is the last one who waits, or the one at this place if more wait.
pub const FARTHEST_LOOKER: u32 = 64;
/// How much later than the one before it each of them looks.
pub const LOOKERS_APART: Duration = Duration::from_millis(25);

impl<S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'_, S, W> {
    /// A turn was pushed to `process`. Those behind it know only when the hold before it would have ended.
    /// If the turn is not taken, someone has to look as soon as it has run out: the next in line, and others
    /// in case the next does not react either. A process looks for all of its claims, so it is told once. The
    /// last in line is among them because it has shown most recently that it lives.
    ///
    /// For each name, the others are told at most once a second: whoever looks too early learns from the answer
    /// when to look again.
    pub(super) fn tell_when_to_look(&mut self, process: Process) -> Result<(), S::Error> {
        let (Some(next), Some(end)) = (self.storage.head()?, self.storage.next_end()?) else {
            return Ok(());
        };
        (self.say)(&next, Word::LookAt(end));
        if self.brief || self.storage.totals()?.waiting < 2 {
            return Ok(());
        }
        let mut told = vec![process, next.process];
        let line = self.storage.first(FARTHEST_LOOKER)?;
        let last = line.len().saturating_sub(1);
        let mut at = end;
        for (place, other) in line.iter().enumerate().skip(1) {
            // Where all live together it is not known who reacts.
            let known = other.process != 0 && told.contains(&other.process);
            if !known && (place < LOOKERS || place == last) {
                at = at + LOOKERS_APART;
                told.push(other.process);
                (self.say)(other, Word::LookAt(at));
            }
        }
        Ok(())
    }

    /// Whether `head`, which holds up the claim that asks, cannot be reached. Nobody is about to hand over to
    /// it, so nobody else would find out.
    pub(super) fn is_missing(&mut self, head: &Entry) -> bool {
        if !self.asks || self.is_there == Some(head.id) {
            return false;
        }
        let there = (self.say)(head, Word::AreYouThere);
        self.is_there = there.then_some(head.id);
        !there
    }
}

/// Whether a hold was granted and released within the same second of the clock. Of holds that follow one another
/// without a pause, one per second was not, and that is how often the others are told.
pub(super) fn is_same_second(since: Moment, now: Moment) -> bool {
    since.as_nanos() / 1_000_000_000 == now.as_nanos() / 1_000_000_000
}
