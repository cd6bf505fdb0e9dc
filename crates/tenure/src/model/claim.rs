//! The types that the core and the engines exchange, as plain data.

mod ended;
mod keep;
mod number;
mod outcome;
mod place;
mod risk;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::error::{Error, ErrorKind};
use crate::model::moment::{self, Moment};
use crate::model::name::Name;

pub use self::ended::{Ended, Note};
pub use self::keep::{Fences, Keep, Kept, MOST_FENCES};
pub use self::number::{Fence, Ticket};
pub use self::outcome::Released;
pub(crate) use self::outcome::RenewalOutcome;
pub use self::place::{Place, look_again};
pub use self::risk::Risk;

/// How long a pushed turn lasts before its first renewal, unless the ttl is shorter.
pub const FIRST_LIFE: Duration = Duration::from_secs(2);
/// For each name, the claims that wait are told at most this often when to look whether a pushed turn was taken.
/// So a shorter hold may end without most of them being told.
pub(crate) const NOTICES_EVERY: Duration = Duration::from_secs(1);
/// How long a place in line lasts without contact.
pub const PLACE_LIFE: Duration = Duration::from_secs(60);

/// Proves ownership of a claim: 128 random bits. A secret.
///
/// `Debug` and `Display` show a fingerprint of it that is safe to log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// An id that no claim has.
    pub(crate) const NONE: ClaimId = ClaimId([0; 16]);

    /// Takes 16 random bytes as an id.
    pub const fn from_bytes(bytes: [u8; 16]) -> ClaimId {
        ClaimId(bytes)
    }

    /// The secret itself, for an engine to send.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// 64 of its bits. An id is random, so tables need no further hash of it.
    pub(crate) fn bits(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 32 of 128 bits: enough to follow a claim through a log, not enough to guess it.
        let all = u128::from_le_bytes(self.0);
        let fold = (all ^ (all >> 32) ^ (all >> 64) ^ (all >> 96)) as u32;
        write!(f, "{fold:08x}")
    }
}

impl fmt::Debug for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClaimId({self})")
    }
}

/// What others may know about a claim. It is shown with the holder and in logs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Details {
    /// Who makes the claim. Default: `host:pid`.
    pub owner: String,
    /// The reason, as free text. Default: none.
    pub reason: Option<String>,
    /// Pairs such as a correlation id. Default: none.
    pub meta: Vec<(String, String)>,
    /// What a leader publishes, such as its address. Default: none.
    pub value: Option<String>,
    /// The trace of the work, as a W3C `traceparent`, which waiters are shown. Default: none.
    pub trace: Option<String>,
}

/// One request to hold a name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// The name to hold.
    pub name: Name,
    /// The proof of ownership, made by the claimant.
    pub id: ClaimId,
    /// Units to hold.
    pub weight: u32,
    /// Units that the name has.
    pub capacity: u32,
    /// The capacity is part of the request, as with a mutex: no resize may change it.
    pub fixed: bool,
    /// How long a grant lasts without renewal.
    pub ttl: Duration,
    /// Whether to wait in line if it cannot be granted now.
    pub may_wait: bool,
    /// Made by a server for one of its clients: the last process that asks for it is told of its turn, its
    /// expiry says nothing about that process, and it does not end with that process.
    pub on_behalf: bool,
    /// Other claims of its process may be given the hold when it leaves, and give it to this one.
    pub shared: bool,
    /// Join the line only if fewer than this many wait.
    pub max_waiters: u32,
    /// The place it had before, if it ever had one. Engines that accept claims from strangers must not trust it.
    pub ticket: Option<Ticket>,
    /// The highest fence that the claimant's process has seen: the engine's numbers continue above it.
    pub seen: Fence,
    /// Set for work that is done once.
    pub once: Option<OnceTerms>,
    /// What others may know.
    pub details: Arc<Details>,
}

impl Claim {
    /// A claim for one unit of one, as for a mutex, ready to be changed: 30 s, waits, no limit of waiters.
    pub fn new(name: Name, id: ClaimId) -> Claim {
        Claim {
            name,
            id,
            weight: 1,
            capacity: 1,
            fixed: true,
            ttl: Duration::from_secs(30),
            may_wait: true,
            on_behalf: false,
            shared: false,
            max_waiters: u32::MAX,
            ticket: None,
            seen: Fence::default(),
            once: None,
            details: Arc::default(),
        }
    }
}

