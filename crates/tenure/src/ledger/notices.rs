//! Notices to waiting claims besides their turn: when to check whether a turn before theirs was not taken, and
//! whether they can be reached.

use std::time::Duration;

use super::{Entry, Ledger, Process, Storage, Word};
use crate::model::claim::NOTICES_EVERY;
use crate::model::moment::Moment;

/// After a push, this many claims at the front of the line are told when to check whether the turn was taken.
pub const LOOKERS: usize = 8;
/// So is the last waiting claim, or the one at this position if more wait.
pub const FARTHEST_LOOKER: u32 = 64;
/// How much later each of them looks than the one before it.
pub const LOOKERS_APART: Duration = Duration::from_millis(25);

impl<S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'_, S, W> {
    /// A turn was pushed to `process`. Those behind it only know when the hold before it would have ended. If the
    /// turn is not taken, someone must look as soon as it has run out: the next in line, and others in case the next
    /// does not react either. A process looks for all of its claims, so it is told once. The last in line is among
    /// them because it is the one that most recently proved to be alive.
    ///
    /// For each name, the others are told at most once a second: a claim that looks too early learns from the answer
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
            // If all claims are in one process, it is not known who reacts.
            let known = other.process != 0 && told.contains(&other.process);
            if !known && (place < LOOKERS || place == last) {
                at = at + LOOKERS_APART;
                told.push(other.process);
                (self.say)(other, Word::LookAt(at));
            }
        }
        Ok(())
    }

    /// Whether `head`, which holds up the claim that asks, cannot be reached. Nobody is about to push a turn to
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

/// Whether a hold was granted and released within the same second of the clock (the same [`NOTICES_EVERY`]). Among holds
/// that follow each other without a pause, one per second crosses into the next second. Notices are sent for that one
/// only.
pub(super) fn is_brief(since: Moment, now: Moment) -> bool {
    const NANOS: u64 = NOTICES_EVERY.as_nanos() as u64;
    since.as_nanos() / NANOS == now.as_nanos() / NANOS
}
