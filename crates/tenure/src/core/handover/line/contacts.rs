//! Renewals of the process's hold, and what their answers say.

use super::{At, Contact, Effect, Heard, Line, News, Renews, Stands, Waiter, fresh_for};
use crate::core::handover::tenancy::Inside;
#[cfg(test)]
use crate::core::handover::wrong::Wrong;
use crate::model::claim::{ClaimId, Ended, Fence, Fences, Keep, Kept, MOST_FENCES, Ticket};
use crate::model::moment::Moment;
use std::time::Duration;

/// With fewer numbers, more are asked for at once.
const FEW: u64 = 256;

impl Line {
    /// A claim renews its hold.
    pub(in super::super) fn renew(
        &mut self,
        id: &ClaimId,
        fence: Fence,
        ttl: Duration,
        now: Moment,
    ) -> Renews {
        let waits_here =
            self.waiters.iter().any(|waiter| waiter.claim.id == *id && waiter.at == At::Here);
        let Some(tenancy) = self.tenancy.as_mut().filter(|tenancy| tenancy.knows(id)) else {
            return if waits_here { Renews::Gone } else { Renews::Unknown };
        };
        let Some(inside) = tenancy.inside.as_mut().filter(|inside| inside.is(id, fence)) else {
            return Renews::Gone;
        };
        if !ttl.is_zero() {
            inside.begun = true;
            tenancy.is_taken();
        }
        if ttl > self.ttl {
            self.shut(id, now);
        }
        let contact = self.next_contact(now).map(|contact| Contact {
            keep: Keep { ttl, ..contact.keep },
            asked_for: true,
            ..contact
        });
        contact.map_or(Renews::Gone, Renews::Contact)
    }

    /// Who waits there? Asked when a claim joins that could stand here if that were known.
    pub(super) fn ask_who_waits(&mut self, now: Moment) {
        let is_over = self.tenancy.as_ref().is_none_or(|tenancy| tenancy.shut);
        if !is_over && (now >= self.last_sent + self.pause || self.needs_numbers()) {
            self.contact(now);
        }
    }

    pub(super) fn contact_if_due(&mut self, now: Moment) {
        if now >= self.last_sent + fresh_for(self.ttl) / 2 || self.needs_numbers() {
            self.contact(now);
        }
    }

    /// Whether there may soon be too few. A block that is used up before the next comes would send newcomers to the engine,
    /// and on Redis each of those makes the next block smaller.
    pub(in super::super) fn few_numbers_left(&self) -> bool {
        let left = (self.numbers.last + 1).saturating_sub(self.numbers.next);
        left < FEW.min(self.block / 4 * 3)
    }

    fn needs_numbers(&self) -> bool {
        self.few_numbers_left() && self.news.is_some_and(|news| news.alone)
    }

    /// Sends a contact, unless one is under way.
    pub(super) fn contact(&mut self, now: Moment) {
        if self.under_way.is_some_and(|(_, until)| now < until) {
            return;
        }
        if let Some(contact) = self.next_contact(now) {
            self.under_way = Some((contact.number, now + self.patience()));
            self.outbox.push_back(Effect::Contact(contact));
        }
    }

    pub(super) fn patience(&self) -> Duration {
        (self.ttl / 10).max(fresh_for(self.ttl)).min(Duration::from_secs(1))
    }

    pub(super) fn next_contact(&mut self, now: Moment) -> Option<Contact> {
        let tenancy = self.tenancy.as_mut()?;
        if self.under_way.is_none_or(|(_, until)| now >= until) {
            self.served.clear();
        }
        self.contacts += 1;
        self.last_sent = now;
        tenancy.active = false;
        let mut keep = tenancy.keep(self.ttl);
        keep.fences = MOST_FENCES;
        let (tenancy, number) = (tenancy.number, self.contacts);
        Some(Contact { keep, number, sent: now, tenancy, asked_for: false })
    }

    /// A contact was answered, or not. Returns until when the hold of its claim is good, and the answer to it.
    pub(in super::super) fn heard(&mut self, contact: &Contact, heard: Heard, now: Moment) {
        if self.under_way.is_some_and(|(number, _)| number == contact.number) {
            self.under_way = None;
        }
        match heard {
            Heard::Kept(Kept::Held { grant, waiting, fences }) => {
                self.learn(contact, (waiting, fences), now);
                #[cfg(test)]
                if self.wrong == Some(Wrong::LateBlockIsUsed) {
                    self.numbers = fences;
                }
                // If the hold of that time is over, they are only good for tickets.
                self.stock(fences);
                let Some(tenancy) = &mut self.tenancy else { return };
                #[cfg(test)]
                let of_it = contact.tenancy == tenancy.number
                    || self.wrong == Some(Wrong::OldAnswerProlongs);
                #[cfg(not(test))]
                let of_it = contact.tenancy == tenancy.number;
                if !of_it {
                    return;
                }
                #[cfg(test)]
                let counted_from =
                    if self.wrong == Some(Wrong::CountedFromAnswer) { now } else { contact.sent };
                #[cfg(not(test))]
                let counted_from = contact.sent;
                tenancy.held(&grant, counted_from);
                if let Some(inside) = &mut tenancy.inside
                    && contact.asked_for
                    && inside.fence() == contact.keep.fence
                {
                    inside.until = inside.until.max(grant.good_until);
                }
                let (is_empty, since) = (tenancy.inside.is_none(), tenancy.empty_since);
                let last = tenancy.last.get();
                if !is_empty {
                    return;
                }
                let first = self.waiters.front().and_then(|first| first.ticket);
                let has_fence = !self.numbers.is_empty() && self.numbers.next > last
                    || first.is_some_and(|ticket| ticket.get() > last);
                if !has_fence && contact.sent >= since {
                    // The engine's numbers are ahead of its clock.
                    self.news = None;
                    self.pause = fresh_for(self.ttl) * 10;
                    return self.give_up(now);
                }
                self.pass_on(now);
            }
            Heard::Kept(Kept::Gone(ended)) => self.gone(contact, ended, now),
            Heard::Nothing => {}
        }
    }

