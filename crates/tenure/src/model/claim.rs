//! The words that the core and the engines speak to each other, as plain data.

mod ended;
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
pub use self::number::{Fence, Ticket};
pub use self::outcome::Released;
pub(crate) use self::outcome::RenewalOutcome;
pub use self::place::{Place, look_again};
pub use self::risk::Risk;

/// How long a pushed turn lasts until its first renewal, unless the ttl is shorter.
pub const FIRST_LIFE: Duration = Duration::from_secs(2);
/// How long a place in line lasts without contact.
pub const PLACE_LIFE: Duration = Duration::from_secs(60);

/// Proves that a claim is yours: 128 bits of the operating system's generator. A secret.
///
/// `Debug` and `Display` show a fingerprint of it that is safe to log.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClaimId([u8; 16]);

impl ClaimId {
    /// No claim's id.
    pub(crate) const NONE: ClaimId = ClaimId([0; 16]);

    /// Takes 16 random bytes as an id.
    pub const fn from_bytes(bytes: [u8; 16]) -> ClaimId {
        ClaimId(bytes)
    }

    /// The secret itself, for an engine to send.
    pub const fn to_bytes(self) -> [u8; 16] {
        self.0
    }

    /// 64 of its bits. An id is random already, so tables need no further hash of it.
    pub(crate) fn bits(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_le_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Display for ClaimId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // 32 bits out of 128: enough to follow a claim through a log, not enough to guess it.
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

/// What others may know about a claim: shown with the holder and in the logs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
#[non_exhaustive]
pub struct Details {
    /// Who asks. Default: `host:pid`.
    pub owner: String,
    /// Why, in the asker's words. Default: none.
    pub reason: Option<String>,
    /// Pairs such as a correlation id. Default: none.
    pub meta: Vec<(String, String)>,
    /// What a leader wants everyone to know, such as its address. Default: none.
    pub value: Option<String>,
    /// Where the work is traced, as a W3C `traceparent`, so that who waits can be led there.
    /// Default: none.
    pub trace: Option<String>,
}

/// One request to hold a name.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Claim {
    /// What is contended.
    pub name: Name,
    /// The proof of ownership, made by the asker.
    pub id: ClaimId,
    /// Units asked for.
    pub weight: u32,
    /// Units there are.
    pub capacity: u32,
    /// The capacity is part of what is asked for, as with a mutex: no resize may change it.
    pub fixed: bool,
    /// How long a grant lasts without renewal.
    pub ttl: Duration,
    /// Whether to stand in line when it cannot be granted now.
    pub may_wait: bool,
    /// Join only if fewer than this many wait.
    pub max_waiters: u32,
    /// The place it had before, if it ever had one. Engines that accept claims from strangers must
    /// not believe it.
    pub ticket: Option<Ticket>,
    /// The highest fence that the asker's process has seen: the engine's numbers go on above it.
    pub seen: Fence,
    /// Set for work that is done once.
    pub once: Option<OnceTerms>,
    /// What others may know.
    pub details: Arc<Details>,
}

impl Claim {
    /// A claim for one of one, as of a mutex, ready to be changed: 30 s, waits, no limit of waiters.
    pub fn new(name: Name, id: ClaimId) -> Claim {
        Claim {
            name,
            id,
            weight: 1,
            capacity: 1,
            fixed: true,
            ttl: Duration::from_secs(30),
            may_wait: true,
            max_waiters: u32::MAX,
            ticket: None,
            seen: Fence::default(),
            once: None,
            details: Arc::default(),
        }
    }
}

/// What engines answer when a claim cannot be served, in the same words.
impl Claim {
    pub(crate) fn full(max_waiters: u32) -> Error {
        let reason = format!("the line is full: its limit is {max_waiters}");
        Error::new(ErrorKind::Full, reason).next("try again later")
    }

