//! Batches of steps, as they travel.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{
    Batch, Bytes, DetailsMessage, NameMessage, SpaceMessage, StepRequest, VERSION, id_bytes,
    micros, strange,
};
use crate::model::claim::{
    Claim, Fence, Leave, Note, OnceRecord, OnceTerms, Renewal, Settle, Ticket,
};
use crate::model::error::Result;
use crate::model::view::Scope;

#[derive(Serialize, Deserialize)]
struct BatchMessage {
    v: u32,
    session: Bytes,
    number: u64,
    steps: Vec<StepMessage>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum StepMessage {
    Claim(Box<ClaimMessage>),
    Renew(Vec<RenewalMessage>),
    Leave(Box<LeaveMessage>),
    Detach { name: NameMessage, id: Bytes },
    Resize { name: NameMessage, capacity: u32 },
    Break { name: NameMessage, fence: u64, by: String, reason: String },
    Forget { name: NameMessage, fence: u64, settled: bool },
    InspectName(NameMessage),
    InspectPrefix { space: SpaceMessage, prefix: String, after: Option<String>, limit: usize },
    Health,
    Examine,
}

#[derive(Serialize, Deserialize)]
struct ClaimMessage {
    name: NameMessage,
    id: Bytes,
    weight: u32,
    capacity: u32,
    fixed: bool,
    ttl: u64,
    may_wait: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_waiters: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ticket: Option<u64>,
    seen: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    once: Option<OnceMessage>,
    details: DetailsMessage,
}

#[derive(Serialize, Deserialize)]
struct OnceMessage {
    keep: u64,
    rerun: bool,
    content: Bytes,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum RenewalMessage {
    Hold { name: NameMessage, id: Bytes, fence: u64, ttl: u64 },
    Place(Box<ClaimMessage>),
}

#[derive(Serialize, Deserialize)]
struct LeaveMessage {
    name: NameMessage,
    id: Bytes,
    in_doubt: bool,
    only: Option<u64>,
    only_waiting: bool,
    settle: Option<(u64, Option<Bytes>)>,
    unbegun: bool,
}

impl ClaimMessage {
    fn new(claim: &Claim) -> ClaimMessage {
        ClaimMessage {
            name: NameMessage::new(&claim.name),
            id: id_bytes(&claim.id),
            weight: claim.weight,
            capacity: claim.capacity,
            fixed: claim.fixed,
            ttl: micros(claim.ttl),
            may_wait: claim.may_wait,
            max_waiters: Some(claim.max_waiters).filter(|most| *most < u32::MAX),
            ticket: claim.ticket.map(Ticket::get),
            seen: claim.seen.get(),
            once: claim.once.map(|once| OnceMessage {
                keep: micros(once.keep),
                rerun: once.rerun,
                content: Bytes(once.content.to_be_bytes().to_vec()),
            }),
            details: DetailsMessage::new(&claim.details),
        }
    }

    fn claim(self) -> Result<Claim> {
        let id = self.id.id().ok_or_else(|| strange("a claim"))?;
        let mut claim = Claim::new(self.name.name()?, id);
        (claim.weight, claim.capacity, claim.fixed) = (self.weight, self.capacity, self.fixed);
        (claim.ttl, claim.may_wait) = (Duration::from_micros(self.ttl), self.may_wait);
        claim.max_waiters = self.max_waiters.unwrap_or(u32::MAX);
        claim.ticket = self.ticket.map(Ticket::new);
        claim.seen = Fence::new(self.seen);
        if let Some(OnceMessage { keep, rerun, content }) = self.once {
            let content = <[u8; 16]>::try_from(content.0).map_err(|_| strange("a claim"))?;
            let content = u128::from_be_bytes(content);
            claim.once = Some(OnceTerms { keep: Duration::from_micros(keep), rerun, content });
        }
        claim.details = self.details.details();
        // Whoever decodes it acts on behalf of someone else.
        claim.on_behalf = true;
        Ok(claim)
    }
}

impl RenewalMessage {
    fn new(renewal: &Renewal) -> RenewalMessage {
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => RenewalMessage::Hold {
                name: NameMessage::new(name),
                id: id_bytes(id),
                fence: fence.get(),
                ttl: micros(*ttl),
            },
            Renewal::Place(claim) => RenewalMessage::Place(Box::new(ClaimMessage::new(claim))),
        }
    }

    fn renewal(self) -> Result<Renewal> {
        Ok(match self {
            RenewalMessage::Hold { name, id, fence, ttl } => Renewal::Hold {
                name: name.name()?,
                id: id.id().ok_or_else(|| strange("a renewal"))?,
                fence: Fence::new(fence),
                ttl: Duration::from_micros(ttl),
            },
            RenewalMessage::Place(claim) => Renewal::Place(claim.claim()?),
        })
    }
}

impl LeaveMessage {
    fn new(leave: &Leave) -> LeaveMessage {
        let outcome = |settle: &Settle| settle.outcome.as_ref().map(|bytes| Bytes(bytes.to_vec()));
        LeaveMessage {
            name: NameMessage::new(&leave.name),
            id: id_bytes(&leave.id),
            in_doubt: leave.in_doubt,
            only: leave.only.map(Fence::get),
            only_waiting: leave.only_waiting,
            settle: leave.settle.as_ref().map(|settle| (settle.fence.get(), outcome(settle))),
            unbegun: leave.unbegun,
        }
    }

