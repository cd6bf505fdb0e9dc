//! One name, as its process hands it over among its own claims.
//!
//! A pure machine: it is told what happened and when, and leaves [`Effect`]s in its outbox. It has no mutex, reads no
//! clock, and knows nothing of engines.
//!
//! It knows all claims of its process on the name that may share a hold. Those that wait stand *here*, or at the engine.
//! They are in order of arrival. While the process has the hold, it passes the hold on to the first of them, if that
//! stands here; otherwise it leaves, and the engine serves the next. The process has the hold under the id of the claim
//! that the engine granted, the *carrier*.
//!
//! A newcomer may stand here only if an answer from shortly before has shown that no other process waits. So nobody
//! is overtaken who joined the line longer before the newcomer than that.
//!
//! The engine gives the process *numbers* in advance, from the counter that its tickets and fences come from. A claim
//! that begins to stand here takes the next as its ticket. If it has to join the engine's line, it does so with that: it
//! comes before all who joined there later. Its ticket is its fence, too, if that is above the last one.

mod contacts;
mod leaving;
mod time;

use std::collections::VecDeque;
use std::time::Duration;

use super::tenancy::Tenancy;
#[cfg(test)]
use super::wrong::Wrong;
use crate::model::claim::{
    Claim, ClaimId, Ended, Fence, Fences, Grant, Holder, Keep, Kept, Leave, Left, Place, Ticket,
};
use crate::model::moment::Moment;

/// How many own claims are remembered that were granted since a contact was sent.
const MOST_SERVED: usize = 1024;

/// What a machine wants to be done, in this order.
#[derive(Clone, Debug)]
pub(super) enum Effect {
    /// Give the claim its turn. If nobody waits for it, say so with [`Line::refused`].
    Give(ClaimId, Grant),
    /// Tell the claim that its hold has ended.
    Tell(ClaimId, Ended),
    /// Send this to the engine, and say what came of it with [`Line::heard`].
    Contact(Contact),
    /// Leave, and say when that was answered with [`Line::left`].
    Leave(Leave),
    /// Claim at the engine for the claims that stood here, in this order, and say what came of each. What follows, such
    /// as the end of the hold, must not reach the engine before this.
    Claim(Vec<Claim>),
}

/// A renewal of the carrier that was sent, and what was known at that time.
#[derive(Clone, Debug)]
pub(super) struct Contact {
    pub(super) keep: Keep,
    pub(super) number: u64,
    pub(super) sent: Moment,
    pub(super) tenancy: u64,
    /// The claim that has the hold renews it with this.
    pub(super) asked_for: bool,
}

/// What the engine answered to a contact.
#[derive(Debug)]
pub(super) enum Heard {
    Kept(Kept),
    /// Nothing, or an error.
    Nothing,
}

/// What becomes of a claim that asks.
#[derive(Debug)]
pub(super) enum Asked {
    /// It stands here.
    Here(Place),
    /// It holds already.
    Granted(Grant),
    /// The engine is asked, with this ticket.
    Engine(Option<Ticket>),
}

/// What becomes of a claim that leaves.
#[derive(Debug)]
pub(super) enum Leaves {
    Here(Left),
    /// The engine is told this.
    Engine(Leave),
}

/// What becomes of a renewal.
#[derive(Debug)]
pub(super) enum Renews {
    /// This goes to the engine in its place.
    Contact(Contact),
    /// The hold is over.
    Gone,
    /// It is none of the machine's.
    Unknown,
}

/// What the engine answered to a claim, as far as it matters here.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answered {
    Granted(Grant),
    Waiting(Ticket),
    /// The engine has nothing of it.
    Refused,
    /// It may have taken effect.
    Unknown,
}

#[derive(Clone, Debug)]
pub(super) struct Waiter {
    pub(super) claim: Claim,
    since: Moment,
    /// Its place in line, here and at the engine, once it is known.
    pub(super) ticket: Option<Ticket>,
    pub(super) at: At,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum At {
    Here,
    Engine {
        /// Requests that were never answered.
        open: u32,
        stands: Stands,
    },
}

/// What is known of a place at the engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stands {
    /// No answer has shown that it is there.
    Unknown,
    /// It is there since it got its ticket.
    SinceTicket,
    /// It came there with an older ticket, and that was heard when this many contacts had been sent.
    SinceContact(u64),
}

