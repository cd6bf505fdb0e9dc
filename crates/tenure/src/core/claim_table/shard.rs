//! The claims of one shard, and when the watchdog looks at each.
//!
//! A claim begins as *new*: nothing but the shard's mark says when to look, so that a claim that is over
//! soon costs no timer. The first look that finds it gives it a timer. From then on it costs nothing until
//! that is due, however many others there are.

use std::collections::BTreeMap;
use std::ptr;
use std::sync::Arc;

use hashbrown::HashTable;

use super::not_in_circles;
use crate::core::claim_state::Stake;
use crate::model::claim::{ClaimId, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

#[derive(Default)]
pub(super) struct Table {
    /// Those that no look has found yet.
    new: HashTable<Arc<Stake>>,
    /// Those that have a timer.
    timed: HashTable<Arc<Stake>>,
    timers: BTreeMap<(Moment, ClaimId), Arc<Stake>>,
    /// Those that wait, by name and ticket, as of the last look at each.
    lines: BTreeMap<(Name, Ticket, ClaimId), Arc<Stake>>,
}

/// How many timers are taken at once: the others of a crowd wait until what these need was sent.
const AT_ONCE: usize = 256;

fn hash(stake: &Arc<Stake>) -> u64 {
    stake.claim.id.bits()
}

fn take(stakes: &mut HashTable<Arc<Stake>>, stake: &Stake) -> Option<Arc<Stake>> {
    // By itself, not by its id: a hold that was detached may be attached to again.
    let found = stakes.find_entry(stake.claim.id.bits(), |known| ptr::eq(&**known, stake));
    let taken = found.ok()?.remove().0;
    // A burst of claims must not keep its room for ever.
    if stakes.capacity() > 256 && stakes.len() < stakes.capacity() / 8 {
        let room = stakes.len() * 2;
        stakes.shrink_to(room, hash);
    }
    Some(taken)
}

impl Table {
    pub(super) fn insert(&mut self, stake: Arc<Stake>) {
        self.new.insert_unique(hash(&stake), stake, hash);
    }

    pub(super) fn find(&self, id: &ClaimId) -> Option<&Arc<Stake>> {
        let is_it = |stake: &Arc<Stake>| stake.claim.id == *id;
        self.new.find(id.bits(), is_it).or_else(|| self.timed.find(id.bits(), is_it))
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Arc<Stake>> {
        self.new.iter().chain(&self.timed)
    }

    /// Removes this very stake, which must be dropped when the mutex is free. Returns it, and when to look
    /// at the one that has come to the front of its line.
    pub(super) fn remove(&mut self, stake: &Stake) -> Option<(Arc<Stake>, Moment)> {
        let removed = take(&mut self.new, stake).or_else(|| take(&mut self.timed, stake))?;
        self.timers.remove(&(stake.timer.due(), stake.claim.id));
        stake.timer.end();
        let stood = self.leaves_line(stake);
        let next = if stood { self.front(&stake.claim.name) } else { None };
        let look_at = next.as_ref().map_or(Moment::FAR, |next| next.next_look());
        if let Some(next) = &next {
            self.look_by(next, look_at);
        }
        Some((removed, look_at))
    }

    /// Looks at it at `at`, if that is earlier than it was to be looked at.
    pub(super) fn look_by(&mut self, stake: &Arc<Stake>, at: Moment) {
        if stake.timer.is_later(at) {
            self.timers.remove(&(stake.timer.due(), stake.claim.id));
            self.time(stake, at);
        }
    }

    /// Looks at it when it says, also if that is later than it was to be looked at.
    pub(super) fn look_next(&mut self, stake: &Arc<Stake>, now: Moment) -> Moment {
        let timed = stake.timer.is_later(Moment::ORIGIN);
        if timed {
            self.timers.remove(&(stake.timer.due(), stake.claim.id));
            // Before it is asked: whatever changes behind that finds that it is later than that.
            stake.timer.set(Moment::FAR);
        }
        let next = not_in_circles(stake.next_look(), now);
        if timed {
            self.time(stake, next);
        }
        next
    }

    fn time(&mut self, stake: &Arc<Stake>, at: Moment) {
        stake.timer.set(at);
        if at != Moment::FAR {
            self.timers.insert((stake.timer.due(), stake.claim.id), stake.clone());
        }
    }

    /// When the next timer is due.
    pub(super) fn next(&self) -> Moment {
        self.timers.first_key_value().map_or(Moment::FAR, |((due, _), _)| *due)
    }

    /// Takes those that are to be looked at now, each with its ticket if it waits and whether it is the
    /// first of this process that waits for its name. Each must be given back with [`Table::looked`].
    pub(super) fn due(&mut self, now: Moment) -> Vec<Due> {
        let mut due: Vec<Arc<Stake>> = Vec::with_capacity(self.new.len());
        for stake in self.new.drain() {
            due.push(stake.clone());
            self.timed.insert_unique(hash(&stake), stake, hash);
        }
        let timed = due.len();
        while due.len() < timed + AT_ONCE
            && let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        // Before they are looked at: whatever changes behind the look finds that it is later than that.
        due.iter().for_each(|stake| stake.timer.set(Moment::FAR));
        // Read once: a claim can join or hear of its turn meanwhile.
        let tickets: Vec<_> = due.iter().map(|stake| stake.ticket()).collect();
        let mut fronts = Vec::new();
        for (stake, ticket) in due.iter().zip(&tickets) {
            if self.stands(stake, *ticket) {
                fronts.push(stake.claim.name.clone());
            }
        }
        fronts.sort_unstable();
        fronts.dedup();
        let mut due: Vec<_> = due.into_iter().zip(tickets).collect();
        // Whoever has come to the front has more to look at than before.
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
        let is_first = |(stake, ticket): (Arc<Stake>, Option<Ticket>)| {
            let first = ticket.is_some_and(|ticket| {
                self.first(&stake.claim.name).is_some_and(|(first, _)| first == ticket)
            });
            Due { stake, ticket, first }
        };
        due.into_iter().map(is_first).collect()
    }

    /// It was looked at, and is to be again at `next`.
    pub(super) fn looked(&mut self, stake: &Arc<Stake>, next: Moment) {
        self.time(stake, next);
    }

    /// Notes where it stands in line, if it does. Returns whether it did before, or does.
    fn stands(&mut self, stake: &Arc<Stake>, ticket: Option<Ticket>) -> bool {
        if stake.timer.ticket() == ticket {
            return ticket.is_some();
        }
        let stood = self.leaves_line(stake);
        if let Some(ticket) = ticket {
            let key = (stake.claim.name.clone(), ticket, stake.claim.id);
            self.lines.insert(key, stake.clone());
            stake.timer.stands(Some(ticket));
        }
        stood || ticket.is_some()
    }

    /// Returns whether it stood there.
    fn leaves_line(&mut self, stake: &Stake) -> bool {
        let Some(ticket) = stake.timer.ticket() else { return false };
        self.lines.remove(&(stake.claim.name.clone(), ticket, stake.claim.id));
        stake.timer.stands(None);
        true
    }

    fn first(&self, name: &Name) -> Option<(Ticket, &Arc<Stake>)> {
        let from = (name.clone(), Ticket::default(), ClaimId::NONE);
        let ((found, ticket, _), stake) = self.lines.range(from..).next()?;
        (found == name).then_some((*ticket, stake))
    }

    /// The first of this process that waits for the name, and has heard nothing.
    fn front(&mut self, name: &Name) -> Option<Arc<Stake>> {
        loop {
            let (ticket, stake) = self.first(name)?;
            let stake = stake.clone();
            let now = stake.ticket();
            if now == Some(ticket) {
                return Some(stake);
            }
            self.stands(&stake, now);
        }
    }
}

/// One that is to be looked at.
pub(super) struct Due {
    pub(super) stake: Arc<Stake>,
    pub(super) ticket: Option<Ticket>,
    pub(super) first: bool,
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::core::claim_state::Todo;
    use crate::core::request_builder::Draft;
    use crate::model::claim::{Fence, Grant, Place};
    use crate::model::name::Space;
    use crate::model::options::Options;

    fn at(secs: u64) -> Moment {
        Moment::ORIGIN + Duration::from_secs(secs)
    }

    fn stake(number: u128) -> Arc<Stake> {
        let name = Name::new(Space::Lock, "x").unwrap();
        let mut draft = Draft::new(name, &Options::new("me".into()));
        draft.claim.id = ClaimId::from_bytes(number.to_le_bytes());
        draft.into_stake()
    }

    fn held(number: u128, since: Moment) -> Arc<Stake> {
        let stake = stake(number);
        let grant = Grant::new(Fence::new(1), since, Duration::from_secs(30), false);
        stake.start(grant, since, None, &mut Todo::default());
        stake
    }

    fn waits(number: u128, ticket: u64, look_again: Moment) -> Arc<Stake> {
        let stake = stake(number);
        let (ticket, floor) = (Ticket::new(ticket), Fence::new(1));
        let place = Place { ticket, ahead: 0, floor, asked_at: at(100), look_again, holder: None };
        // Not for the first time, after which it would look sooner.
        stake.stands(place.clone(), at(100));
        stake.stands(place, at(100));
        stake
    }

    /// Looks at what is due, and says who that is and whether it is the first in line.
    fn look(table: &mut Table, now: Moment) -> Vec<(u64, bool)> {
        let due = table.due(now);
        let mut seen = Vec::new();
        for Due { stake, first, .. } in due {
            let next = stake.look(now, first, &mut Todo::default());
            table.looked(&stake, not_in_circles(next, now));
            seen.push((stake.claim.id.bits(), first));
        }
        seen.sort_unstable();
        seen
    }

    #[test]
    fn a_look_is_at_what_is_due_however_many_are_not() {
        let mut table = Table::default();
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
        let mut table = Table::default();
        let stakes: Vec<_> = (0..10).map(|number| held(number, at(100))).collect();
        stakes.iter().for_each(|stake| table.insert(stake.clone()));
        look(&mut table, at(100));
        assert!(stakes.iter().all(|stake| table.remove(stake).is_some()));
        assert!(table.remove(&stakes[0]).is_none());
        assert!(table.timers.is_empty() && table.lines.is_empty() && table.iter().next().is_none());
        assert_eq!(look(&mut table, at(200)), []);
    }

    /// Only the foremost of this process looks for a lost push; when it has left, the next one does.
    #[test]
    fn whoever_comes_to_the_front_looks_in_its_place() {
        let mut table = Table::default();
        let (first, second) = (waits(1, 1, at(105)), waits(2, 2, at(106)));
        table.insert(first.clone());
        table.insert(second.clone());
        assert_eq!(look(&mut table, at(101)), [(1, true), (2, false)]);
        assert!(table.next() <= at(105));
        // The first hears of its turn, and nobody schedules anything.
        let grant = Grant::new(Fence::new(2), at(102), Duration::from_secs(2), true);
        first.start(grant, at(102), None, &mut Todo::default());
        assert_eq!(look(&mut table, at(105)), [(1, false), (2, true)]);
        assert!(table.next() <= at(106));
        // One that leaves makes way at once.
        let third = waits(3, 3, at(110));
        table.insert(third.clone());
        assert_eq!(look(&mut table, at(106)).last(), Some(&(3, false)));
        let (_, look_at) = table.remove(&second).unwrap();
        assert_eq!(look_at, at(110));
        assert!(table.next() <= at(110));
    }
}
