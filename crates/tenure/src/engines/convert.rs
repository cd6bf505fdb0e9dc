//! Converts the ledger's answers to the core's types. Moments are the caller's.

use std::sync::Arc;

use crate::ledger::{Answer, Entry, KeepAnswer, Record, Word};
use crate::model::claim::{
    Claim, Details, Ended, Fence, Grant, Holder, Kept, OnceRecord, Place, Renewed, Ticket, Turn,
    Verdict, Waiter, look_again,
};
use crate::model::error::Result;
use crate::model::moment::Moment;

/// The turn for a message that was sent at `now`.
pub(super) fn turn(word: Word, now: Moment) -> Turn {
    match word {
        Word::Granted { fence, life, first_life } => {
            Turn::Granted(Grant::new(fence, now, life, first_life))
        }
        Word::Ended(ended) => Turn::Ended(ended),
        Word::Settled(outcome) => Turn::Settled(outcome),
        // It only asks whether the claim can be reached; looking again does no harm.
        Word::LookAgain | Word::AreYouThere => Turn::LookAgain,
        Word::LookAt(end) => Turn::LookAt(look_again(end, 0)),
    }
}

/// The limits of a claim, which its refusal quotes.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    units: (u32, u32),
    max_waiters: u32,
}

impl Limits {
    pub(super) fn of(claim: &Claim) -> Limits {
        Limits { units: (claim.weight, claim.capacity), max_waiters: claim.max_waiters }
    }
}

/// The answer to a claim. `first` finds the hold that ends first, if that is needed.
pub(super) fn verdict(
    answer: Answer,
    limits: Limits,
    now: Moment,
    first: impl FnOnce() -> Option<Holder>,
) -> Result<Verdict> {
    Ok(match answer {
        Answer::Granted { fence, remaining, first_life } => {
            Verdict::Granted(Grant::new(fence, now, remaining, first_life))
        }
        Answer::Waiting { ticket, ahead, floor, next_end, held_up } => {
            let place = place(ticket, ahead, floor, next_end, now, first());
            Verdict::Waiting(if held_up { place.held_up() } else { place })
        }
        Answer::Busy => Verdict::Busy(first()),
        Answer::Settled(outcome) => Verdict::Settled(outcome),
        Answer::Unsettled => Verdict::Unsettled,
        Answer::Left => Verdict::Left,
        Answer::OtherContent => return Err(Claim::other_content()),
        Answer::Full => return Err(Claim::full(limits.max_waiters)),
        Answer::Conflict { capacity } => {
            return Err(Claim::conflict(limits.units, capacity));
        }
        Answer::Gone(ended) => return Err(ended.into()),
        Answer::Exhausted => return Err(Claim::no_numbers()),
    })
}

/// The answer to a process that keeps a hold with this fence.
pub(super) fn kept(answer: KeepAnswer, fence: Fence, now: Moment) -> Kept {
    match answer {
        KeepAnswer::Held { remaining, first_life, waiting, fences } => {
            Kept::Held { grant: Grant::new(fence, now, remaining, first_life), waiting, fences }
        }
        KeepAnswer::Gone(ended) => Kept::Gone(ended),
    }
}

/// The answer to a renewal.
pub(super) fn renewed(
    answer: Answer,
    now: Moment,
    first: impl FnOnce() -> Option<Holder>,
) -> Renewed {
    match answer {
        Answer::Granted { fence, remaining, first_life } => {
            Renewed::Held(Grant::new(fence, now, remaining, first_life))
        }
        Answer::Waiting { ticket, ahead, floor, next_end, held_up } => {
            let place = place(ticket, ahead, floor, next_end, now, first());
            Renewed::Waiting(if held_up { place.held_up() } else { place })
        }
        Answer::Conflict { capacity } => Renewed::Gone(Ended::Conflict { capacity }),
        Answer::Gone(ended) => Renewed::Gone(ended),
        Answer::Exhausted => Renewed::Unknown(Claim::no_numbers()),
        // The claim itself must ask for the outcome of a once.
        _ => Renewed::Gone(Ended::Expired),
    }
}

fn place(
    ticket: Ticket,
    ahead: u32,
    floor: Fence,
    next_end: Moment,
    now: Moment,
    holder: Option<Holder>,
) -> Place {
    Place { ticket, ahead, floor, asked_at: now, look_again: look_again(next_end, ahead), holder }
}

/// A holder, as others may see it.
pub(super) fn holder((entry, details): (Entry, Arc<Details>), now: Moment) -> Holder {
    Holder {
        fence: entry.fence(),
        weight: entry.weight,
        held_for: now.since(entry.since),
        remaining: now.until(entry.until),
        details,
    }
}

/// The record of a once, as others may see it.
pub(super) fn record(record: Record, now: Moment) -> OnceRecord {
    let Record { fence, outcome, keep, until, .. } = record;
    OnceRecord::new(fence, outcome, keep, now.until(until))
}

/// A waiter, as others may see it.
pub(super) fn waiter((entry, details): (Entry, Arc<Details>), now: Moment) -> Waiter {
    let Entry { ticket, weight, since, .. } = entry;
    Waiter { ticket, weight, waited: now.since(since), details }
}
