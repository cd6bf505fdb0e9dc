//! The end of claims and of the process's hold, and who has the hold next.

use super::{At, Effect, Former, Leaves, Line, Owed, Stands, Waiter, fresh_for};
use crate::core::handover::tenancy::{Inside, Tenancy};
#[cfg(test)]
use crate::core::handover::wrong::Wrong;
use crate::model::claim::{Claim, ClaimId, Ended, FIRST_LIFE, Grant, Leave, Left, PLACE_LIFE};
use crate::model::moment::Moment;

impl Line {
    /// A claim leaves.
    pub(in super::super) fn leave(&mut self, leave: &Leave, now: Moment) -> Leaves {
        let id = leave.id;
        let is_inside = |tenancy: &Tenancy| {
            #[cfg(test)]
            if self.wrong == Some(Wrong::AnyoneHandsOver) {
                return tenancy.carrier == id
                    || tenancy.inside.as_ref().is_some_and(|i| i.id == id);
            }
            tenancy.inside.as_ref().is_some_and(|inside| inside.id == id)
        };
        if self.tenancy.as_ref().is_some_and(is_inside) {
            return self.leave_inside(leave, now);
        }
        if let Some(at) = self.waiters.iter().position(|waiter| waiter.claim.id == id) {
            let Some(waiter) = self.waiters.remove(at) else {
                return Leaves::Engine(leave.clone());
            };
            let At::Engine { open, .. } = waiter.at else {
                if self.tenancy.as_ref().is_some_and(|tenancy| tenancy.inside.is_none()) {
                    self.pass_on(now);
                }
                return Leaves::Here(Left::Quit);
            };
            self.settle(now);
            #[cfg_attr(not(test), expect(unused_mut, reason = "a test can make this wrong"))]
            let mut in_doubt = leave.in_doubt || open > 0;
            #[cfg(test)]
            if self.wrong == Some(Wrong::DoubtIsDropped) {
                in_doubt = leave.in_doubt;
            }
            if in_doubt != leave.in_doubt {
                let until = now + PLACE_LIFE;
                self.former.push(Former { id, carrier: id, in_doubt, until });
            }
            return Leaves::Engine(Leave { in_doubt, ..leave.clone() });
        }
        if let Some(former) = self.former.iter().find(|former| former.id == id) {
            let in_doubt = leave.in_doubt || former.in_doubt;
            return Leaves::Engine(Leave { id: former.carrier, in_doubt, ..leave.clone() });
        }
        if self.tenancy.as_ref().is_some_and(|tenancy| tenancy.carrier == id) {
            return Leaves::Here(Left::Gone(Ended::Expired));
        }
        Leaves::Engine(leave.clone())
    }

    pub(super) fn leave_inside(&mut self, leave: &Leave, now: Moment) -> Leaves {
        let Some(tenancy) = &mut self.tenancy else { return Leaves::Engine(leave.clone()) };
        let Some(inside) = &tenancy.inside else { return Leaves::Engine(leave.clone()) };
        if leave.id == tenancy.carrier {
            tenancy.in_doubt |= leave.in_doubt;
        }
        // One that never had its turn has not begun anything. The engine's own turns are the engine's.
        let names_it = match leave.held {
            Some(fence) => inside.fence() == fence,
            None => leave.id != tenancy.carrier && !inside.begun,
        };
        #[cfg(test)]
        let names_it = names_it || self.wrong == Some(Wrong::AnyoneHandsOver);
        let is_next_here = self.waiters.front().is_some_and(|first| first.at == At::Here);
        #[cfg(test)]
        let is_next_here = is_next_here
            || self.wrong == Some(Wrong::OwnArePassed)
                && self.waiters.iter().any(|waiter| waiter.at == At::Here);
        #[cfg(test)]
        let in_time = now < tenancy.good_until || self.wrong == Some(Wrong::AfterDeadline);
        #[cfg(not(test))]
        let in_time = now < tenancy.good_until;
        if names_it && in_time && !tenancy.shut && is_next_here {
            let left = if leave.held.is_some() { Left::Released } else { Left::Quit };
            tenancy.active = true;
            if leave.held.is_some() {
                tenancy.is_taken();
            }
            tenancy.empty(now);
            self.pass_on(now);
            return Leaves::Here(left);
        }
        let (carrier, good_until) = (tenancy.carrier, tenancy.good_until);
        let in_doubt = leave.in_doubt || tenancy.in_doubt || tenancy.open > 0;
        #[cfg(test)]
        let in_doubt = match self.wrong {
            Some(Wrong::DoubtOfCarrierIsDropped) => leave.in_doubt,
            _ => in_doubt,
        };
        self.tenancy = None;
        if carrier != leave.id || in_doubt != leave.in_doubt {
            let until = good_until.max(now) + self.ttl;
            self.former.push(Former { id: leave.id, carrier, in_doubt, until });
        }
        self.join_before_the_end(now);
        Leaves::Engine(Leave { id: carrier, in_doubt, ..leave.clone() })
    }