    pub(crate) fn conflict(asked: (u32, u32), capacity: u32) -> Error {
        let (weight, of) = asked;
        let reason =
            format!("the name has a capacity of {capacity}; this claim says {weight} of {of}");
        let error = Error::new(ErrorKind::Conflict, reason);
        error.next("all users of a name must agree; resize changes it for all")
    }

    pub(crate) fn other_content() -> Error {
        let reason = "it was started with other content (the fingerprints differ)";
        let error = Error::new(ErrorKind::Conflict, reason);
        error.next("use another name for other work, or send what was sent the first time")
    }

    pub(crate) fn no_numbers() -> Error {
        let reason = "there are no numbers left for fences, which stay below 2^53";
        let next =
            "is the highest fence that was seen, or the engine's counter, what it should be?";
        Error::new(ErrorKind::Conflict, reason).next(next)
    }

    pub(crate) fn capacity_is_fixed() -> Error {
        let reason = "the name is used with a capacity that is fixed, as by a mutex";
        Error::new(ErrorKind::Conflict, reason).next("give the semaphore a name of its own")
    }
}

/// What a claim for work that is done once says besides.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct OnceTerms {
    /// How long its start and its outcome are remembered.
    pub keep: Duration,
    /// Whether to run it again when an earlier holder started and never settled.
    pub rerun: bool,
    /// A fingerprint of what it is done with, so that the same name with other content is refused; 0
    /// agrees with any.
    pub content: u128,
}

impl OnceTerms {
    /// Whether what was started with `content` is the same work.
    pub(crate) fn agrees(&self, content: u128) -> bool {
        self.content == content || self.content == 0 || content == 0
    }
}

/// What a `once` left, in bytes.
pub type Outcome = Arc<[u8]>;

/// The engine's yes, in the caller's time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Grant {
    /// The number of this grant.
    pub fence: Fence,
    /// When what the engine answered was asked.
    pub sent: Moment,
    /// The hold is lost at this moment unless it was renewed before.
    pub good_until: Moment,
    /// The first renewal is due.
    pub renew_by: Moment,
    /// Work may start without asking again until this moment; after it, renew first.
    pub start_by: Moment,
    /// Granted for a first life: one renewal makes it the full ttl, also where renewing is off.
    pub first_life: bool,
}

impl Grant {
    /// The grant that a yes with `remaining` time makes of a request sent at `sent`.
    ///
    /// For a pushed turn, `sent` is the send time of the claim's last contact that was answered
    /// *waiting*, or of any request that was answered before the push on the very connection that
    /// brought it. A contact that found the grant is no base for it: the grant is older. And a turn
    /// whose fence is not above the floor of the contact that is its base is stale: the engine drops
    /// it, because the core may not have heard of that contact yet.
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

/// Someone who holds, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Holder {
    /// The fence of the hold; `break_hold` takes it.
    pub fence: Fence,
    /// Units held.
    pub weight: u32,
    /// For how long already.
    pub held_for: Duration,
    /// How long until it ends unless renewed.
    pub remaining: Duration,
    /// What the holder says of itself.
    pub details: Arc<Details>,
}

/// Someone who waits, as others may see it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Waiter {
    /// Its arrival number.
    pub ticket: Ticket,
    /// Units asked for.
    pub weight: u32,
    /// For how long already.
    pub waited: Duration,
    /// What the waiter says of itself.
    pub details: Arc<Details>,
}

/// The answer to a claim.
#[derive(Clone, Debug)]
pub enum Verdict {
    /// It is yours.
    Granted(Grant),
    /// You stand in line.
    Waiting(Place),
    /// It cannot be granted now and the claim did not want to wait.
    Busy(Option<Holder>),
    /// It was done before; this is what it left.
    Settled(Outcome),
    /// Someone started it and never said how it ended; the claim refuses to run it again.
    Unsettled,
    /// This claim has left: a late duplicate of its request did nothing.
    Left,
}

