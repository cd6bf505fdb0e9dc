//! Renewing a hold that its process hands over among its own claims.

use std::sync::Arc;
use std::time::Duration;

use super::{Entry, HIGHEST_NUMBER, Ledger, State, Storage, Word};
use crate::model::claim::{ClaimId, Details, Ended, Fence, Fences, MOST_FENCES};

/// A claim of the holder's process that has the hold now, with what it asks for.
#[derive(Clone, Debug)]
pub struct Keeper<'a> {
    /// The claim that was granted.
    pub carrier: ClaimId,
    /// The fence of the claim that has the hold now.
    pub fence: Fence,
    /// How long the hold should last from now. Zero does not extend it.
    pub ttl: Duration,
    /// How many fences to give, at most, and the highest that may be given: the wall clock in microseconds, so that
    /// an engine that has lost its counter still continues above all of them.
    pub fences: (u32, u64),
    /// What the claim that has the hold now says about itself.
    pub details: &'a Arc<Details>,
}

/// The answer to a process that keeps a hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeepAnswer {
    /// It holds.
    Held {
        /// For how much longer.
        remaining: Duration,
        /// For a first life, and not renewed yet.
        first_life: bool,
        /// How many wait, including those set aside.
        waiting: u32,
        /// Fences for the next claims of the process.
        fences: Fences,
    },
    /// The hold has ended.
    Gone(Ended),
}

impl<S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'_, S, W> {
    /// Renews a hold for the claim that has it now. Its fence and its details become those of the hold. It is not
    /// below the fence of the hold, so that a late request changes nothing, and it is a number that was given.
    pub fn keep(&mut self, keeper: &Keeper<'_>) -> Result<KeepAnswer, S::Error> {
        self.expire()?;
        let last = self.storage.last_number()?;
        let answer = match self.storage.find(&keeper.carrier)? {
            Some(hold @ Entry { state: State::Held { fence, first_life }, once: None, .. })
                if fence <= keeper.fence && keeper.fence.get() <= last =>
            {
                let first_life = first_life && keeper.ttl.is_zero();
                let state = State::Held { fence: keeper.fence, first_life };
                let since = if fence == keeper.fence { hold.since } else { self.now };
                let mut hold = Entry { since, state, ..hold };
                if !keeper.ttl.is_zero() {
                    hold.until = hold.until.max(self.now + keeper.ttl);
                    if hold.owner_process() != 0 {
                        self.storage.reach(hold.owner_process(), true)?;
                    }
                }
                self.storage.change(hold)?;
                if fence != keeper.fence {
                    self.storage.describe(&hold.id, keeper.details)?;
                }
                let remaining = self.now.until(hold.until);
                let waiting = self.storage.totals()?.waiting;
                let fences = self.numbers(keeper.fences, last)?;
                KeepAnswer::Held { remaining, first_life, waiting, fences }
            }
            _ => KeepAnswer::Gone(self.why_gone(&keeper.carrier)?),
        };
        self.admit(None)?;
        Ok(answer)
    }

    /// Gives numbers in a row, which nobody else is given.
    fn numbers(&mut self, (most, highest): (u32, u64), last: u64) -> Result<Fences, S::Error> {
        let highest = highest.min(HIGHEST_NUMBER - 2).min(last + u64::from(most.min(MOST_FENCES)));
        if highest <= last {
            return Ok(Fences::NONE);
        }
        self.storage.raise_numbers(Fence::new(highest))?;
        Ok(Fences { next: last + 1, last: highest })
    }
}
