//! What can happen to a name and its claimants.

use std::fmt;

/// Something that can happen. A claimant is known by its index.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    /// It asks and may wait; again with the same id, if it has one, and by its ticket.
    Claim(usize),
    /// It asks again, with nobody there to take a grant.
    Keep(usize),
    /// It asks, and may not wait.
    Try(usize),
    /// It renews its hold; without a hold, it tries with the highest fence there is.
    Renew(usize),
    Leave(usize),
    LeaveInDoubt(usize),
    /// A late duplicate of a claim that left in doubt.
    Duplicate(usize),
    Break(usize),
    Deafen(usize),
    Hear(usize),
    /// A minute has passed since its last contact, but not since that of the others.
    PlaceEnds(usize),
    Resize(u32),
    /// A second passes, and all waiting claims keep their places meanwhile.
    Second,
    /// A minute passes, and nobody does anything.
    Minute,
    /// A step in which no claim asks.
    Look,
}

impl Action {
    /// The claimant that acts.
    pub(crate) fn who(self) -> Option<usize> {
        match self {
            Action::Claim(who)
            | Action::Keep(who)
            | Action::Try(who)
            | Action::Renew(who)
            | Action::Leave(who)
            | Action::LeaveInDoubt(who)
            | Action::Duplicate(who)
            | Action::Break(who)
            | Action::Deafen(who)
            | Action::Hear(who)
            | Action::PlaceEnds(who) => Some(who),
            Action::Resize(_) | Action::Second | Action::Minute | Action::Look => None,
        }
    }
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let does = match self {
            Action::Claim(_) => "claims",
            Action::Keep(_) => "keeps its place",
            Action::Try(_) => "tries",
            Action::Renew(_) => "renews",
            Action::Leave(_) => "leaves",
            Action::LeaveInDoubt(_) => "leaves in doubt",
            Action::Duplicate(_) => "is claimed for by a late duplicate",
            Action::Break(_) => "is broken",
            Action::Deafen(_) => "becomes deaf",
            Action::Hear(_) => "hears again",
            Action::PlaceEnds(_) => "has not been heard of for a minute",
            Action::Resize(capacity) => return write!(f, "resize to {capacity}"),
            Action::Second => "a second passes",
            Action::Minute => "a minute passes",
            Action::Look => "someone looks",
        };
        match self.who() {
            Some(who) => write!(f, "{} {does}", ["a", "b", "c", "d"][who]),
            None => f.write_str(does),
        }
    }
}
