//! The rule: who holds, who waits, who comes next. No clock, no IO, no async.
//!
//! A name has a capacity and a line. What is held stays held until it leaves or ends. Free is the
//! capacity less the weight held; the *waiting* claims are walked by ticket and admitted while they
//! fit, and the first that does not fit ends the walk. That is every primitive there is.
//!
//! The rule works on a [`Storage`], which has the state of one name, so that every engine written in Rust runs
//! the very same code; [`Line`] is the storage in memory. The caller makes the step atomic. Moments here are
//! the engine's.

mod line;
mod notices;
mod once;
mod storage;

use std::fmt;
use std::time::Duration;

use crate::model::claim::{
    Broken, Claim, ClaimId, Ended, FIRST_LIFE, Fence, Leave, Left, Note, Outcome, PLACE_LIFE,
    Settle, Ticket,
};
use crate::model::moment::Moment;

pub use line::{Line, Numbers};
pub use notices::{FARTHEST_LOOKER, LOOKERS, LOOKERS_APART};
pub use storage::{Entry, Process, Record, State, Storage, Totals, Trace};

/// The most claims that one step ends, admits or sets aside.
pub const MOVES: u32 = 512;
/// How long a claim that left in doubt is remembered.
pub const LEFT_LIFE: Duration = Duration::from_secs(60);
/// The highest number that is given: with one more, a fence would not fit into a double any more.
pub const HIGHEST_NUMBER: u64 = (1 << 53) - 1;
/// How long a capacity that was set by force is remembered by an idle name.
pub const RESIZED_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a step says to claims other than the one that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// It is yours, for `life`.
    Granted {
        /// The number of the grant.
        fence: Fence,
        /// How long it lasts.
        life: Duration,
        /// Whether that is less than its ttl.
        first_life: bool,
    },
    /// Your claim ended.
    Ended(Ended),
    /// The once you wait for is done.
    Settled(Outcome),
    /// Ask again.
    LookAgain,
    /// Ask again if you have heard nothing until then: the one before you may not take its turn.
    LookAt(Moment),
    /// Nothing: only whether you can be reached is of interest.
    AreYouThere,
}

/// The answer to a claim or a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// It is yours.
    Granted {
        /// The number of the grant.
        fence: Fence,
        /// What remains of it.
        remaining: Duration,
        /// Granted for a first life, and not renewed yet.
        first_life: bool,
    },
    /// You stand in line.
    Waiting {
        /// The arrival number.
        ticket: Ticket,
        /// How many wait before.
        ahead: u32,
        /// No fence up to this one can be its turn.
        floor: Fence,
        /// When the first hold ends.
        next_end: Moment,
        /// Units enough for it are free, and one before it that needs more of them holds it up.
        held_up: bool,
    },
    /// It cannot be granted now, and you did not want to wait.
    Busy,
    /// Too many wait already.
    Full,
    /// The name has another capacity.
    Conflict {
        /// The capacity it has.
        capacity: u32,
    },
    /// It was done before.
    Settled(Outcome),
    /// It was started before and never settled.
    Unsettled,
    /// It was started before, with other content.
    OtherContent,
    /// This claim has left.
    Left,
    /// The hold is no more.
    Gone(Ended),
    /// There are no numbers left to give.
    Exhausted,
}

/// One step on one name.
pub struct Ledger<'a, S, W> {
    storage: &'a mut S,
    now: Moment,
    say: W,
    moves: u32,
    /// Someone asks for a place in line: whoever holds it up must be there.
    asks: bool,
    /// Who was found to be there, so that nobody is asked twice.
    is_there: Option<ClaimId>,
    /// What ends with this step was held so briefly that the others were told not long ago.
    brief: bool,
}