    /// The engine says that the hold has ended.
    fn gone(&mut self, contact: &Contact, ended: Ended, now: Moment) {
        let is_latest = contact.number == self.contacts;
        let Some(tenancy) = &self.tenancy else { return };
        #[cfg(test)]
        let ends = contact.tenancy == tenancy.number && is_latest
            || self.wrong == Some(Wrong::OldAnswerEnds);
        #[cfg(not(test))]
        let ends = contact.tenancy == tenancy.number && is_latest;
        if ends {
            // The claim that asked is answered, and need not be told.
            let fence = contact.keep.fence;
            let is_it = |inside: &Inside| contact.asked_for && inside.fence() == fence;
            if tenancy.inside.as_ref().is_some_and(is_it) {
                self.tenancy = None;
                return self.settle(now);
            }
            // By the engine's own clock it cannot have run out yet.
            let early = ended == Ended::Expired && now < tenancy.good_until;
            self.is_over(if early { Ended::Forgotten } else { ended }, now);
        }
    }

    /// Takes in how many wait at the engine.
    pub(super) fn learn(
        &mut self,
        contact: &Contact,
        (waiting, fences): (u32, Fences),
        _now: Moment,
    ) {
        if self.news.is_some_and(|news| news.sent > contact.sent) {
            return;
        }
        // Tickets and fences come from one counter: an own claim stood there if its ticket is below the fences that
        // were given with the answer, and it has not given up its place. Some may have been granted since. One that came
        // with a ticket from here counts if it was known to stand there before the question.
        let before = |ticket: &Ticket| ticket.get() < fences.next;
        let there = self.waiters.iter().filter_map(|waiter| match waiter.at {
            At::Engine { stands, .. } if stands.before(contact.number) => waiter.ticket,
            _ => None,
        });
        let own = there.filter(before).count();
        // Those are counted from the contact that is under way, and not from another one beside it.
        let served = self.served.iter().copied().filter(before).count();
        let own = if contact.asked_for { own } else { own + served };
        let own = if fences.is_empty() { 0 } else { own as u32 };
        #[cfg_attr(not(test), expect(unused_mut, reason = "a test can make this wrong"))]
        let mut alone = waiting <= own;
        #[cfg_attr(not(test), expect(unused_mut, reason = "a test can make this wrong"))]
        let mut sent = contact.sent;
        #[cfg(test)]
        match self.wrong {
            Some(Wrong::NeverCloses) => alone |= self.news.is_some_and(|news| news.alone),
            Some(Wrong::OwnAreStrangers) => alone = waiting == 0,
            Some(Wrong::CountedFromAnswer) => sent = _now,
            _ => {}
        }
        self.news = Some(News { sent, alone });
        let shortest = fresh_for(self.ttl) / 2;
        self.pause = if alone { shortest } else { (self.pause * 2).min(shortest * 20) };
    }

    /// Pushes may have been lost, or another server may have taken over: nothing is known until it is asked.
    pub(in super::super) fn forget_news(&mut self) {
        self.news = None;
        if let Some(tenancy) = &mut self.tenancy {
            tenancy.contact_at = None;
        }
    }

    pub(super) fn newcomers_stand_here(&self, now: Moment) -> bool {
        let fresh = fresh_for(self.ttl);
        let is_fresh = |news: &News| {
            #[cfg(test)]
            if self.wrong == Some(Wrong::NewcomersInAClosedLine) {
                return true;
            }
            news.alone && now < news.sent + fresh
        };
        if !self.news.as_ref().is_some_and(is_fresh) {
            return false;
        }
        match &self.tenancy {
            Some(tenancy) => !tenancy.shut && now < tenancy.good_until,
            None => self.waiters.front().is_some_and(Waiter::stands_there),
        }
    }
}

impl Waiter {
    /// Whether it is known to stand at the engine.
    pub(super) fn stands_there(&self) -> bool {
        matches!(self.at, At::Engine { stands: Stands::SinceTicket | Stands::SinceContact(_), .. })
    }
}
