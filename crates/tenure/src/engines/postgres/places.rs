//! Which claims of this process wait, and at which places; and what it holds.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::pushes::Word;
use crate::model::claim::{ClaimId, Fence, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// The claims of this process. Pushes name a claim that waits by its ticket.
#[derive(Default)]
pub(super) struct Places(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_ticket: HashMap<(Name, Ticket), Spot>,
    /// Every claim from its request to its end, with its place once it has one. An answer may come after the end, when
    /// the watchdog has asked, too: it must bring nothing back.
    by_id: HashMap<ClaimId, Option<(Name, Ticket)>>,
    /// Since when what is held.
    holds: HashMap<ClaimId, Moment>,
    /// Pushes for tickets that are not known here (yet): they come over another connection than the answers.
    early: VecDeque<PlacePush>,
}

/// The largest number of early pushes that are kept.
const MOST_EARLY: usize = 256;
/// Whoever holds for longer than this listens: an operator may break the hold.
const LONG: Duration = Duration::from_secs(1);

/// A push to the claim at a place.
#[derive(Clone, Debug)]
pub(super) struct PlacePush {
    pub(super) at: (Name, Ticket),
    pub(super) heard: Moment,
    pub(super) word: Word,
}

#[derive(Clone)]
pub(super) struct Spot {
    pub(super) id: ClaimId,
    /// When the last request that was answered *waiting* was sent, and the highest fence at that time.
    pub(super) base: Moment,
    pub(super) floor: Fence,
}

impl Places {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a claim that is about to be sent.
    pub(super) fn expect(&self, id: ClaimId) {
        self.table().by_id.entry(id).or_default();
    }

    /// Records the place of a claim that was answered *waiting*, unless it has left in the meantime. Returns the pushes
    /// for this place that arrived earlier.
    pub(super) fn stands(
        &self,
        at: (Name, Ticket),
        id: ClaimId,
        base: Moment,
        floor: Fence,
    ) -> Vec<PlacePush> {
        let mut table = self.table();
        table.holds.remove(&id);
        let Some(known) = table.by_id.get_mut(&id) else { return Vec::new() };
        if let Some(before) = known.replace(at.clone())
            && before != at
        {
            table.by_ticket.remove(&before);
        }
        if let Some(spot) = table.by_ticket.get_mut(&at) {
            if spot.base <= base {
                (spot.base, spot.floor) = (base, floor);
            }
            return Vec::new();
        }
        let early = match table.early.is_empty() {
            true => VecDeque::new(),
            false => {
                let (early, others) = table.early.drain(..).partition(|early| early.at == at);
                table.early = others;
                early
            }
        };
        table.by_ticket.insert(at, Spot { id, base, floor });
        // A push from before the claim was sent was for an earlier claim with that ticket.
        early.into_iter().filter(|early: &PlacePush| early.heard >= base).collect()
    }

    /// Records that a claim holds, unless it has left in the meantime.
    pub(super) fn holds(&self, id: ClaimId, since: Moment) {
        let mut table = self.table();
        if table.by_id.contains_key(&id) {
            table.holds.entry(id).or_insert(since);
        }
    }

    /// Forgets a claim that has ended.
    pub(super) fn forget(&self, id: &ClaimId) {
        let mut table = self.table();
        table.holds.remove(id);
        if let Some(Some(at)) = table.by_id.remove(id) {
            table.by_ticket.remove(&at);
        }
    }

    /// Forgets a claim whose hold with this fence was lost, because nobody will leave it. A claim that already waits
    /// again is kept.
    pub(super) fn lost(&self, id: &ClaimId, fence: Fence) {
        let waits_again = {
            let mut table = self.table();
            table.holds.remove(id);
            let at = table.by_id.get(id).cloned().flatten();
            at.and_then(|at| table.by_ticket.get(&at)).is_some_and(|spot| spot.floor >= fence)
        };
        if !waits_again {
            self.forget(id);
        }
    }

    /// Returns the claim that a push is for. A push for an unknown ticket is kept until its claim is known.
    pub(super) fn find(&self, push: PlacePush) -> Option<(Spot, PlacePush)> {
        let mut table = self.table();
        if let Some(spot) = table.by_ticket.get(&push.at) {
            return Some((spot.clone(), push));
        }
        if table.early.len() >= MOST_EARLY {
            table.early.pop_front();
        }
        table.early.push_back(push);
        None
    }

    /// Whether there may be something to hear; otherwise, whether there will be if nothing changes.
    pub(super) fn should_listen(&self, now: Moment) -> (bool, bool) {
        let table = self.table();
        let long = table.holds.values().any(|since| now.since(*since) >= LONG);
        (!table.by_ticket.is_empty() || long, !table.holds.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::Space;

    #[test]
    fn an_answer_that_comes_after_the_end_of_a_claim_leaves_nothing_behind() {
        let places = Places::default();
        let (id, name) = (ClaimId::from_bytes([7; 16]), Name::new(Space::Lock, "x").unwrap());
        places.expect(id);
        places.holds(id, Moment::ORIGIN);
        assert_eq!(places.should_listen(Moment::FAR), (true, true));
        places.forget(&id);
        // The watchdog has asked for the same claim, and hears of it only now.
        places.holds(id, Moment::ORIGIN);
        places.stands((name, Ticket::new(7)), id, Moment::ORIGIN, Fence::new(7));
        assert_eq!(places.should_listen(Moment::FAR), (false, false));
    }
}
