//! A request on its way out, and where its answer goes.

use tokio::sync::oneshot;

use super::groups::GroupedStep;
use crate::engine::Ack;
use crate::engines::redis::protocol::resp::Value;
use crate::engines::redis::protocol::scripts::ScriptForm;
use crate::engines::redis::shared::Shared;
use crate::model::claim::{ClaimId, Leave};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// Where an answer goes.
pub(crate) enum ReplyTo {
    One(oneshot::Sender<Result<Reply>>),
    /// To a claim. Its place is recorded by the reading task, before any later push is handled and even if
    /// nobody polls the claim.
    Claim(oneshot::Sender<Result<Reply>>, Name, ClaimId),
    Left(Ack, Leave),
    /// To each step of a group.
    Group(Vec<GroupedStep>),
    Ticked(Name),
    Hello(u16),
    Subscribed(u16),
    /// The answer to `ROLE`: whether the server is still the primary.
    Role,
    Time,
    Nobody,
}

/// An answer, and when its request was sent.
pub(crate) struct Reply {
    pub(crate) value: Value,
    pub(crate) sent: Moment,
}

/// How a request is sent, and where its answer goes.
pub(crate) struct Outgoing {
    pub(crate) form: ScriptForm,
    pub(crate) reply: ReplyTo,
    /// The claim may have to wait, so it must be subscribed to pushes first.
    pub(crate) may_wait: bool,
    /// The server is still importing the slot, so `ASKING` must come first.
    pub(crate) asking: bool,
    /// `WAIT` for this many replicas and this many milliseconds; the sender receives the number of replicas.
    pub(crate) wait: Option<(u32, u64, oneshot::Sender<Result<Reply>>)>,
    /// May be written with the caller's next command, or when the caller's task yields.
    pub(crate) lazy: bool,
}

impl Outgoing {
    pub(crate) fn new(reply: ReplyTo) -> Outgoing {
        let (form, may_wait, asking, wait, lazy) = (ScriptForm::Hash, false, false, None, false);
        Outgoing { form, reply, may_wait, asking, wait, lazy }
    }

    pub(crate) fn fail(self, shared: &Shared, error: &Error) {
        if let Some((_, _, heard)) = self.wait {
            let _ = heard.send(Err(again(error, false)));
        }
        self.reply.fail(shared, error, false);
    }
}

fn again(error: &Error, in_doubt: bool) -> Error {
    let copy = error.clone();
    if in_doubt { copy.in_doubt() } else { copy }
}

impl ReplyTo {
    /// How many steps the answer is for.
    pub(super) fn steps(&self) -> usize {
        match self {
            ReplyTo::One(_) | ReplyTo::Claim(..) | ReplyTo::Left(..) => 1,
            ReplyTo::Group(steps) => steps.len(),
            _ => 0,
        }
    }

    /// Whether nobody waits for the answer.
    pub(super) fn is_abandoned(&self) -> bool {
        match self {
            ReplyTo::One(heard) | ReplyTo::Claim(heard, ..) => heard.is_closed(),
            _ => false,
        }
    }

    pub(crate) fn fail(self, shared: &Shared, error: &Error, in_doubt: bool) {
        if let ReplyTo::Group(steps) = self {
            steps.into_iter().for_each(|step| step.reply.fail(shared, error, in_doubt));
            return;
        }
        if let ReplyTo::Claim(_, _, id) = &self
            && !in_doubt
        {
            shared.waiting.places.not_sent(id);
        }
        if let ReplyTo::One(heard) | ReplyTo::Claim(heard, ..) = self {
            let _ = heard.send(Err(again(error, in_doubt)));
        }
        // Dropping an `Ack` reports that there was no answer.
    }
}