/// When the last contact was sent that was answered, and whether it showed that no other process waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct News {
    pub(super) sent: Moment,
    pub(super) alone: bool,
}

/// A claim that has left, under the id of its carrier. It may repeat that.
#[derive(Clone, Debug)]
pub(super) struct Former {
    pub(super) id: ClaimId,
    pub(super) carrier: ClaimId,
    pub(super) in_doubt: bool,
    pub(super) until: Moment,
}

/// A leave that no caller waits for.
#[derive(Clone, Debug)]
pub(super) struct Owed {
    pub(super) leave: Leave,
    pub(super) next_try: Moment,
    pub(super) until: Moment,
}

#[derive(Clone, Debug)]
pub(super) struct Line {
    pub(super) ttl: Duration,
    pub(super) waiters: VecDeque<Waiter>,
    pub(super) tenancy: Option<Tenancy>,
    pub(super) news: Option<News>,
    /// The contact that is under way, and when to stop waiting for its answer.
    pub(super) under_way: Option<(u64, Moment)>,
    pub(super) last_sent: Moment,
    /// While others wait, contacts become rarer, up to a limit.
    pub(super) pause: Duration,
    /// Numbers to give, as tickets and as fences.
    pub(super) numbers: Fences,
    /// How many there were at first.
    pub(super) block: u64,
    /// The highest number that was given.
    pub(super) highest: u64,
    pub(super) contacts: u64,
    tenancies: u64,
    /// The tickets of own claims that were granted since a contact was sent.
    pub(super) served: Vec<Ticket>,
    pub(super) former: Vec<Former>,
    pub(super) owed: Vec<Owed>,
    pub(super) outbox: VecDeque<Effect>,
    #[cfg(test)]
    pub(super) wrong: Option<Wrong>,
}

impl Line {
    pub(super) fn new(ttl: Duration) -> Line {
        Line {
            ttl,
            waiters: VecDeque::new(),
            tenancy: None,
            news: None,
            under_way: None,
            last_sent: Moment::ORIGIN,
            pause: fresh_for(ttl) / 2,
            numbers: Fences::NONE,
            block: 0,
            highest: 0,
            contacts: 0,
            tenancies: 0,
            served: Vec::new(),
            former: Vec::new(),
            owed: Vec::new(),
            outbox: VecDeque::new(),
            #[cfg(test)]
            wrong: None,
        }
    }

    /// The ttl of all claims that share holds here.
    pub(super) fn ttl(&self) -> Duration {
        self.ttl
    }

    /// Whether there is nothing to remember.
    pub(super) fn is_idle(&self) -> bool {
        let idle = self.waiters.is_empty() && self.tenancy.is_none() && self.outbox.is_empty();
        idle && self.former.is_empty() && self.owed.is_empty()
    }

    // Claims.