    /// A leave was answered.
    pub(in super::super) fn left(&mut self, carrier: &ClaimId) {
        self.former.retain(|former| former.carrier != *carrier);
        self.owed.retain(|owed| owed.leave.id != *carrier);
    }

    /// Nobody is inside. Gives the hold to the next claim, or leaves.
    pub(super) fn pass_on(&mut self, now: Moment) {
        let Some(tenancy) = &mut self.tenancy else { return };
        #[cfg(test)]
        if self.wrong == Some(Wrong::OwnArePassed) {
            let waiters = self.waiters.make_contiguous();
            waiters.sort_by_key(|waiter| (waiter.at != At::Here, waiter.ticket));
        }
        if tenancy.shut || self.waiters.front().is_none_or(|first| first.at != At::Here) {
            #[cfg(test)]
            if self.wrong == Some(Wrong::KeptInReserve) {
                return;
            }
            return self.give_up(now);
        }
        #[cfg(test)]
        let is_known = tenancy.may_give(now, fresh_for(self.ttl))
            || matches!(self.wrong, Some(Wrong::OnStaleContact | Wrong::AfterDeadline));
        #[cfg(not(test))]
        let is_known = tenancy.may_give(now, fresh_for(self.ttl));
        if !is_known {
            return self.contact(now);
        }
        // One turn that nobody took is enough while others wait.
        let others_wait = self.news.is_none_or(|news| !news.alone);
        #[cfg(test)]
        let others_wait = others_wait && self.wrong != Some(Wrong::UntakenInARow);
        if tenancy.untaken_before && others_wait {
            return self.give_up(now);
        }
        let Some(fence) = self.fence() else {
            return self.contact(now);
        };
        let Some(tenancy) = &mut self.tenancy else { return };
        let Some(first) = self.waiters.pop_front() else { return };
        let life = self.ttl.min(FIRST_LIFE).min(now.until(tenancy.good_until));
        let mut grant = Grant::new(fence, now, life, true);
        grant.good_until = (now + life).min(tenancy.good_until);
        let id = first.claim.id;
        tenancy.last = fence;
        tenancy.inside = Some(Inside::new(&first.claim, grant));
        self.outbox.push_back(Effect::Give(id, grant));
        self.contact_if_due(now);
    }

    /// Leaves for the process, without a caller.
    pub(super) fn give_up(&mut self, now: Moment) {
        let Some(tenancy) = self.tenancy.take() else { return };
        #[cfg(test)]
        let is_first = self.wrong == Some(Wrong::LeavesBeforeTheyJoin);
        #[cfg(not(test))]
        let is_first = false;
        if !is_first {
            self.join_before_the_end(now);
        }
        let in_doubt = tenancy.in_doubt || tenancy.open > 0;
        let leave = Leave { in_doubt, ..Leave::new(tenancy.name, tenancy.carrier) };
        let until = tenancy.good_until.max(now) + self.ttl;
        self.owed.push(Owed { leave: leave.clone(), next_try: now + self.ttl / 10, until });
        self.outbox.push_back(Effect::Leave(leave));
        self.settle(now);
    }

