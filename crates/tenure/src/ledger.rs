//! The rule: who holds, who waits, who comes next. No clock, no IO, no async.
//!
//! A name has a capacity and a line. A hold lasts until its owner leaves or its time is over. The free units
//! are the capacity less the weight held. The *waiting* claims are walked by ticket and admitted while they
//! fit; the first that does not fit ends the walk. Every primitive is a case of this rule. The rule works on a [`Storage`], which has the state of one name, so every engine written in Rust runs the
//! same code; [`Line`] is one in memory. The caller makes the step atomic. Moments are on the engine's clock.

mod keep;
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

pub use keep::{KeepAnswer, Keeper};
pub use line::{Line, Numbers};
pub use notices::{FARTHEST_LOOKER, LOOKERS, LOOKERS_APART};
pub use storage::{Entry, Process, Record, State, Storage, Totals, Trace};

/// The largest number of claims that one step ends, admits or sets aside.
pub const MOVES: u32 = 512;
/// How long a claim that left in doubt is remembered.
pub const LEFT_LIFE: Duration = Duration::from_secs(60);
/// The highest number that is given: a higher fence would not fit into a double.
pub const HIGHEST_NUMBER: u64 = (1 << 53) - 1;
/// How long an idle name remembers a capacity that an operator has set.
pub const RESIZED_LIFE: Duration = Duration::from_secs(24 * 60 * 60);

/// What a step tells claims other than the one that made it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Word {
    /// The claim now holds, for `life`.
    Granted {
        /// The number of the grant.
        fence: Fence,
        /// How long it lasts.
        life: Duration,
        /// Whether that is shorter than its ttl.
        first_life: bool,
    },
    /// The claim ended.
    Ended(Ended),
    /// The once that the claim waits for is done.
    Settled(Outcome),
    /// Ask again.
    LookAgain,
    /// Ask again at that time, unless something is heard before then: the claim ahead may not take its turn.
    LookAt(Moment),
    /// Carries nothing: it only finds out whether the claim can be reached.
    AreYouThere,
}

/// The answer to a claim or a renewal.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// The claim holds.
    Granted {
        /// The number of the grant.
        fence: Fence,
        /// How long it still lasts.
        remaining: Duration,
        /// Granted for a first life, and not renewed yet.
        first_life: bool,
    },
    /// The claim waits in line.
    Waiting {
        /// The arrival number.
        ticket: Ticket,
        /// How many wait before it.
        ahead: u32,
        /// A turn with a fence up to this one is not for this claim.
        floor: Fence,
        /// When the first of the holds ends.
        next_end: Moment,
        /// Enough units for it are free, but a claim before it needs more and holds it up.
        held_up: bool,
    },
    /// It cannot be granted now, and the claim does not want to wait.
    Busy,
    /// Too many wait already.
    Full,
    /// The name has a different capacity.
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
    /// The hold has ended.
    Gone(Ended),
    /// There are no numbers left.
    Exhausted,
}

/// One step on one name.
pub struct Ledger<'a, S, W> {
    storage: &'a mut S,
    now: Moment,
    say: W,
    moves: u32,
    /// A claim asks for a place, so check whether the claim that holds it up can be reached.
    asks: bool,
    /// The claim that was found to be reachable, so that it is not asked twice.
    is_there: Option<ClaimId>,
    /// The hold that ends in this step was so short that the others were told recently.
    brief: bool,
}

impl<S, W> fmt::Debug for Ledger<'_, S, W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger").field("now", &self.now).finish_non_exhaustive()
    }
}