    /// A claim asks, for the first time or again.
    pub(super) fn claim(&mut self, claim: &Claim, now: Moment) -> Asked {
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.claim.id == claim.id) {
            return match &mut self.waiters[at].at {
                At::Here => Asked::Here(self.place(&claim.id, now)),
                At::Engine { open, .. } => {
                    *open += 1;
                    #[cfg(test)]
                    if self.wrong == Some(Wrong::JoinsWithoutTicket) {
                        return Asked::Engine(None);
                    }
                    Asked::Engine(self.waiters[at].ticket)
                }
            };
        }
        if let Some(tenancy) = &mut self.tenancy {
            if tenancy.carrier == claim.id {
                tenancy.open += 1;
                return Asked::Engine(claim.ticket);
            }
            if let Some(inside) = tenancy.inside.as_ref().filter(|inside| inside.id == claim.id) {
                return Asked::Granted(inside.grant);
            }
        }
        // One that lost its turn returns to its place, which is at the engine.
        let is_new = claim.ticket.is_none();
        let id = claim.id;
        let number = if is_new && self.newcomers_stand_here(now) { self.number() } else { None };
        let (ticket, at) = match number {
            Some(number) => (Some(Ticket::new(number)), At::Here),
            None => (claim.ticket, At::Engine { open: 1, stands: Stands::Unknown }),
        };
        self.stand(Waiter { claim: claim.clone(), since: now, ticket, at });
        if number.is_some() {
            self.contact_if_due(now);
            return Asked::Here(self.place(&id, now));
        }
        self.ask_who_waits(now);
        Asked::Engine(ticket)
    }

    /// Takes its place: a newcomer the last, one that returns that of its ticket.
    fn stand(&mut self, waiter: Waiter) {
        let returns_to = waiter.ticket.filter(|_| waiter.at != At::Here);
        let is_after = |other: &Waiter| {
            returns_to.is_some_and(|ticket| other.ticket.is_none_or(|other| ticket < other))
        };
        let after = self.waiters.iter().rev().take_while(|other| is_after(other)).count();
        self.waiters.insert(self.waiters.len() - after, waiter);
    }

    fn number(&mut self) -> Option<u64> {
        let number = self.numbers.take()?.get();
        self.highest = self.highest.max(number);
        Some(number)
    }

    /// A fence for the next claim that is given the hold, above that of the last.
    pub(super) fn fence(&mut self) -> Option<Fence> {
        let last = self.tenancy.as_ref()?.last.get();
        let ticket = self.waiters.front().and_then(|first| first.ticket).map_or(0, Ticket::get);
        if ticket > last {
            return Some(Fence::new(ticket));
        }
        if self.numbers.next <= last {
            self.numbers = Fences::NONE;
        }
        self.number().map(Fence::new)
    }

    /// Takes numbers, which must all be above those that were there. They come with the news that nobody else waits, so
    /// who has a higher ticket than a newcomer that stands here joined the engine's line after that.
    pub(super) fn stock(&mut self, numbers: Fences) {
        #[cfg(test)]
        if self.wrong == Some(Wrong::OldBlockIsKept) && !self.numbers.is_empty() {
            return;
        }
        if !numbers.is_empty() && numbers.next > self.highest.max(self.last_number()) {
            self.numbers = numbers;
            self.block = numbers.last - numbers.next + 1;
        }
    }

    /// The highest number that this process may have given or may still give.
    fn highest(&self) -> u64 {
        let last = self.tenancy.as_ref().map_or(0, |tenancy| tenancy.last.get());
        last.max(self.last_number()).max(self.highest)
    }

    fn last_number(&self) -> u64 {
        if self.numbers.is_empty() { 0 } else { self.numbers.last }
    }

    /// Whether the claim is one of those here.
    pub(super) fn knows(&self, id: &ClaimId) -> bool {
        let waits = self.waiters.iter().any(|waiter| waiter.claim.id == *id);
        waits || self.tenancy.as_ref().is_some_and(|tenancy| tenancy.knows(id))
    }

    /// The engine answered a claim or the renewal of a place.
    pub(super) fn answered(&mut self, id: &ClaimId, answered: Answered, now: Moment) {
        if let Some(tenancy) = self.tenancy.as_mut().filter(|tenancy| tenancy.carrier == *id) {
            if !matches!(answered, Answered::Unknown) {
                tenancy.open = tenancy.open.saturating_sub(1);
            }
            return;
        }
        let found = self.waiters.iter().position(|waiter| waiter.claim.id == *id);
        let Some(at) = found else { return };
        let Waiter { ticket, at: At::Engine { open, stands }, .. } = &mut self.waiters[at] else {
            return;
        };
        if !matches!(answered, Answered::Unknown) {
            *open = open.saturating_sub(1);
        }
        match answered {
            Answered::Waiting(at) => {
                if *stands == Stands::Unknown {
                    let is_new = ticket.is_none();
                    #[cfg(test)]
                    let is_new = is_new || self.wrong == Some(Wrong::CountedBeforeItCame);
                    let since = Stands::SinceContact(self.contacts);
                    *stands = if is_new { Stands::SinceTicket } else { since };
                }
                *ticket = Some(at);
            }
            Answered::Refused if *open == 0 => {
                self.waiters.remove(at);
            }
            Answered::Granted(grant) => self.granted(id, grant, !grant.first_life, now),
            Answered::Refused | Answered::Unknown => {}
        }
        self.settle(now);
    }

    /// The engine granted a claim. `taken`: its caller is there.
    pub(super) fn granted(&mut self, id: &ClaimId, grant: Grant, taken: bool, now: Moment) {
        if let Some(tenancy) = &mut self.tenancy {
            if tenancy.carrier == *id {
                tenancy.taken |= taken;
                return;
            }
            // The engine grants again only after the hold has ended. An older grant is a late message.
            if grant.fence.get() <= self.highest() {
                return;
            }
        }
        let found = self.waiters.iter().position(|waiter| waiter.claim.id == *id);
        let Some(at) = found.filter(|_| now < grant.good_until) else { return };
        let Waiter { ticket, at: At::Engine { open, stands }, .. } = self.waiters[at] else {
            return;
        };
        if let Some((contact, _)) = self.under_way
            && self.served.len() < MOST_SERVED
            && stands.before(contact)
        {
            self.served.extend(ticket);
        }
        let Some(Waiter { claim, .. }) = self.waiters.remove(at) else { return };
        if let Some(Tenancy { inside: Some(inside), .. }) = self.tenancy.take() {
            // That one has ended, although nobody has said so.
            self.outbox.push_back(Effect::Tell(inside.id, Ended::Forgotten));
        }
        self.tenancies += 1;
        self.tenancy = Some(Tenancy::new(self.tenancies, &claim, grant, taken, open, now));
        if self.waiters.is_empty() {
            // A process may hold very many names.
            self.waiters = VecDeque::new();
        } else {
            // Before its turn is told, so that this arrives before it leaves.
            self.ask_who_waits(now);
        }
    }

    /// Nobody took the turn that was given.
    pub(super) fn refused(&mut self, id: &ClaimId, fence: Fence, now: Moment) {
        if let Some(tenancy) = &mut self.tenancy
            && tenancy.carrier != *id
            && tenancy.inside.as_ref().is_some_and(|inside| inside.is(id, fence) && !inside.begun)
        {
            tenancy.empty(now);
            self.pass_on(now);
        }
    }

    /// The engine's turn was not taken: the engine takes it back.
    pub(super) fn given_back(&mut self, id: &ClaimId, fence: Fence, now: Moment) {
        let is_it = |tenancy: &mut Tenancy| {
            tenancy.carrier == *id
                && tenancy.inside.as_ref().is_some_and(|inside| inside.is(id, fence))
        };
        if self.tenancy.take_if(is_it).is_some() {
            self.settle(now);
        }
    }

    /// Whether the claim is the carrier, and another has the hold by now.
    pub(super) fn has_handed_over(&self, id: &ClaimId) -> bool {
        let tenancy = self.tenancy.as_ref();
        tenancy.is_some_and(|tenancy| tenancy.carrier == *id && !tenancy.is_inside(id))
    }

    // What others may know.

    /// The place of a claim that stands here.
    fn place(&self, id: &ClaimId, now: Moment) -> Place {
        let at = self.waiters.iter().position(|waiter| waiter.claim.id == *id).unwrap_or_default();
        let ticket = self.waiters.get(at).and_then(|waiter| waiter.ticket);
        let holder = self.tenancy.as_ref().and_then(|tenancy| {
            let inside = tenancy.inside.as_ref()?;
            Some(Holder {
                fence: inside.fence(),
                weight: 1,
                held_for: inside.grant.sent.until(now),
                remaining: now.until(tenancy.good_until),
                details: inside.details.clone(),
            })
        });
        Place {
            ticket: ticket.unwrap_or_default(),
            ahead: at as u32,
            floor: Fence::default(),
            asked_at: now,
            look_again: Moment::FAR,
            holder,
        }
    }

    /// The claims that stand here, as others may see them.
    pub(super) fn waiters_here(&self, now: Moment) -> Vec<crate::model::claim::Waiter> {
        let here = self.waiters.iter().filter(|waiter| waiter.at == At::Here);
        let shown = |waiter: &Waiter| crate::model::claim::Waiter {
            ticket: waiter.ticket.unwrap_or_default(),
            weight: waiter.claim.weight,
            waited: waiter.since.until(now),
            details: waiter.claim.details.clone(),
        };
        here.map(shown).collect()
    }

    #[cfg(test)]
    pub(super) fn tenancy(&self) -> Option<&Tenancy> {
        self.tenancy.as_ref()
    }
}

impl Stands {
    /// Whether it stood at the engine when that contact was sent, if its ticket is old enough.
    pub(super) fn before(self, contact: u64) -> bool {
        match self {
            Stands::Unknown => false,
            Stands::SinceTicket => true,
            Stands::SinceContact(sent) => sent < contact,
        }
    }
}

/// For how long an answer of the engine counts as news.
pub(super) fn fresh_for(ttl: Duration) -> Duration {
    (ttl / 20).min(Duration::from_millis(20))
}
