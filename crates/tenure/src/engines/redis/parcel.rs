//! What is sent, and who hears the answer.

use tokio::sync::oneshot;

use super::Shared;
use super::resp::Value;
use super::wire::By;
use crate::engine::Ack;
use crate::model::claim::{ClaimId, Leave};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// Who hears the answer.
pub(super) enum Reply {
    One(oneshot::Sender<Result<Heard>>),
    /// Of a claim, whose place is known before any push that follows, whoever polls for it.
    Claim(oneshot::Sender<Result<Heard>>, Name, ClaimId),
    Left(Ack, Leave),
    Ticked(Name),
    Hello(u16),
    Subscribed(u16),
    /// To the question whether the server is still the primary.
    Role,
    Time,
    Nobody,
}

/// An answer, and when what it answers was sent.
pub(super) struct Heard {
    pub(super) value: Value,
    pub(super) sent: Moment,
}

/// How something is sent, and who hears of it.
pub(super) struct Parcel {
    pub(super) by: By,
    pub(super) reply: Reply,
    /// It may make the claim wait, so pushes must come through first.
    pub(super) may_wait: bool,
    /// It goes to a server that does not own the slot yet.
    pub(super) asking: bool,
    /// `WAIT` for this many replicas, this many milliseconds, and who hears how many there were.
    pub(super) wait: Option<(u32, u64, oneshot::Sender<Result<Heard>>)>,
    /// Need not be written before the caller's next command, or until the caller rests.
    pub(super) lazy: bool,
}

impl Parcel {
    pub(super) fn new(reply: Reply) -> Parcel {
        let (by, may_wait, asking, wait, lazy) = (By::Hash, false, false, None, false);
        Parcel { by, reply, may_wait, asking, wait, lazy }
    }

    pub(super) fn fail(self, shared: &Shared, error: &Error) {
        if let Some((_, _, heard)) = self.wait {
            let _ = heard.send(Err(again(error, false)));
        }
        self.reply.fail(shared, error, false);
    }
}

fn again(error: &Error, in_doubt: bool) -> Error {
    let copy = error.copy();
    if in_doubt { copy.in_doubt() } else { copy }
}

impl Reply {
    pub(super) fn fail(self, shared: &Shared, error: &Error, in_doubt: bool) {
        if let Reply::Claim(_, _, id) = &self
            && !in_doubt
        {
            shared.places.not_sent(id);
        }
        if let Reply::One(heard) | Reply::Claim(heard, ..) = self {
            let _ = heard.send(Err(again(error, in_doubt)));
        }
        // An acknowledgement that is dropped says by itself that there was no answer.
    }
}