/// The errors with which all engines refuse a claim.
impl Claim {
    pub(crate) fn full(max_waiters: u32) -> Error {
        let reason = format!("the line is full: its limit is {max_waiters}");
        Error::new(ErrorKind::Full, reason).next("try again later")
    }

    pub(crate) fn conflict(asked: (u32, u32), capacity: u32) -> Error {
        let (weight, of) = asked;
        let reason =
            format!("the name has a capacity of {capacity}; this claim asks for {weight} of {of}");
        let error = Error::new(ErrorKind::Conflict, reason);
        error.next("all users of a name must agree; resize changes it for all")
    }

    pub(crate) fn other_content() -> Error {
        let reason = "it was started with other content (the fingerprints differ)";
        let error = Error::new(ErrorKind::Conflict, reason);
        error.next("use another name for other work, or repeat the original content")
    }

    pub(crate) fn no_numbers() -> Error {
        let reason = "there are no numbers left for fences, which stay below 2^53";
        let next = "check the engine's counter, and the highest fence that claims carry";
        Error::new(ErrorKind::Conflict, reason).next(next)
    }

    pub(crate) fn capacity_is_fixed() -> Error {
        let reason = "the name is used with a capacity that is fixed, as by a mutex";
        Error::new(ErrorKind::Conflict, reason).next("give the semaphore a name of its own")
    }
}

/// The additional terms of a claim for work that is done once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OnceTerms {
    /// How long its start and its outcome are remembered.
    pub keep: Duration,
    /// Whether to run it again if an earlier holder started it and never settled it.
    pub rerun: bool,
    /// A fingerprint of the content, so that the same name with other content is refused; 0 matches any content.
    pub content: u128,
}

impl OnceTerms {
    /// Whether work that was started with `content` is the same work.
    pub(crate) fn agrees(&self, content: u128) -> bool {
        self.content == content || self.content == 0 || content == 0
    }
}

/// The outcome of a once, in bytes.
pub type Outcome = Arc<[u8]>;

/// A grant, in the caller's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The number of this grant.
    pub fence: Fence,
    /// When the request that was granted was sent.
    pub sent: Moment,
    /// The hold is lost at this moment, unless it is renewed before.
    pub good_until: Moment,
    /// When the first renewal is due.
    pub renew_by: Moment,
    /// Until this moment work may start without asking again; after it, renew first.
    pub start_by: Moment,
    /// Granted for a first life: one renewal extends it to the full ttl, even if renewing is off.
    pub first_life: bool,
}

impl Grant {
    /// The grant from an answer with `remaining` time to a request sent at `sent`.
    ///
    /// For a pushed turn, `sent` is when the claim's last request that was answered *waiting* was sent, or any
    /// request that was answered before the push on the same connection. A request that found the grant cannot
    /// be used: the grant is older. And a turn whose fence is not above the floor of the request that is used
    /// is stale: the engine must drop it, because the core may not have handled the answer to that request yet.
    pub fn new(fence: Fence, sent: Moment, remaining: Duration, first_life: bool) -> Grant {
        Grant {
            fence,
            sent,
            good_until: moment::good_until(sent, remaining),
            renew_by: moment::part(sent, remaining, 3),
            start_by: moment::part(sent, remaining, 2),
            first_life,
        }
    }
}

/// A holder, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The fence of the hold, which `break_hold` takes.
    pub fence: Fence,
    /// Units held.
    pub weight: u32,
    /// How long it has been held.
    pub held_for: Duration,
    /// How long until it ends, unless it is renewed.
    pub remaining: Duration,
    /// What the holder says about itself.
    pub details: Arc<Details>,
}

/// A waiter, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its arrival number.
    pub ticket: Ticket,
    /// Units asked for.
    pub weight: u32,
    /// How long it has waited.
    pub waited: Duration,
    /// What the waiter says about itself.
    pub details: Arc<Details>,
}

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// The claim holds.
    Granted(Grant),
    /// The claim waits in line.
    Waiting(Place),
    /// It cannot be granted now, and the claim does not want to wait.
    Busy(Option<Holder>),
    /// The work was done before, with this outcome.
    Settled(Outcome),
    /// The work was started before and never settled, and the claim does not want to run it again.
    Unsettled,
    /// The claim has left: a late duplicate of its request had no effect.
    Left,
}