/// What the watchdog asks for: that a hold or a place goes on.
#[derive(Clone, Debug)]
pub enum Renewal {
    /// Make the hold last its ttl from now. Never creates one, never shortens one. A ttl of zero only
    /// asks whether it is held, and changes nothing.
    Hold {
        /// What is held.
        name: Name,
        /// The proof.
        id: ClaimId,
        /// The fence it was granted with.
        fence: Fence,
        /// How long it should last from now.
        ttl: Duration,
    },
    /// Keep the place; come back to it by ticket if the engine set it aside or forgot it. A grant
    /// that this contact makes lasts a first life, because its caller may not be there to take it.
    Place(Claim),
}

/// The answer to one [`Renewal`].
#[derive(Debug)]
pub enum Renewed {
    /// The claim holds.
    Held(Grant),
    /// The claim waits.
    Waiting(Place),
    /// The claim is no more.
    Gone(Ended),
    /// No answer for this one; the others of the batch may have theirs.
    Unknown(Error),
}

/// The end of a claim, by its owner.
#[derive(Clone, Debug)]
pub struct Leave {
    /// What was held or waited for.
    pub name: Name,
    /// The proof.
    pub id: ClaimId,
    /// An earlier request of this claim was never answered and may still arrive: remember for a
    /// minute that it has left.
    pub in_doubt: bool,
    /// Only if it holds with this fence: for a turn that nobody took, whose claim may hold again.
    pub only: Option<Fence>,
    /// For a once: what became of it.
    pub settle: Option<Settle>,
    /// For a once: its caller never heard of a grant, so that it was not begun.
    pub unbegun: bool,
}

impl Leave {
    /// Leaves without a word.
    pub fn new(name: Name, id: ClaimId) -> Leave {
        Leave { name, id, in_doubt: false, only: None, settle: None, unbegun: false }
    }
}

/// How a holder of a once finishes it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settle {
    /// The fence it was granted with. It counts also after the ttl, if nobody started again.
    pub fence: Fence,
    /// What to remember; `None`: it did not happen, so that the next one runs.
    pub outcome: Option<Outcome>,
}

/// The answer to a [`Leave`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Left {
    /// It was held until now.
    Released,
    /// It was waiting until now.
    Quit,
    /// It had ended before.
    Gone(Ended),
}

/// What became of an attempt to break a hold.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Broken {
    /// It is broken, and the next in line has been served.
    Done,
    /// No hold has that fence any more; nothing was broken.
    MovedOn,
}

/// What is remembered of work that is done once.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct OnceRecord {
    /// The fence of whoever started it last.
    pub fence: Fence,
    /// What it left; `None` while it runs, and if whoever started it never said how it ended.
    pub outcome: Option<Outcome>,
    /// How long ago it was settled, or was started if it was not.
    pub age: Duration,
    /// How long it is still remembered. What runs is remembered at least until its end.
    pub remaining: Duration,
}

impl OnceRecord {
    /// A record that is kept for `keep` in all, and for `remaining` from now on.
    pub fn new(
        fence: Fence,
        outcome: Option<Outcome>,
        keep: Duration,
        remaining: Duration,
    ) -> OnceRecord {
        OnceRecord { fence, outcome, age: keep.saturating_sub(remaining), remaining }
    }
}

/// What became of an attempt to forget a once.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Forgotten {
    /// It is forgotten: whoever asks next runs it.
    Done,
    /// It is not as it was seen any more: it runs, or was settled, started again or forgotten. Nothing
    /// was changed.
    MovedOn,
}

/// What an engine pushes.
#[derive(Clone, Debug)]
pub enum Turn {
    /// It is yours.
    Granted(Grant),
    /// Your claim ended.
    Ended(Ended),
    /// The once you wait for is done.
    Settled(Outcome),
    /// Something may have been missed: ask.
    LookAgain,
    /// Someone before you was given its turn, by push: if you have heard nothing until then, ask.
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
