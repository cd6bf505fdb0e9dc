//! What the supervisor holds: a lock, a term or a run of work, and how it lets go of it.

use std::ops::Deref;
use std::time::Duration;

use tenure::{Hold, Released, Run, Term};

/// What was granted.
pub(super) enum Held {
    /// `tenure run`.
    Lock(Hold),
    /// `tenure elect`.
    Term(Term),
    /// `tenure once`.
    Work(Run),
}

/// What is said of a work when it is let go of. To a lock or a term it means nothing.
#[derive(Debug)]
pub(super) enum Settling {
    /// It is done, and left this.
    Done(Vec<u8>),
    /// It did not happen: the next one runs it.
    NotDone,
    /// Nobody knows.
    Open,
}

impl Held {
    /// Lets go of it, for as long as the hold itself can last: after that there is nothing to release.
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
            // Dropping says nothing of a work, and a term that is lost cannot be resigned. Whoever
            // closes the connection waits until the engine knows.
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