    /// The hold is about to end. Unless one who stands at the engine comes first, those who stand here must be there
    /// before that: otherwise one who came later is served first.
    fn join_before_the_end(&mut self, now: Moment) {
        if !self.waiters.front().is_some_and(Waiter::stands_there) {
            self.claim_anew();
        }
        self.settle(now);
    }

    /// The process has lost the hold, or gives it to another process: returns the carrier, and whether a request of it
    /// may still arrive.
    pub(in super::super) fn give_away(
        &mut self,
        id: &ClaimId,
        now: Moment,
    ) -> Option<(ClaimId, bool)> {
        let found = self.tenancy.take_if(|tenancy| tenancy.is_inside(id))?;
        self.settle(now);
        Some((found.carrier, found.in_doubt || found.open > 0))
    }

    /// The hold is not handed over any more, because its engine, or another process, has been told more of it.
    pub(in super::super) fn shut(&mut self, id: &ClaimId, now: Moment) -> Option<ClaimId> {
        #[cfg(test)]
        if self.wrong == Some(Wrong::AfterExtend) {
            return self.tenancy.as_ref().map(|tenancy| tenancy.carrier);
        }
        let tenancy = self.tenancy.as_mut().filter(|tenancy| tenancy.is_inside(id))?;
        tenancy.shut = true;
        let carrier = tenancy.carrier;
        self.claim_anew();
        self.settle(now);
        Some(carrier)
    }

    /// The engine has ended a hold or a place. Returns whether it was the carrier's.
    pub(in super::super) fn ended(&mut self, id: &ClaimId, ended: Ended, now: Moment) -> bool {
        let carries = self.tenancy.as_ref().is_some_and(|tenancy| tenancy.carrier == *id);
        if carries {
            #[cfg(test)]
            if self.wrong == Some(Wrong::EndToldToCarrier) {
                self.tenancy = None;
                self.outbox.push_back(Effect::Tell(*id, ended));
                self.settle(now);
                return true;
            }
            self.is_over(ended, now);
        }
        carries
    }

    pub(super) fn is_over(&mut self, ended: Ended, now: Moment) {
        let Some(tenancy) = self.tenancy.take() else { return };
        if let Some(inside) = tenancy.inside {
            self.outbox.push_back(Effect::Tell(inside.id, ended));
        }
        self.settle(now);
    }

    /// Nobody who stands here may wait for nothing: without a hold, one before them must stand at the engine.
    pub(super) fn settle(&mut self, _now: Moment) {
        #[cfg(test)]
        if self.wrong == Some(Wrong::WaitersAreForgotten) {
            return;
        }
        let is_first_here = self.waiters.front().is_some_and(|first| first.at == At::Here);
        if self.tenancy.is_none() && is_first_here {
            self.claim_anew();
        }
    }

    /// Those who stand here join the engine's line, with the tickets that they have.
    pub(super) fn claim_anew(&mut self) {
        #[cfg(test)]
        if self.wrong == Some(Wrong::WaitersAreForgotten) {
            return;
        }
        let mut claims = Vec::new();
        for waiter in self.waiters.iter_mut().filter(|waiter| waiter.at == At::Here) {
            waiter.at = At::Engine { open: 1, stands: Stands::Unknown };
            #[cfg(test)]
            if self.wrong == Some(Wrong::JoinsWithoutTicket) {
                waiter.ticket = None;
            }
            claims.push(Claim { ticket: waiter.ticket, ..waiter.claim.clone() });
        }
        if !claims.is_empty() {
            self.outbox.push_back(Effect::Claim(claims));
        }
    }
}
