//! Who is told what besides its turn: when to look if a turn is not taken, and whether it is there.

use std::time::Duration;

use super::{Entry, Ledger, Process, Shelf, Word};
use crate::model::moment::Moment;

/// After a push, so many of the first in line are told when to look if the turn is not taken.
pub const TOLD: usize = 8;
/// And so is the last of so many who wait.
pub const FAR: u32 = 64;
/// How much later than the one before it each of them looks.
pub const TOLD_APART: Duration = Duration::from_millis(25);

impl<S: Shelf, W: FnMut(&Entry, Word) -> bool> Ledger<'_, S, W> {
    /// A turn was pushed to `process`. Those behind know only when the hold before would have ended.
    /// If the turn is not taken, someone must look when it has run out, and not long after: the next
    /// in line, and others in case that the next does not react either. A process looks for all of its
    /// claims. The last to come is the one that was last known to live.
    ///
    /// The others are told no more than once a second for each name: whoever looks too early is
    /// answered when to look again.
    pub(super) fn tell_when_to_look(&mut self, process: Process) -> Result<(), S::Error> {
        let (Some(next), Some(end)) = (self.shelf.head()?, self.shelf.next_end()?) else {
            return Ok(());
        };
        (self.say)(&next, Word::LookAt(end));
        if self.brief || self.shelf.totals()?.waiting < 2 {
            return Ok(());
        }
        let mut told = vec![process, next.process];
        let line = self.shelf.first(FAR)?;
        let last = line.len().saturating_sub(1);
        let mut at = end;
        for (place, other) in line.iter().enumerate().skip(1) {
            // Where all live together it is not known who reacts.
            let known = other.process != 0 && told.contains(&other.process);
            if !known && (place < TOLD || place == last) {
                at = at + TOLD_APART;
                told.push(other.process);
                (self.say)(other, Word::LookAt(at));
            }
        }
        Ok(())
    }

    /// Whether one that holds up who asks cannot be reached. Nobody hands over to it, so that nobody
    /// else would find out.
    pub(super) fn is_missing(&mut self, head: &Entry) -> bool {
        if !self.asks || self.is_there == Some(head.id) {
            return false;
        }
        let there = (self.say)(head, Word::AreYouThere);
        self.is_there = there.then_some(head.id);
        !there
    }
}

/// Whether a hold was granted and released in the same second of the clock. Of holds that follow one another without a
/// pause, one a second is not: that is how often the others are told.
pub(super) fn is_same_second(since: Moment, now: Moment) -> bool {
    since.as_nanos() / 1_000_000_000 == now.as_nanos() / 1_000_000_000
}
