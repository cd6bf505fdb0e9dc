//! The state of a name, and the trait for what stores it.

use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::{ClaimId, Details, Fence, Note, OnceTerms, Outcome, Ticket};
use crate::model::moment::Moment;

/// Which process a claim belongs to; 0 where claimants and engine live and die together.
pub type Process = u64;

/// A claim, as it is stored.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Entry {
    /// Whose it is.
    pub id: ClaimId,
    /// Its arrival number.
    pub ticket: Ticket,
    /// Units asked for or held.
    pub weight: u32,
    /// No resize may change the capacity while it is here.
    pub fixed: bool,
    /// How long a grant lasts without renewal.
    pub ttl: Duration,
    /// The process it belongs to.
    pub process: Process,
    /// Set for work that is done once.
    pub once: Option<OnceTerms>,
    /// When it came, or, once it holds, when it was granted.
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

/// What is known of the name as a whole.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Totals {
    /// Units there are; 0 while nobody said.
    pub capacity: u32,
    /// Until when the capacity wins over what claims say.
    pub resized_until: Moment,
    /// Units held.
    pub held: u32,
    /// Claims that wait, those set aside included.
    pub waiting: u32,
    /// Claims, waiting or holding, with a fixed capacity.
    pub fixed: u32,
}

/// What a claim leaves behind when it is gone.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Trace {
    /// It left in doubt: late duplicates of its requests do nothing.
    LeftInDoubt,
    /// It was broken.
    Broken(Note),
}

/// What is known of a once.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Record {
    /// The fence of the one that started last.
    pub fence: Fence,
    /// How long it is kept.
    pub keep: Duration,
    /// Until when.
    pub until: Moment,
    /// The fingerprint of what it was started with.
    pub content: u128,
    /// One before it never said how it ended: that it did not happen is not for this one to say.
    pub doubt: bool,
    /// What it left, once settled.
    pub outcome: Option<Outcome>,
}

/// Where the state of one name is stored.
///
/// It stores and finds; it decides nothing. Whether an entry counts as waiting, set aside or held follows
/// from its [`state`](Entry::state).
pub trait Storage {
    /// Why storing or finding can fail.
    type Error;

    /// The name as a whole.
    fn totals(&self) -> Result<Totals, Self::Error>;
    /// Sets the units there are, and until when they win over what claims say.
    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> Result<(), Self::Error>;
    /// The highest number given so far.
    fn last_number(&self) -> Result<u64, Self::Error>;
    /// The next number, for a fence or a ticket: higher than all before.
    fn next_number(&mut self) -> Result<u64, Self::Error>;
    /// Makes the next number higher than `floor`.
    fn raise_numbers(&mut self, floor: Fence) -> Result<(), Self::Error>;

    /// The claim, if it is here.
    fn find(&self, id: &ClaimId) -> Result<Option<Entry>, Self::Error>;
    /// Adds a claim.
    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> Result<(), Self::Error>;
    /// Changes a claim that is here.
    fn change(&mut self, entry: Entry) -> Result<(), Self::Error>;
    /// Takes a claim away, if it is here.
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
    /// Up to `limit` waiting claims heavier than `weight`, those set aside included.
    fn heavier(&self, weight: u32, limit: u32) -> Result<Vec<Entry>, Self::Error>;
    /// Sets all waiting claims of a process aside, or brings them back.
    fn reach(&mut self, process: Process, reachable: bool) -> Result<(), Self::Error>;

    /// Remembers something of a claim that is gone, in place of what was remembered before.
    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> Result<(), Self::Error>;
    /// What is remembered of a claim that is gone.
    fn traced(&self, id: &ClaimId, now: Moment) -> Result<Option<Trace>, Self::Error>;
    /// What is known of the once of this name; while it is held, however long that takes.
    fn record(&self, now: Moment) -> Result<Option<Record>, Self::Error>;
    /// Changes what is known of the once of this name.
    fn set_record(&mut self, record: Option<Record>) -> Result<(), Self::Error>;
}

impl Entry {
    /// The number of the grant; the lowest there is while it waits.
    pub fn fence(&self) -> Fence {
        match self.state {
            State::Held { fence, .. } => fence,
            State::Waiting | State::Aside => Fence::default(),
        }
    }

    /// Whether it holds with this fence.
    pub(crate) fn holds(&self, with: Fence) -> bool {
        matches!(self.state, State::Held { fence, .. } if fence == with)
    }
}
