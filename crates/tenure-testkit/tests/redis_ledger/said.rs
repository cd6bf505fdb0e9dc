//! What each side said, in the same terms, and whether that is the same.
//!
//! The numbers of the two sides differ: scripts waste some, and names share a counter. What must agree is their
//! order.

use std::collections::BTreeMap;
use std::fmt::Debug;

use tenure::engine::{Ended, Holder, Waiter};

/// Milliseconds.
pub(crate) type Millis = u64;

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Said {
    Granted {
        fence: u64,
        remaining: Millis,
        first_life: bool,
    },
    /// With the first and the last of the fences that were given; none if the first is higher.
    Kept {
        remaining: Millis,
        first_life: bool,
        waiting: u32,
        fences: (u64, u64),
    },
    /// `holders`: any of them may be shown, because their holds end at the same moment.
    Waiting {
        ticket: u64,
        ahead: u32,
        floor: u64,
        next_end: Option<Millis>,
        holders: Vec<Holder>,
    },
    Busy {
        holders: Vec<Holder>,
    },
    Full,
    /// The capacity, if it was reported.
    Conflict(Option<u32>),
    Settled(Vec<u8>),
    Unsettled,
    OtherContent,
    Left,
    /// `None` if the reason was not reported.
    Gone(Option<Ended>),
    Released,
    Quit,
    Done,
    MovedOn,
    /// An answer that should never occur.
    Odd(String),
}

/// A push.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Word {
    Granted { fence: u64, life: Millis, first_life: bool },
    Ended(Ended),
    Settled(Vec<u8>),
    LookAgain,
    LookAt(Millis),
}

/// One name, as shown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    pub(crate) capacity: u32,
    pub(crate) holders: Vec<Holder>,
    pub(crate) waiters: Vec<Waiter>,
}

/// Why the two sides differ.
pub(crate) type Same = Result<(), String>;

pub(crate) fn same<T: PartialEq + Debug>(what: &str, redis: &T, ledger: &T) -> Same {
    if redis == ledger {
        return Ok(());
    }
    Err(format!("{what}: redis {redis:?}, ledger {ledger:?}"))
}

/// A number of Redis and the one of the ledger that it stands for.
pub(crate) type Pair = (u64, u64);

/// Numbers of Redis, and the corresponding ones of the ledger.
type Given = BTreeMap<u64, u64>;

/// The numbers given so far, which both sides must give in the same order.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    fences: Given,
    tickets: Given,
    floor: Pair,
}

impl Numbers {
    pub(crate) fn fence(&mut self, what: &str, pair: Pair) -> Same {
        self.pair(what, pair, |numbers| (&mut numbers.fences, &numbers.tickets))?;
        // A group takes the ticket of a claim, which then joins by a step of its own. What that step grants before
        // has a lower number in the ledger, and a higher one here.
        let later = self.tickets.range(pair.0..).find(|(_, ledger)| **ledger < pair.1);
        let Some(ticket) = later else { return Ok(()) };
        Err(format!("{what}: {pair:?} is below {ticket:?}, a ticket that was given before"))
    }

    pub(crate) fn ticket(&mut self, what: &str, pair: Pair) -> Same {
        self.pair(what, pair, |numbers| (&mut numbers.tickets, &numbers.fences))?;
        let before = self.fences.range(..pair.0).next_back();
        match before.filter(|(_, ledger)| **ledger > pair.1) {
            None => Ok(()),
            Some(fence) => Err(format!("{what}: {pair:?} is above {fence:?}, a fence given later")),
        }
    }

