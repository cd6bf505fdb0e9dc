//! What the supervisor holds: a lock, a term or a run of a once, and how it is released.

use std::ops::Deref;
use std::time::Duration;

use tenure::{Hold, Released, Run, Term};

/// The granted lock, term or run.
pub(super) enum Held {
    /// `tenure run`.
    Lock(Hold),
    /// `tenure elect`.
    Term(Term),
    /// `tenure once`.
    Work(Run),
}

/// How a once is settled when it is released. Has no meaning for a lock or a term.
#[derive(Debug)]
pub(super) enum Settling {
    /// It is done, with this outcome.
    Done(Vec<u8>),
    /// It did not happen: the next caller runs it.
    NotDone,
    /// The outcome is unknown.
    Open,
}

impl Held {
    /// Releases it. Waits only as long as the hold itself can last: after that there is nothing to release.
    pub(super) async fn let_go(self, settling: Settling) -> Option<Released> {
        let longest = self.remaining() + Duration::from_secs(1);
        tokio::time::timeout(longest, self.leave(settling)).await.ok()?.ok()
    }

    async fn leave(self, settling: Settling) -> tenure::Result<Released> {
        match (self, settling) {
            (Held::Lock(hold), _) => hold.release().await,
            (Held::Term(term), _) if term.is_live() => term.resign().await,
            (Held::Work(work), Settling::Done(outcome)) => work.settle(outcome).await,
            (Held::Work(work), Settling::NotDone) => work.undo().await,
            // Dropping leaves a once unsettled, and a lost term cannot be resigned. Closing the connection waits
            // until the engine knows.
            (lost, _) => Ok(if lost.is_live() { Released::InTime } else { Released::Late }),
        }
    }
}

impl Deref for Held {
    type Target = Hold;

    fn deref(&self) -> &Hold {
        match self {
            Held::Lock(hold) => hold,
            Held::Term(term) => term.hold(),
            Held::Work(work) => work.hold(),
        }
    }
}
