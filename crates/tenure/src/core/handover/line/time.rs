//! What is due, and when.

use super::{At, Effect, Line, fresh_for};
#[cfg(test)]
use crate::core::handover::wrong::Wrong;
use crate::model::moment::Moment;

impl Line {
    /// When to [tick](Line::tick) next.
    pub(in super::super) fn due(&self) -> Moment {
        let owed = self.owed.iter().map(|owed| owed.next_try.min(owed.until));
        let former = self.former.iter().map(|former| former.until);
        let mut due = owed.chain(former).min().unwrap_or(Moment::FAR);
        let is_behind = self.waiters.front().is_some_and(|first| first.at != At::Here);
        if is_behind && self.waiters.iter().any(|waiter| waiter.at == At::Here) {
            let fresh = fresh_for(self.ttl);
            due = due.min(self.news.map_or(Moment::ORIGIN, |news| news.sent + fresh));
        }
        let Some(tenancy) = &self.tenancy else { return due };
        // A hold that nobody else wants is left by its own claim.
        let is_plain = tenancy.is_inside(&tenancy.carrier) && !tenancy.active;
        if is_plain && self.waiters.is_empty() {
            return due;
        }
        #[cfg(test)]
        let is_blind = self.wrong == Some(Wrong::AfterDeadline);
        #[cfg(not(test))]
        let is_blind = false;
        if !is_blind {
            due = due.min(tenancy.good_until);
        }
        #[cfg(test)]
        let ends = self.wrong != Some(Wrong::NoFirstLife);
        #[cfg(not(test))]
        let ends = true;
        if let Some(inside) = tenancy.inside.as_ref().filter(|_| ends) {
            due = due.min(inside.until);
        }
        let waits_here = self.waiters.iter().any(|waiter| waiter.at == At::Here);
        if tenancy.inside.is_none() || waits_here || tenancy.active {
            let again = self.last_sent + fresh_for(self.ttl) / 2;
            due = due.min(self.under_way.map_or(again, |(_, until)| until.max(again)));
        }
        due
    }

    /// Whether claims stand here behind one of their own at the engine, although it is not known any more that no
    /// other process has come. If that one gives up, all who have come meanwhile would be served before them.
    fn stand_behind_for_too_long(&self, now: Moment) -> bool {
        let fresh = fresh_for(self.ttl);
        let is_news = self.news.is_some_and(|news| news.alone && now < news.sent + fresh);
        let is_behind = self.waiters.front().is_some_and(|first| first.at != At::Here);
        !is_news && is_behind
    }

    /// Does what is due.
    pub(in super::super) fn tick(&mut self, now: Moment) {
        self.former.retain(|former| now < former.until);
        self.owed.retain(|owed| now < owed.until);
        let again = self.ttl / 10;
        for owed in self.owed.iter_mut().filter(|owed| owed.next_try <= now) {
            owed.next_try = now + again;
            self.outbox.push_back(Effect::Leave(owed.leave.clone()));
        }
        if self.stand_behind_for_too_long(now) {
            self.claim_anew();
        }
        let Some(tenancy) = &mut self.tenancy else { return };
        #[cfg(test)]
        let is_blind = self.wrong == Some(Wrong::AfterDeadline);
        #[cfg(not(test))]
        let is_blind = false;
        if now >= tenancy.good_until && !is_blind {
            // Its claim knows that by its own deadline.
            self.tenancy = None;
            return self.settle(now);
        }
        #[cfg(test)]
        let ends = self.wrong != Some(Wrong::NoFirstLife);
        #[cfg(not(test))]
        let ends = true;
        let carrier = tenancy.carrier;
        if let Some(inside) = tenancy.inside.as_ref().filter(|inside| ends && now >= inside.until) {
            #[cfg(test)]
            let comes_back = self.wrong != Some(Wrong::LeavesForALiveClaim);
            #[cfg(not(test))]
            let comes_back = true;
            if inside.id == carrier && comes_back {
                // It may ask for another hold under the same id, which a leave would end. The engine ends this one.
                self.tenancy = None;
                return self.settle(now);
            }
            if inside.begun || inside.id == carrier {
                // Its work may go on although its time is over.
                tenancy.empty(now);
                return self.give_up(now);
            }
            tenancy.untaken_before = true;
            tenancy.empty(now);
            return self.pass_on(now);
        }
        let waits_here = self.waiters.iter().any(|waiter| waiter.at == At::Here);
        if tenancy.inside.is_none() || waits_here || tenancy.active {
            self.contact_if_due(now);
        }
    }
}
