//! Renewing the hold that a process hands over among its own claims.

use std::sync::Arc;
use std::time::Duration;

use super::{ClaimId, Details, Ended, Fence, Grant};
use crate::model::name::Name;

/// The largest number of fences that are asked for with one [`Keep`].
pub const MOST_FENCES: u32 = 65_536;

/// Renews the hold of a claim, the *carrier*, that is handed over within its process: it now belongs to another
/// claim of the process, with a later fence.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Keep {
    /// The name that is held.
    pub name: Name,
    /// The carrier's proof of ownership.
    pub id: ClaimId,
    /// The fence of the claim that has the hold now: not below the one that the engine knows, and one that the
    /// engine has given.
    pub fence: Fence,
    /// How long the hold should last from now. Zero does not extend it.
    pub ttl: Duration,
    /// How many fences to give, at most.
    pub fences: u32,
    /// What others may know of the claim that has the hold now.
    pub details: Arc<Details>,
}

impl Keep {
    /// Keeps the hold of `id`, with everything that must be said.
    pub fn new(
        name: Name,
        id: ClaimId,
        fence: Fence,
        ttl: Duration,
        details: Arc<Details>,
    ) -> Keep {
        Keep { name, id, fence, ttl, fences: 0, details }
    }
}

/// The answer to a [`Keep`].
#[derive(Debug)]
pub enum Kept {
    /// The carrier holds.
    Held {
        /// For how long.
        grant: Grant,
        /// How many claims wait at the engine, including those that cannot be reached.
        waiting: u32,
        /// Fences for the next claims of the process. Nobody else is given one of them.
        fences: Fences,
    },
    /// The hold has ended.
    Gone(Ended),
}

/// Fences in a row, from `next` to `last`; none if `next` is higher.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Fences {
    /// The lowest.
    pub next: u64,
    /// The highest.
    pub last: u64,
}

impl Fences {
    /// No fences.
    pub const NONE: Fences = Fences { next: 1, last: 0 };

    pub(crate) fn take(&mut self) -> Option<Fence> {
        let fence = (self.next <= self.last).then_some(self.next)?;
        self.next += 1;
        Some(Fence::new(fence))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.next > self.last
    }
}