    fn leave(self) -> Result<Leave> {
        let id = self.id.id().ok_or_else(|| strange("a leave"))?;
        let mut leave = Leave::new(self.name.name()?, id);
        (leave.in_doubt, leave.unbegun) = (self.in_doubt, self.unbegun);
        (leave.only, leave.only_waiting) = (self.only.map(Fence::new), self.only_waiting);
        leave.settle = self.settle.map(|(fence, outcome)| Settle {
            fence: Fence::new(fence),
            outcome: outcome.map(Bytes::outcome),
        });
        Ok(leave)
    }
}

impl StepMessage {
    fn new(step: &StepRequest) -> StepMessage {
        match step {
            StepRequest::Claim(claim) => StepMessage::Claim(Box::new(ClaimMessage::new(claim))),
            StepRequest::Renew(batch) => {
                StepMessage::Renew(batch.iter().map(RenewalMessage::new).collect())
            }
            StepRequest::Leave(leave) => StepMessage::Leave(Box::new(LeaveMessage::new(leave))),
            StepRequest::Detach(name, id) => {
                StepMessage::Detach { name: NameMessage::new(name), id: id_bytes(id) }
            }
            StepRequest::Resize(name, capacity) => {
                StepMessage::Resize { name: NameMessage::new(name), capacity: *capacity }
            }
            StepRequest::Break(name, fence, Note { by, reason }) => StepMessage::Break {
                name: NameMessage::new(name),
                fence: fence.get(),
                by: by.clone(),
                reason: reason.clone(),
            },
            StepRequest::Forget(name, seen) => StepMessage::Forget {
                name: NameMessage::new(name),
                fence: seen.fence.get(),
                settled: seen.outcome.is_some(),
            },
            StepRequest::Inspect(Scope::Name(name)) => {
                StepMessage::InspectName(NameMessage::new(name))
            }
            StepRequest::Inspect(Scope::Prefix { space, prefix, after, limit }) => {
                StepMessage::InspectPrefix {
                    space: SpaceMessage::new(*space),
                    prefix: prefix.clone(),
                    after: after.as_ref().map(|after| after.as_str().to_owned()),
                    limit: *limit,
                }
            }
            StepRequest::Health => StepMessage::Health,
            StepRequest::Examine => StepMessage::Examine,
        }
    }

    fn step(self) -> Result<StepRequest> {
        let bad_id = || strange("a claim");
        Ok(match self {
            StepMessage::Claim(claim) => StepRequest::Claim(claim.claim()?),
            StepMessage::Renew(batch) => {
                let batch = batch.into_iter().map(RenewalMessage::renewal);
                StepRequest::Renew(batch.collect::<Result<_>>()?)
            }
            StepMessage::Leave(leave) => StepRequest::Leave(leave.leave()?),
            StepMessage::Detach { name, id } => {
                StepRequest::Detach(name.name()?, id.id().ok_or_else(bad_id)?)
            }
            StepMessage::Resize { name, capacity } => StepRequest::Resize(name.name()?, capacity),
            StepMessage::Break { name, fence, by, reason } => {
                StepRequest::Break(name.name()?, Fence::new(fence), Note { by, reason })
            }
            StepMessage::Forget { name, fence, settled } => {
                let outcome = settled.then(|| Bytes(Vec::new()).outcome());
                let (keep, left) = (Duration::ZERO, Duration::ZERO);
                let seen = OnceRecord::new(Fence::new(fence), outcome, keep, left);
                StepRequest::Forget(name.name()?, seen)
            }
            StepMessage::InspectName(name) => StepRequest::Inspect(Scope::Name(name.name()?)),
            StepMessage::InspectPrefix { space, prefix, after, limit } => {
                let after = after.map(|name| NameMessage { space, name }.name()).transpose()?;
                StepRequest::Inspect(Scope::Prefix { space: space.space(), prefix, after, limit })
            }
            StepMessage::Health => StepRequest::Health,
            StepMessage::Examine => StepRequest::Examine,
        })
    }
}

pub(super) fn encode(batch: &Batch) -> Vec<u8> {
    let message = BatchMessage {
        v: VERSION,
        session: Bytes(batch.session.to_be_bytes().to_vec()),
        number: batch.number,
        steps: batch.steps.iter().map(StepMessage::new).collect(),
    };
    serde_json::to_vec(&message).unwrap_or_default()
}

pub(super) fn decode(data: &[u8]) -> Result<Batch> {
    let message: BatchMessage =
        serde_json::from_slice(data).map_err(|_| strange("a batch of steps"))?;
    let session = <[u8; 16]>::try_from(message.session.0).ok().filter(|_| message.v == VERSION);
    Ok(Batch {
        session: u128::from_be_bytes(session.ok_or_else(|| strange("a batch of steps"))?),
        number: message.number,
        steps: message.steps.into_iter().map(StepMessage::step).collect::<Result<_>>()?,
    })
}