impl<'a, S: Storage, W: FnMut(&Entry, Word) -> bool> Ledger<'a, S, W> {
    /// Makes a step at `now`. `say` tells a claim something, and whether it was reached.
    pub fn new(storage: &'a mut S, now: Moment, say: W) -> Ledger<'a, S, W> {
        Ledger { storage, now, say, moves: MOVES, asks: false, is_there: None, brief: false }
    }

    /// Whether the step stopped at its limit and should be run again.
    pub fn more(&self) -> bool {
        self.moves == 0
    }

    /// A claim asks, or asks again. `in_hand` means that its caller is there to take a grant, which then lasts
    /// the full ttl.
    pub fn claim(
        &mut self,
        claim: &Claim,
        process: Process,
        in_hand: bool,
    ) -> Result<Answer, S::Error> {
        if self.storage.traced(&claim.id, self.now)? == Some(Trace::LeftInDoubt) {
            return Ok(Answer::Left);
        }
        // Numbers also continue above a ticket that returns: it must not be given a second time.
        let ticket = Fence::new(claim.ticket.unwrap_or_default().get());
        let floor = claim.seen.max(ticket);
        if exhausted(floor.get()) {
            return Ok(Answer::Exhausted);
        }
        self.storage.raise_numbers(floor)?;
        self.expire()?;
        // Any claim counts as contact, even if it is refused. The places it brings back come before the claim
        // itself.
        if process != 0 {
            self.storage.reach(process, true)?;
        }
        let mut known = self.storage.find(&claim.id)?;
        let mut moves_here = false;
        if let Some(entry) = known.as_mut().filter(|entry| entry.on_behalf) {
            moves_here = entry.process != process;
            entry.process = process;
        }
        if let Some(hold @ Entry { state: State::Held { .. }, .. }) = known {
            if moves_here {
                self.storage.change(hold)?;
            }
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
            // Even if it is refused it was contact, and any contact moves the line.
            if claim.ticket.is_some() {
                self.admit(None)?;
            }
            return Ok(answer);
        }
        self.admit(Some((claim.id, in_hand)))?;
        self.answer(&claim.id)
    }

    /// Extends a hold to `ttl` from now. A ttl of zero only asks whether it is held.
    pub fn renew(&mut self, id: &ClaimId, fence: Fence, ttl: Duration) -> Result<Answer, S::Error> {
        self.expire()?;
        let answer = match self.storage.find(id)? {
            Some(hold) if hold.holds(fence) && ttl.is_zero() => self.answer(id)?,
            Some(hold) if hold.holds(fence) => match self.take(&hold)? {
                // The claim itself must ask for the outcome of a once.
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
        let process = hold.owner_process();
        if process != 0 {
            self.storage.reach(process, true)?;
        }
        Ok(())
    }

    /// A claim leaves; `process` is the one that asks for it.
    pub fn leave(&mut self, leave: &Leave, process: Process) -> Result<Left, S::Error> {
        self.expire()?;
        if !self.may_leave(leave, process)? {
            self.admit(None)?;
            return Ok(Left::Gone(self.why_gone(&leave.id)?));
        }
        // Before the hold ends: its record may be older than `keep`, and counts while it is held.
        if let Some(settle) = &leave.settle {
            // A leave that reports an outcome proves that the once has begun.
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
                self.brief = self.moves == MOVES && notices::is_brief(hold.since, self.now);
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

    /// Whether the conditions of a leave are met.
    fn may_leave(&self, leave: &Leave, process: Process) -> Result<bool, S::Error> {
        if leave.only.is_none() && !leave.only_waiting {
            return Ok(true);
        }
        Ok(self.storage.find(&leave.id)?.is_some_and(|entry| {
            let (is_own, waits) = (entry.process == process, entry.fence() == Fence::default());
            let is_new = is_own && matches!(entry.state, State::Held { first_life: true, .. });
            let fits = |fence| entry.holds(fence) && (is_new || !leave.unbegun);
            leave.only.is_none_or(fits) && (waits && is_own || !leave.only_waiting)
        }))
    }

    /// An operator ends the hold with this fence.
    pub fn break_hold(&mut self, fence: Fence, note: &Note) -> Result<Broken, S::Error> {
        self.expire()?;
        let Some(hold) = self.storage.holding(fence)? else {
            self.admit(None)?;
            return Ok(Broken::MovedOn);
        };
        self.storage.remove(&hold.id)?;
        // Its holder may ask once more before its own deadline, and must be told "broken", not "expired".
        let until = hold.until.max(self.now + hold.ttl);
        self.storage.trace(hold.id, Trace::Broken(note.clone()), until)?;
        (self.say)(&hold, Word::Ended(Ended::Broken(note.clone())));
        self.admit(None)?;
        Ok(Broken::Done)
    }

    /// An operator changes the capacity. Refused while a claim has a fixed one. Returns whether it was changed.
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

    /// Lets time pass when no claim asks.
    pub fn tick(&mut self) -> Result<(), S::Error> {
        self.expire()?;
        self.admit(None)
    }

    fn expire(&mut self) -> Result<(), S::Error> {
        for entry in self.storage.ended(self.now, self.moves)? {
            self.moves -= 1;
            self.storage.remove(&entry.id)?;
            // A process that let a hold run out is probably gone: its other places must not cost the line a first
            // life each.
            let process = entry.owner_process();
            if process != 0 && matches!(entry.state, State::Held { .. }) {
                self.storage.reach(process, false)?;
            }
        }
        Ok(())
    }

    /// Refuses or grants a new claim if that can be decided at once; otherwise puts it in line.
    ///
    /// A newcomer stands last, so everyone who can be served before it is served first, and it can only have what
    /// they leave. A claim that returns by ticket may stand before them, and then they wait for it.
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
        // While the name is used, the set capacity applies for longer, so nobody is refused when the day is over.
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
        // Returning by ticket is not joining: that place was given before the line filled up.
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
            on_behalf: claim.on_behalf,
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

    /// The walk: admits waiting claims by ticket while they fit.
    fn admit(&mut self, asker: Option<(ClaimId, bool)>) -> Result<(), S::Error> {
        let mut pushed = None;
        while self.moves > 0 && self.storage.last_number()? < HIGHEST_NUMBER {
            let Some(head) = self.storage.head()? else { break };
            if self.dismiss(&head)? {
                continue;
            }
            let Totals { capacity, held, .. } = self.storage.totals()?;
            if head.weight > capacity {
                // There were more of these than one step could end when the capacity was changed.
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
            // The claim that asks learns it from the answer; all others must be reached.
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

    /// Turns a place into a hold.
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
                // Every grant from now on has a higher number than any given so far.
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

/// Whether nothing is left above `number`.
fn exhausted(number: u64) -> bool {
    number > HIGHEST_NUMBER - 2
}