    fn pair(
        &mut self,
        what: &str,
        (redis, ledger): Pair,
        which: fn(&mut Numbers) -> (&mut Given, &Given),
    ) -> Same {
        let wrong = |why: &str| Err(format!("{what}: redis {redis}, ledger {ledger}: {why}"));
        let floor = self.floor;
        let (given, others) = which(self);
        match given.get(&redis) {
            Some(known) if *known == ledger => return Ok(()),
            Some(_) => return wrong("redis gave this number before, for another"),
            None if others.contains_key(&redis) => {
                return wrong("redis gave this number before, for something else");
            }
            None => {}
        }
        let before = given.range(..redis).next_back();
        let after = given.range(redis..).next();
        if before.is_some_and(|(_, before)| *before >= ledger) {
            return wrong("redis gave a higher number where the ledger did not");
        }
        if after.is_some_and(|(_, after)| *after <= ledger) {
            return wrong("redis gave a lower number where the ledger did not");
        }
        if (redis > floor.0) != (ledger > floor.1) {
            return wrong(&format!("the floor was {floor:?}"));
        }
        given.insert(redis, ledger);
        Ok(())
    }

    /// Nothing up to the floor is given any more; every number given so far is below it.
    fn floor(&mut self, (redis, ledger): Pair) -> Same {
        let (given, _) = self.last();
        if redis < given {
            return Err(format!("the floor {redis} is below {given}, which was given before"));
        }
        self.floor = (self.floor.0.max(redis), self.floor.1.max(ledger));
        Ok(())
    }

    /// The highest pair that was given.
    pub(crate) fn last(&self) -> Pair {
        let last = |given: &Given| given.last_key_value().map(|(a, b)| (*a, *b));
        last(&self.fences).max(last(&self.tickets)).unwrap_or_default()
    }
}

/// How often each case occurred.
pub(crate) type Tally = BTreeMap<&'static str, u64>;

impl Word {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Word::Granted { .. } => "turn",
            Word::Ended(Ended::Broken(_)) => "told: broken",
            Word::Ended(_) => "told: conflict",
            Word::Settled(_) => "told: settled",
            Word::LookAgain => "told: look again",
            Word::LookAt(_) => "hint",
        }
    }
}

impl Said {
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Said::Granted { first_life: true, .. } => "granted for a first life",
            Said::Granted { .. } => "granted",
            Said::Kept { fences, .. } if fences.0 > fences.1 => "kept without fences",
            Said::Kept { .. } => "kept",
            Said::Waiting { .. } => "waiting",
            Said::Busy { .. } => "busy",
            Said::Full => "full",
            Said::Conflict(_) => "conflict",
            Said::Settled(_) => "settled",
            Said::Unsettled => "unsettled",
            Said::OtherContent => "other content",
            Said::Left => "left",
            Said::Gone(Some(Ended::Broken(_))) => "gone: broken",
            Said::Gone(_) => "gone",
            Said::Released => "released",
            Said::Quit => "quit",
            Said::Done => "done",
            Said::MovedOn => "moved on",
            Said::Odd(_) => "odd",
        }
    }

    /// `vague`: some in line have ended or cannot be reached. The scripts deal with them when they come upon them, so
    /// there may be more claims ahead than by the ledger.
    pub(crate) fn is_same(&self, ledger: &Said, numbers: &mut Numbers, vague: bool) -> Same {
        match (self, ledger) {
            (
                Said::Granted { fence, remaining, first_life },
                Said::Granted { fence: fence_l, remaining: remaining_l, first_life: first_life_l },
            ) => {
                same("what remains", remaining, remaining_l)?;
                same("first life", first_life, first_life_l)?;
                numbers.fence("fence", (*fence, *fence_l))
            }
            (Said::Waiting { .. }, Said::Waiting { .. }) => {
                self.waits_alike(ledger, numbers, vague)
            }
            (Said::Kept { .. }, Said::Kept { .. }) => self.kept_alike(ledger, numbers, vague),
            (Said::Busy { holders }, Said::Busy { holders: any }) => one_of(holders, any, numbers),
            (Said::Conflict(None), Said::Conflict(_)) | (Said::Gone(None), Said::Gone(_)) => Ok(()),
            _ => same("the answer", self, ledger),
        }
    }

    fn kept_alike(&self, ledger: &Said, numbers: &mut Numbers, vague: bool) -> Same {
        let Said::Kept { remaining, first_life, waiting, fences } = self else { return Ok(()) };
        let Said::Kept { remaining: remaining_l, first_life: first_life_l, .. } = ledger else {
            return Ok(());
        };
        let Said::Kept { waiting: waiting_l, fences: fences_l, .. } = ledger else {
            return Ok(());
        };
        same("what remains", remaining, remaining_l)?;
        same("first life", first_life, first_life_l)?;
        if !vague || waiting < waiting_l {
            same("how many wait", waiting, waiting_l)?;
        }
        let count = |(first, last): &(u64, u64)| (last + 1).saturating_sub(*first);
        same("how many fences", &count(fences), &count(fences_l))?;
        if count(fences) == 0 {
            return Ok(());
        }
        numbers.fence("the first fence of a block", (fences.0, fences_l.0))?;
        numbers.fence("the last fence of a block", (fences.1, fences_l.1))
    }

    fn waits_alike(&self, other: &Said, numbers: &mut Numbers, vague: bool) -> Same {
        let Said::Waiting { ticket, ahead, floor, next_end, holders } = self else {
            return Ok(());
        };
        let Said::Waiting { ticket: ticket_l, ahead: ahead_l, floor: floor_l, .. } = other else {
            return Ok(());
        };
        let Said::Waiting { next_end: next_end_l, holders: any, .. } = other else {
            return Ok(());
        };
        if !vague || ahead < ahead_l {
            same("how many are ahead", ahead, ahead_l)?;
        }
        if !vague || ahead == ahead_l {
            same("when to look", next_end, next_end_l)?;
        }
        numbers.ticket("ticket", (*ticket, *ticket_l))?;
        numbers.floor((*floor, *floor_l))?;
        one_of(holders, any, numbers)
    }
}

