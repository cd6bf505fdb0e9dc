//! Work that is done once: when it begins, when it is over, and what claims for it are told.

use super::{Answer, Entry, Ledger, Record, Storage, Word};
use crate::model::claim::{Claim, Fence, Forgotten, OnceTerms, Settle};

impl<S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'_, S, W> {
    /// Forgets the record of a once, if it is still the one that the operator has seen and nobody holds the once.
    pub fn forget(&mut self, fence: Fence, settled: bool) -> Result<Forgotten, S::Error> {
        self.expire()?;
        let idle = self.storage.totals()?.held == 0;
        let forgotten = match self.storage.record(self.now)? {
            Some(record)
                if idle && record.fence == fence && record.outcome.is_some() == settled =>
            {
                self.storage.set_record(None)?;
                Forgotten::Done
            }
            _ => Forgotten::MovedOn,
        };
        self.admit(None)?;
        Ok(forgotten)
    }

    /// A claim is granted. A once has begun if its owner is there to take the grant. If the grant is only pushed,
    /// it begins when the turn is taken, and an expired record must not count again while it is held.
    pub(super) fn begins(&mut self, hold: &Entry, in_hand: bool) -> Result<(), S::Error> {
        match hold.once {
            Some(_) if in_hand => self.begun(hold),
            Some(_) if self.storage.record(self.now)?.is_none() => self.storage.set_record(None),
            _ => Ok(()),
        }
    }

    /// The owner of a hold takes it, so a once has begun, unless it was settled in the meantime. In that case the
    /// hold ends, and the owner is told what is returned here.
    pub(super) fn take(&mut self, hold: &Entry) -> Result<Option<Answer>, S::Error> {
        let Some(once) = hold.once else { return Ok(None) };
        let over = match self.storage.record(self.now)? {
            Some(record) if record.fence == hold.fence() => return Ok(None),
            Some(record) if !once.agrees(record.content) => Some(Answer::OtherContent),
            Some(Record { outcome: Some(outcome), .. }) => Some(Answer::Settled(outcome)),
            _ => None,
        };
        match over {
            Some(_) => drop(self.storage.remove(&hold.id)?),
            None => self.begun(hold)?,
        }
        Ok(over)
    }

    /// Records that a once has begun.
    fn begun(&mut self, hold: &Entry) -> Result<(), S::Error> {
        let Some(OnceTerms { keep, content, .. }) = hold.once else { return Ok(()) };
        let (fence, until) = (hold.fence(), self.now + keep);
        let doubt = self.storage.record(self.now)?.is_some_and(|before| before.outcome.is_none());
        self.storage.set_record(Some(Record { fence, keep, until, content, doubt, outcome: None }))
    }

    /// Answers a waiting claim of a once that no longer needs a turn.
    pub(super) fn dismiss(&mut self, head: &Entry) -> Result<bool, S::Error> {
        let Some(once) = head.once else { return Ok(false) };
        let is_free = self.storage.totals()?.held == 0;
        let word = match self.storage.record(self.now)? {
            // The claim learns the rest from the answer to its next question, which only it receives.
            Some(record) if is_free && !once.agrees(record.content) => Word::LookAgain,
            Some(Record { outcome: Some(outcome), .. }) => Word::Settled(outcome),
            Some(_) if is_free && !once.rerun => Word::LookAgain,
            _ => return Ok(false),
        };
        self.moves -= 1;
        self.storage.remove(&head.id)?;
        (self.say)(head, word);
        Ok(true)
    }

    pub(super) fn done_before(&self, claim: &Claim) -> Result<Option<Answer>, S::Error> {
        let Some(once) = claim.once else { return Ok(None) };
        Ok(match self.storage.record(self.now)? {
            Some(record) if !once.agrees(record.content) => Some(Answer::OtherContent),
            Some(Record { outcome: Some(outcome), .. }) => Some(Answer::Settled(outcome)),
            Some(_) if !once.rerun && self.storage.totals()?.held == 0 => Some(Answer::Unsettled),
            _ => None,
        })
    }

    /// Settles a once, even after the ttl, so that a slow holder can still report how it ended.
    pub(super) fn settle(&mut self, settle: &Settle) -> Result<(), S::Error> {
        let Some(record) = self.storage.record(self.now)? else { return Ok(()) };
        let stays = settle.outcome.is_none() && record.doubt;
        if record.fence != settle.fence || record.outcome.is_some() || stays {
            return Ok(());
        }
        let settled = settle.outcome.clone().map(|outcome| Record {
            until: self.now + record.keep,
            outcome: Some(outcome),
            ..record
        });
        self.storage.set_record(settled)
    }
}
