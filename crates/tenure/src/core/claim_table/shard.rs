//! The claims of one shard, and when the watchdog looks at each.
//!
//! A claim starts as *new*, without a timer: only the shard's mark says when to look, so a claim that is soon over
//! costs no timer. The first look that finds it gives it one. From then on it costs nothing until the timer is due,
//! no matter how many other claims there are.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

use hashbrown::HashTable;

use super::not_in_circles;
use crate::core::live_claim::LiveClaim;
use crate::model::claim::{ClaimId, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

#[derive(Default)]
pub(super) struct ShardClaims {
    /// Claims that no look has found yet.
    new: HashTable<Arc<LiveClaim>>,
    /// Claims that have a timer.
    timed: HashTable<Arc<LiveClaim>>,
    timers: BTreeMap<(Moment, ClaimId), Arc<LiveClaim>>,
    /// Claims that wait, by name and ticket, as of the last look at each.
    lines: BTreeMap<(Name, Ticket, ClaimId), Arc<LiveClaim>>,
}

/// How many timers are taken at once. The rest of a crowd waits until the requests of these have been sent.
const AT_ONCE: usize = 256;

fn hash(live: &Arc<LiveClaim>) -> u64 {
    live.claim.id.bits()
}

fn take(claims: &mut HashTable<Arc<LiveClaim>>, live: &LiveClaim) -> Option<Arc<LiveClaim>> {
    // Compare by identity, not by id: a hold that was detached may be attached again.
    let found = claims.find_entry(live.claim.id.bits(), |known| ptr::eq(&**known, live));
    let taken = found.ok()?.remove().0;
    // A burst of claims must not keep its memory for ever.
    if claims.capacity() > 256 && claims.len() < claims.capacity() / 8 {
        let room = claims.len() * 2;
        claims.shrink_to(room, hash);
    }
    Some(taken)
}

impl ShardClaims {
    pub(super) fn insert(&mut self, live: Arc<LiveClaim>) {
        self.new.insert_unique(hash(&live), live, hash);
    }

    pub(super) fn find(&self, id: &ClaimId) -> Option<&Arc<LiveClaim>> {
        let is_it = |live: &Arc<LiveClaim>| live.claim.id == *id;
        self.new.find(id.bits(), is_it).or_else(|| self.timed.find(id.bits(), is_it))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<LiveClaim>> {
        self.new.iter().chain(&self.timed)
    }

    /// Removes this very claim. Returns it, to be dropped after unlocking, and when to look at the claim that is
    /// now at the front of its line.
    pub(super) fn remove(&mut self, live: &LiveClaim) -> Option<(Arc<LiveClaim>, Moment)> {
        let removed = take(&mut self.new, live).or_else(|| take(&mut self.timed, live))?;
        self.timers.remove(&(live.timer.due(), live.claim.id));
        live.timer.end();
        let stood = self.leaves_line(live);
        let next = if stood { self.front(&live.claim.name) } else { None };
        let look_at = next.as_ref().map_or(Moment::FAR, |next| next.next_look());
        if let Some(next) = &next {
            self.look_by(next, look_at);
        }
        Some((removed, look_at))
    }

    /// Makes sure that the claim is looked at by `at`.
    pub(super) fn look_by(&mut self, live: &Arc<LiveClaim>, at: Moment) {
        if live.timer.is_later(at) {
            self.timers.remove(&(live.timer.due(), live.claim.id));
            self.time(live, at);
        }
    }

    /// Schedules the claim's next look, even if that is later than planned.
    pub(super) fn look_next(&mut self, live: &Arc<LiveClaim>, now: Moment) -> Moment {
        let timed = live.timer.is_later(Moment::ORIGIN);
        if timed {
            self.timers.remove(&(live.timer.due(), live.claim.id));
            // Before asking: any change after this is earlier than this timer, and so sets it.
            live.timer.set(Moment::FAR);
        }
        let next = not_in_circles(live.next_look(), now);
        if timed {
            self.time(live, next);
        }
        next
    }

    fn time(&mut self, live: &Arc<LiveClaim>, at: Moment) {
        live.timer.set(at);
        if at != Moment::FAR {
            self.timers.insert((live.timer.due(), live.claim.id), live.clone());
        }
    }

    /// When the next timer is due.
    pub(super) fn next(&self) -> Moment {
        self.timers.first_key_value().map_or(Moment::FAR, |((due, _), _)| *due)
    }

    /// Takes the claims that are due now, each with its ticket, if it waits, and whether it is this process's
    /// first in line for its name. Each must be returned with [`ShardClaims::looked`].
    pub(super) fn due(&mut self, now: Moment) -> Vec<Due> {
        let mut due: Vec<Arc<LiveClaim>> = Vec::with_capacity(self.new.len());
        for live in self.new.drain() {
            due.push(live.clone());
            self.timed.insert_unique(hash(&live), live, hash);
        }
        let timed = due.len();
        while due.len() < timed + AT_ONCE
            && let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        // Before the look: any change after this is earlier than this timer, and so sets it.
        due.iter().for_each(|live| live.timer.set(Moment::FAR));
        // Read once: a claim can join or learn of its turn in the meantime.
        let tickets: Vec<_> = due.iter().map(|live| live.ticket()).collect();
        let mut fronts = Vec::new();
        for (live, ticket) in due.iter().zip(&tickets) {
            if self.stands(live, *ticket) {
                fronts.push(live.claim.name.clone());
            }
        }
        fronts.sort_unstable();
        fronts.dedup();
        let mut due: Vec<_> = due.into_iter().zip(tickets).collect();
        // A claim that has come to the front has more to look for than before.
        for name in fronts {
            if let Some(front) = self.front(&name)
                && front.timer.due() != Moment::FAR
            {
                self.timers.remove(&(front.timer.due(), front.claim.id));
                front.timer.set(Moment::FAR);
                let ticket = front.timer.ticket();
                due.push((front, ticket));
            }
        }
        let is_first = |(live, ticket): (Arc<LiveClaim>, Option<Ticket>)| {
            let first = ticket.is_some_and(|ticket| {
                self.first(&live.claim.name).is_some_and(|(first, _)| first == ticket)
            });
            Due { live, ticket, first }
        };
        due.into_iter().map(is_first).collect()
    }

    /// The claim was looked at, and is due again at `next`.
    pub(super) fn looked(&mut self, live: &Arc<LiveClaim>, next: Moment) {
        self.time(live, next);
    }

    /// Records the claim's place in line, if it has one. Returns whether it has one now or had one before.
    fn stands(&mut self, live: &Arc<LiveClaim>, ticket: Option<Ticket>) -> bool {
        if live.timer.ticket() == ticket {
            return ticket.is_some();
        }
        let stood = self.leaves_line(live);
        if let Some(ticket) = ticket {
            let key = (live.claim.name.clone(), ticket, live.claim.id);
            self.lines.insert(key, live.clone());
            live.timer.stands(Some(ticket));
        }
        stood || ticket.is_some()
    }

    /// Returns whether it was in line.
    fn leaves_line(&mut self, live: &LiveClaim) -> bool {
        let Some(ticket) = live.timer.ticket() else { return false };
        self.lines.remove(&(live.claim.name.clone(), ticket, live.claim.id));
        live.timer.stands(None);
        true
    }

    fn first(&self, name: &Name) -> Option<(Ticket, &Arc<LiveClaim>)> {
        let from = (name.clone(), Ticket::default(), ClaimId::NONE);
        let ((found, ticket, _), live) = self.lines.range(from..).next()?;
        (found == name).then_some((*ticket, live))
    }

    /// This process's first waiting claim for the name that has not been told anything.
    fn front(&mut self, name: &Name) -> Option<Arc<LiveClaim>> {
        loop {
            let (ticket, live) = self.first(name)?;
            let live = live.clone();
            let now = live.ticket();
            if now == Some(ticket) {
                return Some(live);
            }
            self.stands(&live, now);
        }
    }
}

/// A claim that is due.
pub(super) struct Due {
    pub(super) live: Arc<LiveClaim>,
    pub(super) ticket: Option<Ticket>,
    pub(super) first: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::request_builder::RequestBuilder;
    use crate::model::claim::{Fence, Grant, Place};
    use crate::model::name::Space;
    use crate::model::options::Options;

    fn at(secs: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(secs)
    }

    fn live(number: u128) -> Arc<LiveClaim> {
        let name = Name::new(Space::Lock, "x").unwrap();
        let mut builder = RequestBuilder::new(name, &Options::new("me".into()));
        builder.claim.id = ClaimId::from_bytes(number.to_le_bytes());
        builder.into_live()
    }

    fn held(number: u128, since: Moment) -> Arc<LiveClaim> {
        let live = live(number);
        let grant = Grant::new(Fence::new(1), since, Duration::from_secs(30), false);
        drop(live.start(&grant, since, None));
        live
    }

    fn waits(number: u128, ticket: u64, look_again: Moment) -> Arc<LiveClaim> {
        let live = live(number);
        let (ticket, floor) = (Ticket::new(ticket), Fence::new(1));
        let place = Place { ticket, ahead: 0, floor, asked_at: at(100), look_again, holder: None };
        // Called twice: after the first time it would look sooner.
        live.with(|state, _| state.stands(place.clone(), at(100)));
        live.with(|state, _| state.stands(place, at(100)));
        live
    }

    /// Looks at what is due. Returns which claims were due, and whether each is first in line.
    fn look(table: &mut ShardClaims, now: Moment) -> Vec<(u64, bool)> {
        let due = table.due(now);
        let mut seen = Vec::new();
        for Due { live, first, .. } in due {
            let (next, _) = live.with(|state, request| state.look(request, now, first));
            table.looked(&live, not_in_circles(next, now));
            seen.push((live.claim.id.bits(), first));
        }
        seen.sort_unstable();
        seen
    }

    #[test]
    fn a_look_visits_only_what_is_due_however_many_claims_there_are() {
        let mut table = ShardClaims::default();
        for number in 0..1000 {
            table.insert(held(number, at(100)));
        }
        table.insert(held(1000, at(91)));
        assert_eq!(
            look(&mut table, at(100)).len(),
            1000 + 1,
            "each is looked at once, to be timed"
        );
        assert_eq!(look(&mut table, at(99)), []);
        assert_eq!(look(&mut table, at(101)), [(1000, false)]);
        assert!(table.next() > at(101));
    }

    #[test]
    fn what_was_removed_is_not_looked_at_and_leaves_nothing() {
        let mut table = ShardClaims::default();
        let claims: Vec<_> = (0..10).map(|number| held(number, at(100))).collect();
        claims.iter().for_each(|live| table.insert(live.clone()));
        look(&mut table, at(100));
        assert!(claims.iter().all(|live| table.remove(live).is_some()));
        assert!(table.remove(&claims[0]).is_none());
        assert!(table.timers.is_empty() && table.lines.is_empty() && table.iter().next().is_none());
        assert_eq!(look(&mut table, at(200)), []);
    }

    /// Only the foremost claim of this process looks for a lost push; when it has left, the next one does.
    #[test]
    fn the_claim_that_comes_to_the_front_looks_in_its_place() {
        let mut table = ShardClaims::default();
        let (first, second) = (waits(1, 1, at(105)), waits(2, 2, at(106)));
        table.insert(first.clone());
        table.insert(second.clone());
        assert_eq!(look(&mut table, at(101)), [(1, true), (2, false)]);
        assert!(table.next() <= at(105));
        // The first learns of its turn, and nobody schedules anything.
        let grant = Grant::new(Fence::new(2), at(102), Duration::from_secs(2), true);
        drop(first.start(&grant, at(102), None));
        assert_eq!(look(&mut table, at(105)), [(1, false), (2, true)]);
        assert!(table.next() <= at(106));
        // A claim that leaves makes way at once.
        let third = waits(3, 3, at(110));
        table.insert(third.clone());
        assert_eq!(look(&mut table, at(106)).last(), Some(&(3, false)));
        let (_, look_at) = table.remove(&second).unwrap();
        assert_eq!(look_at, at(110));
        assert!(table.next() <= at(110));
    }
}