impl<S, W> fmt::Debug for Ledger<'_, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a, S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'a, S, W> {
    /// A step at `now`. `say` tells a claim something and answers whether it was reached.
    pub fn new(storage: &'a mut S, now: Moment, say: W) -> Ledger<'a, S, W> {
        Ledger { storage, now, say, moves: MOVES, asks: false, is_there: None, brief: false }
    }

    /// Whether the step stopped at its bound, and should be run again.
    pub fn more(&self) -> bool {
        self.moves == 0
    }

    /// A claim asks, or asks again. `in_hand` says that its caller is there to take a grant, which
    /// then lasts the full ttl.
    pub fn claim(
        &mut self,
        claim: &Claim,
        process: Process,
        in_hand: bool,
    ) -> Result<Answer, S::Error> {
        if self.storage.traced(&claim.id, self.now)? == Some(Trace::LeftInDoubt) {
            return Ok(Answer::Left);
        }
        // Numbers go on above a ticket that comes back, too: it must not be given a second time.
        let ticket = Fence::new(claim.ticket.unwrap_or_default().get());
        let floor = claim.seen.max(ticket);
        if exhausted(floor.get()) {
            return Ok(Answer::Exhausted);
        }
        self.storage.raise_numbers(floor)?;
        self.expire()?;
        // Any claim is contact, whatever becomes of it, and must not pass the places it brings back.
        if process != 0 {
            self.storage.reach(process, true)?;
        }
        let known = self.storage.find(&claim.id)?;
        if let Some(hold @ Entry { state: State::Held { .. }, .. }) = known {
            let over = if in_hand { self.take(&hold)? } else { None };
            self.admit(None)?;
            return over.map_or_else(|| self.answer(&claim.id), Ok);
        }
        if exhausted(self.storage.last_number()?) {
            return Ok(Answer::Exhausted);
        }
        self.asks = true;
        if let Some(answer) = self.done_before(claim)? {
            if known.is_some() {
                self.storage.remove(&claim.id)?;
            }
            self.admit(None)?;
            return Ok(answer);
        }
        if let Some(place) = known {
            let until = self.now + PLACE_LIFE;
            self.storage.change(Entry { until, state: State::Waiting, ..place })?;
        } else if let Some(answer) = self.join(claim, process, in_hand)? {
            // Refused or not, it was contact, and any contact moves the line.
            if claim.ticket.is_some() {
                self.admit(None)?;
            }
            return Ok(answer);
        }
        self.admit(Some((claim.id, in_hand)))?;
        self.answer(&claim.id)
    }

    /// A hold wants to last its ttl from now. For no time at all, someone only asks whether it is held.
    pub fn renew(&mut self, id: &ClaimId, fence: Fence, ttl: Duration) -> Result<Answer, S::Error> {
        self.expire()?;
        let answer = match self.storage.find(id)? {
            Some(hold) if hold.holds(fence) && ttl.is_zero() => self.answer(id)?,
            Some(hold) if hold.holds(fence) => match self.take(&hold)? {
                // The claim itself must ask for what a once left.
                Some(_) => Answer::Gone(Ended::Expired),
                None => {
                    self.prolong(hold, fence, ttl)?;
                    self.answer(id)?
                }
            },
            _ => Answer::Gone(self.why_gone(id)?),
        };
        self.admit(None)?;
        Ok(answer)
    }

    fn prolong(&mut self, hold: Entry, fence: Fence, ttl: Duration) -> Result<(), S::Error> {
        let until = hold.until.max(self.now + ttl);
        let state = State::Held { fence, first_life: false };
        self.storage.change(Entry { until, state, ..hold })?;
        if hold.process != 0 {
            self.storage.reach(hold.process, true)?;
        }
        Ok(())
    }

    /// A claim leaves.
    pub fn leave(&mut self, leave: &Leave) -> Result<Left, S::Error> {
        self.expire()?;
        if let Some(fence) = leave.only
            && !self.storage.find(&leave.id)?.is_some_and(|entry| entry.holds(fence))
        {
            self.admit(None)?;
            return Ok(Left::Gone(self.why_gone(&leave.id)?));
        }
        // While it still holds: its record may be older than `keep`, and counts for as long as that.
        if let Some(settle) = &leave.settle {
            // Who says how it ended has begun it.
            if let Some(hold) = self.storage.find(&leave.id)?
                && settle.outcome.is_some()
                && hold.holds(settle.fence)
            {
                self.take(&hold)?;
            }
            self.settle(settle)?;
        } else if leave.unbegun
            && let Some(hold) = self.storage.find(&leave.id)?
        {
            self.settle(&Settle { fence: hold.fence(), outcome: None })?;
        }
        let left = match self.storage.remove(&leave.id)? {
            Some(hold @ Entry { state: State::Held { .. }, .. }) => {
                self.brief = self.moves == MOVES && notices::is_same_second(hold.since, self.now);
                Left::Released
            }
            Some(_) => Left::Quit,
            None => Left::Gone(self.why_gone(&leave.id)?),
        };
        if leave.in_doubt {
            self.storage.trace(leave.id, Trace::LeftInDoubt, self.now + LEFT_LIFE)?;
        }
        self.admit(None)?;
        Ok(left)
    }

    /// An operator ends the hold with this fence.
    pub fn break_hold(&mut self, fence: Fence, note: &Note) -> Result<Broken, S::Error> {
        self.expire()?;
        let Some(hold) = self.storage.holding(fence)? else {
            self.admit(None)?;
            return Ok(Broken::MovedOn);
        };
        self.storage.remove(&hold.id)?;
        // Its holder may ask once more before its own deadline, and must not hear "expired".
        let until = hold.until.max(self.now + hold.ttl);
        self.storage.trace(hold.id, Trace::Broken(note.clone()), until)?;
        (self.say)(&hold, Word::Ended(Ended::Broken(note.clone())));
        self.admit(None)?;
        Ok(Broken::Done)
    }

    /// An operator changes how many units there are; not while a claim is here for which that is fixed.
    /// Returns whether it is changed.
    pub fn resize(&mut self, capacity: u32) -> Result<bool, S::Error> {
        self.expire()?;
        if self.storage.totals()?.fixed > 0 {
            self.admit(None)?;
            return Ok(false);
        }
        self.storage.set_capacity(capacity, self.now + RESIZED_LIFE)?;
        // A head that can never fit would keep everyone behind it waiting for ever.
        for place in self.storage.heavier(capacity, self.moves)? {
            self.refuse(&place, capacity)?;
        }
        self.admit(None)?;
        Ok(true)
    }

    /// Nobody in particular asks: only time has passed.
    pub fn tick(&mut self) -> Result<(), S::Error> {
        self.expire()?;
        self.admit(None)
    }

    fn expire(&mut self) -> Result<(), S::Error> {
        for entry in self.storage.ended(self.now, self.moves)? {
            self.moves -= 1;
            self.storage.remove(&entry.id)?;
            // A process that let a hold run out is probably gone: its other places must not cost
            // the line a first life each.
            if entry.process != 0 && matches!(entry.state, State::Held { .. }) {
                self.storage.reach(entry.process, false)?;
            }
        }
        Ok(())
    }

    /// Refuses a new claim or lets it in, if either can be said at once; else puts it in line.
    ///
    /// A newcomer stands last, so whoever can be served before it is: it is refused only what they do
    /// not leave over. One that comes back by ticket may stand before them, and they wait for it.
    fn join(
        &mut self,
        claim: &Claim,
        process: Process,
        in_hand: bool,
    ) -> Result<Option<Answer>, S::Error> {
        if claim.ticket.is_none() && self.storage.totals()?.waiting > 0 {
            self.admit(None)?;
        }
        let Totals { capacity, resized_until, held, waiting, .. } = self.storage.totals()?;
        let used = held > 0 || waiting > 0;
        // While the name is used it wins for longer, so that nobody is refused overnight.
        let resized = resized_until > self.now || used && resized_until > Moment::ORIGIN;
        let capacity = if resized || used {
            capacity
        } else {
            self.storage.set_capacity(claim.capacity, Moment::ORIGIN)?;
            claim.capacity
        };
        let agrees = capacity == claim.capacity || resized && !claim.fixed;
        if !agrees || claim.weight > capacity {
            return Ok(Some(Answer::Conflict { capacity }));
        }
        let fits = claim.weight <= capacity.saturating_sub(held);
        let comes_next = fits && self.storage.head()?.is_none();
        if !comes_next && !claim.may_wait {
            return Ok(Some(Answer::Busy));
        }
        // Coming back by ticket is not joining: that place was granted before the line filled up.
        if !comes_next && claim.ticket.is_none() && waiting >= claim.max_waiters {
            return Ok(Some(Answer::Full));
        }
        let ticket = match claim.ticket {
            Some(ticket) => ticket,
            None => Ticket::new(self.storage.next_number()?),
        };
        let place = Entry {
            id: claim.id,
            ticket,
            weight: claim.weight,
            fixed: claim.fixed,
            ttl: claim.ttl,
            process,
            once: claim.once,
            since: self.now,
            until: self.now + PLACE_LIFE,
            state: State::Waiting,
        };
        if !comes_next {
            self.storage.add(place, &claim.details)?;
            return Ok(None);
        }
        let fence = Fence::new(self.storage.next_number()?);
        let hold = self.granted(place, fence, in_hand);
        self.begins(&hold, in_hand)?;
        self.storage.add(hold, &claim.details)?;
        let first_life = matches!(hold.state, State::Held { first_life: true, .. });
        Ok(Some(Answer::Granted { fence, remaining: self.now.until(hold.until), first_life }))
    }

    /// The walk: waiting claims by ticket, while they fit.
    fn admit(&mut self, asker: Option<(ClaimId, bool)>) -> Result<(), S::Error> {
        let mut pushed = None;
        while self.moves > 0 && self.storage.last_number()? < HIGHEST_NUMBER {
            let Some(head) = self.storage.head()? else { break };
            if self.dismiss(&head)? {
                continue;
            }
            let Totals { capacity, held, .. } = self.storage.totals()?;
            if head.weight > capacity {
                // More than one step could end when the capacity was changed.
                self.refuse(&head, capacity)?;
                continue;
            }
            if head.weight > capacity.saturating_sub(held) {
                let asks = asker.is_some_and(|(id, _)| id == head.id);
                if held < capacity && !asks && self.is_missing(&head) {
                    self.moves -= 1;
                    self.storage.change(Entry { state: State::Aside, ..head })?;
                    continue;
                }
                break;
            }
            self.moves -= 1;
            let fence = Fence::new(self.storage.next_number()?);
            let asks = asker.filter(|(id, _)| *id == head.id);
            let hold = self.granted(head, fence, asks.is_some_and(|(_, in_hand)| in_hand));
            let first_life = matches!(hold.state, State::Held { first_life: true, .. });
            let life = self.now.until(hold.until);
            // Who asks hears it by the answer; all others must be reached.
            let heard =
                asks.is_some() || (self.say)(&head, Word::Granted { fence, life, first_life });
            if heard {
                if asks.is_none() {
                    pushed = Some(head.process);
                }
                self.begins(&hold, asks.is_some_and(|(_, in_hand)| in_hand))?;
                self.storage.change(hold)?;
            } else {
                self.storage.change(Entry { state: State::Aside, ..head })?;
            }
        }
        match pushed {
            Some(process) => self.tell_when_to_look(process),
            None => Ok(()),
        }
    }

    /// The entry as a hold.
    fn granted(&self, place: Entry, fence: Fence, in_hand: bool) -> Entry {
        let life = if in_hand { place.ttl } else { place.ttl.min(FIRST_LIFE) };
        let state = State::Held { fence, first_life: life < place.ttl };
        Entry { since: self.now, until: self.now + life, state, ..place }
    }

    /// Ends a waiting claim that can never fit.
    fn refuse(&mut self, place: &Entry, capacity: u32) -> Result<(), S::Error> {
        self.moves -= 1;
        self.storage.remove(&place.id)?;
        (self.say)(place, Word::Ended(Ended::Conflict { capacity }));
        Ok(())
    }

    fn answer(&self, id: &ClaimId) -> Result<Answer, S::Error> {
        let Some(entry) = self.storage.find(id)? else {
            return Ok(Answer::Gone(self.why_gone(id)?));
        };
        Ok(match entry.state {
            State::Held { fence, first_life } => {
                Answer::Granted { fence, remaining: self.now.until(entry.until), first_life }
            }
            State::Waiting | State::Aside => Answer::Waiting {
                ticket: entry.ticket,
                ahead: self.storage.ahead(entry.ticket)?,
                held_up: self.is_held_up(&entry)?,
                // Every grant from now on gets a higher number than any given so far.
                floor: Fence::new(self.storage.last_number()?),
                next_end: self.storage.next_end()?.unwrap_or(Moment::FAR),
            },
        })
    }

    fn is_held_up(&self, place: &Entry) -> Result<bool, S::Error> {
        let Totals { capacity, held, .. } = self.storage.totals()?;
        let fits = place.weight <= capacity.saturating_sub(held);
        Ok(fits && self.storage.head()?.is_some_and(|head| head.ticket < place.ticket))
    }

    fn why_gone(&self, id: &ClaimId) -> Result<Ended, S::Error> {
        Ok(match self.storage.traced(id, self.now)? {
            Some(Trace::Broken(note)) => Ended::Broken(note),
            _ => Ended::Expired,
        })
    }
}

/// Whether no ticket and no fence are left above `number`.
fn exhausted(number: u64) -> bool {
    number > HIGHEST_NUMBER - 2
}