/// Whether the shown holder is one of the possible ones.
fn one_of(shown: &[Holder], any: &[Holder], numbers: &mut Numbers) -> Same {
    let Some(holder) = shown.first() else { return same("who holds", &shown, &any) };
    let alike = |other: &&Holder| holders_alike(holder, other).is_ok();
    let Some(other) = any.iter().find(alike) else { return same("who holds", &shown, &any) };
    if any.len() == 1 {
        numbers.fence("the holder's fence", (holder.fence.get(), other.fence.get()))?;
    }
    Ok(())
}

fn holders_alike(redis: &Holder, ledger: &Holder) -> Same {
    same("weight", &redis.weight, &ledger.weight)?;
    same("held for", &redis.held_for, &ledger.held_for)?;
    same("what remains", &redis.remaining, &ledger.remaining)?;
    same("details", &redis.details, &ledger.details)
}

impl Shown {
    pub(crate) fn is_same(&self, ledger: &Shown, numbers: &mut Numbers) -> Same {
        let count = |shown: &Shown| (shown.holders.len(), shown.waiters.len());
        if count(self) != count(ledger) && self.waiters.len() > 20 {
            return same("how many hold and wait", &count(self), &count(ledger));
        }
        if count(self) != count(ledger) {
            return same("who is shown", self, ledger);
        }
        same("the capacity shown", &self.capacity, &ledger.capacity)?;
        for (redis, ledger) in self.holders.iter().zip(&ledger.holders) {
            holders_alike(redis, ledger).map_err(|why| format!("a holder is shown with {why}"))?;
            numbers.fence("fence shown", (redis.fence.get(), ledger.fence.get()))?;
        }
        for (redis, ledger) in self.waiters.iter().zip(&ledger.waiters) {
            let facts = |it: &Waiter| (it.weight, it.waited, it.details.clone());
            same("a waiter is shown with", &facts(redis), &facts(ledger))?;
            numbers.ticket("ticket shown", (redis.ticket.get(), ledger.ticket.get()))?;
        }
        Ok(())
    }
}
