//! The state of a name, and the trait for storing it.

use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::{ClaimId, Details, Fence, Note, OnceTerms, Outcome, Ticket};
use crate::model::moment::Moment;

/// The process that a claim belongs to; 0 if claims and engine are in one process.
pub type Process = u64;

/// A claim, as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// The id of the claim.
    pub id: ClaimId,
    /// Its arrival number.
    pub ticket: Ticket,
    /// Units asked for or held.
    pub weight: u32,
    /// Whether no resize may change the capacity while this claim exists.
    pub fixed: bool,
    /// How long a grant lasts without renewal.
    pub ttl: Duration,
    /// The process it belongs to.
    pub process: Process,
    /// Made by a server for one of its clients.
    pub on_behalf: bool,
    /// Set for work that is done once.
    pub once: Option<OnceTerms>,
    /// When it arrived, or, for a hold, when it was granted.
    pub since: Moment,
    /// When the hold or the place ends.
    pub until: Moment,
    /// Whether it waits or holds.
    pub state: State,
}

/// Whether a claim waits or holds.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum State {
    /// In line.
    Waiting,
    /// In line by its ticket, but passed over until its process makes contact.
    Aside,
    /// Granted.
    Held {
        /// The number of the grant.
        fence: Fence,
        /// Granted for a first life, and not renewed yet.
        first_life: bool,
    },
}

/// The state of the name as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Totals {
    /// The number of units; 0 until a claim has set it.
    pub capacity: u32,
    /// Until when this capacity overrides the one that claims ask for.
    pub resized_until: Moment,
    /// Units held.
    pub held: u32,
    /// Claims that wait, including those set aside.
    pub waiting: u32,
    /// Claims, waiting or holding, with a fixed capacity.
    pub fixed: u32,
}

/// What is remembered of a claim that has ended.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Trace {
    /// It left in doubt: late duplicates of its requests do nothing.
    LeftInDoubt,
    /// It was broken.
    Broken(Note),
}

/// The record of a once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// The fence of the hold that started it last.
    pub fence: Fence,
    /// How long it is kept.
    pub keep: Duration,
    /// Until when it is kept.
    pub until: Moment,
    /// The fingerprint of what it was started with.
    pub content: u128,
    /// An earlier run never reported how it ended, so this one cannot report that the work did not happen.
    pub doubt: bool,
    /// The outcome, if it is settled.
    pub outcome: Option<Outcome>,
}

/// Where the state of one name is stored.
///
/// A storage finds and stores; it decides nothing. Whether an entry counts as waiting, set aside or held follows
/// from its [`state`](Entry::state).
pub trait Storage {
    /// The error of a storage that can fail.
    type Error;

    /// The name as a whole.
    fn totals(&self) -> Result<Totals, Self::Error>;
    /// Sets the capacity, and until when it overrides the one that claims ask for.
    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> Result<(), Self::Error>;
    /// The highest number given so far.
    fn last_number(&self) -> Result<u64, Self::Error>;
    /// The next number, for a fence or a ticket: higher than all before it.
    fn next_number(&mut self) -> Result<u64, Self::Error>;
    /// Makes the next number higher than `floor`.
    fn raise_numbers(&mut self, floor: Fence) -> Result<(), Self::Error>;

    /// The claim, if it exists.
    fn find(&self, id: &ClaimId) -> Result<Option<Entry>, Self::Error>;
    /// Adds a claim.
    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> Result<(), Self::Error>;
    /// Changes an existing claim.
    fn change(&mut self, entry: Entry) -> Result<(), Self::Error>;
    /// Changes what others may know of an existing claim.
    fn describe(&mut self, id: &ClaimId, details: &Arc<Details>) -> Result<(), Self::Error>;
    /// Removes a claim, if it exists.
    fn remove(&mut self, id: &ClaimId) -> Result<Option<Entry>, Self::Error>;

    /// The waiting claim with the lowest ticket.
    fn head(&self) -> Result<Option<Entry>, Self::Error>;
    /// The first `most` waiting claims, by ticket.
    fn first(&self, most: u32) -> Result<Vec<Entry>, Self::Error>;
    /// How many wait with a lower ticket.
    fn ahead(&self, ticket: Ticket) -> Result<u32, Self::Error>;
    /// When the first of the holds ends.
    fn next_end(&self) -> Result<Option<Moment>, Self::Error>;
    /// Up to `limit` claims whose time is over.
    fn ended(&mut self, now: Moment, limit: u32) -> Result<Vec<Entry>, Self::Error>;
    /// The hold with this fence.
    fn holding(&self, fence: Fence) -> Result<Option<Entry>, Self::Error>;
    /// Up to `limit` waiting claims heavier than `weight`, including those set aside.
    fn heavier(&self, weight: u32, limit: u32) -> Result<Vec<Entry>, Self::Error>;
    /// Sets all waiting claims of a process aside, or brings them back.
    fn reach(&mut self, process: Process, reachable: bool) -> Result<(), Self::Error>;

    /// Remembers a claim that has ended, in place of what was remembered before.
    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> Result<(), Self::Error>;
    /// What is remembered of a claim that has ended.
    fn traced(&self, id: &ClaimId, now: Moment) -> Result<Option<Trace>, Self::Error>;
    /// The record of this name's once. While the once is held, it does not expire.
    fn record(&self, now: Moment) -> Result<Option<Record>, Self::Error>;
    /// Replaces the record of this name's once.
    fn set_record(&mut self, record: Option<Record>) -> Result<(), Self::Error>;
}

impl Entry {
    /// The number of the grant; the lowest possible while the claim waits.
    pub fn fence(&self) -> Fence {
        match self.state {
            State::Held { fence, .. } => fence,
            State::Waiting | State::Aside => Fence::default(),
        }
    }

    /// The process that counts as unreachable if the claim does not react. There is none if the claim was made on behalf of
    /// a client, because the process is then only its server.
    pub(crate) fn owner_process(&self) -> Process {
        if self.on_behalf { 0 } else { self.process }
    }

    /// Whether the claim holds with this fence.
    pub(crate) fn holds(&self, with: Fence) -> bool {
        matches!(self.state, State::Held { fence, .. } if fence == with)
    }
}