/// A request of the watchdog to keep a hold or a place.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// Extend the hold to `ttl` from now. Never creates a hold, never shortens one. A ttl of zero changes
    /// nothing, and only asks whether it is held.
    Hold {
        /// The name that is held.
        name: Name,
        /// The proof of ownership.
        id: ClaimId,
        /// The fence it was granted with.
        fence: Fence,
        /// How long it should last from now.
        ttl: Duration,
    },
    /// Keep the place, or return to it by ticket if the engine has set it aside or forgotten it. A grant made by
    /// this request lasts a first life, because its caller may not be there to take it.
    Place(Claim),
}

/// The answer to one [`Renewal`].
#[derive(Debug)]
pub enum Renewed {
    /// The claim holds.
    Held(Grant),
    /// The claim waits.
    Waiting(Place),
    /// The claim has ended.
    Gone(Ended),
    /// There is no answer for this one; others of the batch may have one.
    Unknown(Error),
}

/// The end of a claim by its owner.
#[derive(Clone, Debug)]
pub struct Leave {
    /// The name that was held or waited for.
    pub name: Name,
    /// The proof of ownership.
    pub id: ClaimId,
    /// An earlier request of this claim was never answered and may still arrive: remember for a minute that the
    /// claim has left.
    pub in_doubt: bool,
    /// Leave only if it holds with this fence. With `unbegun` it gives a turn back that nobody took, and ends the hold only in
    /// its first life, and only if this process was the last to ask: otherwise an answer has brought the turn to its claim.
    pub only: Option<Fence>,
    /// The fence with which its caller had the hold. Without one, the caller never had it.
    pub held: Option<Fence>,
    /// Leave only if it waits, and this process was the last to ask for it. For a client of a server that went
    /// away: it may wait at another server by now.
    pub only_waiting: bool,
    /// For a once: how it ended.
    pub settle: Option<Settle>,
    /// For a once: its caller never learned of the grant, so it has not begun.
    pub unbegun: bool,
}

impl Leave {
    /// Leaves, without any of the options.
    pub fn new(name: Name, id: ClaimId) -> Leave {
        Leave {
            name,
            id,
            in_doubt: false,
            only: None,
            held: None,
            only_waiting: false,
            settle: None,
            unbegun: false,
        }
    }
}

/// How a holder of a once finishes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    /// The fence it was granted with. It counts even after the ttl, if nobody has started the once again.
    pub fence: Fence,
    /// The outcome to remember. `None` means that it did not happen, so the next claim runs it.
    pub outcome: Option<Outcome>,
}

/// The answer to a [`Leave`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// It held until now.
    Released,
    /// It waited until now.
    Quit,
    /// It had ended before.
    Gone(Ended),
}

/// The result of breaking a hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    /// It is broken, and the next in line has been served.
    Done,
    /// No hold has that fence any more, so nothing was broken.
    MovedOn,
}

/// What is remembered of work that is done once.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OnceRecord {
    /// The fence of the hold that started it last.
    pub fence: Fence,
    /// The outcome; `None` while it runs, and if the run never reported how it ended.
    pub outcome: Option<Outcome>,
    /// How long ago it was settled, or started if it is not settled.
    pub age: Duration,
    /// How long it is still remembered. A running once is remembered at least until its end.
    pub remaining: Duration,
}

impl OnceRecord {
    /// A record that is kept for `keep` in total, and for `remaining` from now on.
    pub fn new(
        fence: Fence,
        outcome: Option<Outcome>,
        keep: Duration,
        remaining: Duration,
    ) -> OnceRecord {
        OnceRecord { fence, outcome, age: keep.saturating_sub(remaining), remaining }
    }
}

/// The result of forgetting a once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forgotten {
    /// It is forgotten: the next claim runs it.
    Done,
    /// It has changed since it was seen: it runs, or was settled, started again or forgotten. Nothing was
    /// changed.
    MovedOn,
}

/// What an engine pushes.
#[derive(Clone, Debug)]
pub enum Turn {
    /// The claim holds.
    Granted(Grant),
    /// The claim ended.
    Ended(Ended),
    /// The once that the claim waits for is done.
    Settled(Outcome),
    /// Something may have been missed: ask again.
    LookAgain,
    /// A turn was pushed to a claim before this one: ask again at that time, unless something was heard before.
    LookAt(Moment),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_never_shows_itself() {
        let id = ClaimId::from_bytes([0xAB; 16]);
        let shown = format!("{id} {id:?} {:?}", Leave::new(name(), id));
        assert!(!shown.to_lowercase().contains("abab"), "{shown}");
        assert!(!shown.contains("171"), "{shown}");
    }

    fn name() -> Name {
        Name::new(crate::model::name::Space::Lock, "x").unwrap()
    }
}
