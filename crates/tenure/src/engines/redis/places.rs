//! Which claims of this process wait, and at which places.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use super::protocol::push::Push;
use crate::model::claim::{ClaimId, Fence, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// The claims of this process that wait, or waited before they held. Pushes name a claim by its ticket,
/// because its id is a secret and channels are not.
#[derive(Default)]
pub(super) struct Places(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_ticket: HashMap<(u16, Ticket), Spot>,
    /// Every claim that may wait, from its first request to its end, with its place once it has one.
    by_id: HashMap<ClaimId, Option<(u16, Ticket)>>,
    /// How many claims wait for each name.
    lines: HashMap<Name, u32>,
    /// Pushes for tickets that are not known here (yet): where commands have a connection of their own, a
    /// push can overtake the answer that tells the claim its place.
    early: VecDeque<PlacePush>,
}

/// The largest number of early pushes that are kept.
const MOST_EARLY: usize = 256;

/// A push to the claim at a place. It may arrive before the answer that says which claim that is.
pub(super) struct PlacePush {
    pub(super) at: (u16, Ticket),
    pub(super) heard: Moment,
    pub(super) base: Moment,
    pub(super) push: Push,
}

#[derive(Clone)]
pub(super) struct Spot {
    pub(super) name: Name,
    pub(super) id: ClaimId,
    /// When the last request that was answered *waiting* was sent, and the highest fence at that time. An
    /// answer that reports the grant does not count, because the grant is older than the answer.
    pub(super) base: Moment,
    pub(super) floor: Fence,
}

impl Table {
    fn remove(&mut self, at: (u16, Ticket)) {
        let Some(Spot { name, .. }) = self.by_ticket.remove(&at) else { return };
        if let Some(count) = self.lines.get_mut(&name) {
            *count -= 1;
            if *count == 0 {
                self.lines.remove(&name);
            }
        }
    }
}

impl Places {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a claim that is about to be sent. Returns whether others are known to wait for the name.
    pub(super) fn expect(&self, name: &Name, id: ClaimId) -> bool {
        let mut table = self.table();
        table.by_id.entry(id).or_default();
        table.lines.contains_key(name)
    }

    /// Records the place of a claim that was answered *waiting*, unless it has left in the meantime.
    /// Returns the pushes for this place that arrived earlier.
    pub(super) fn stands(
        &self,
        at: (u16, Ticket),
        name: &Name,
        id: ClaimId,
        base: Moment,
        floor: Fence,
    ) -> Vec<PlacePush> {
        let mut table = self.table();
        let Some(known) = table.by_id.get_mut(&id) else { return Vec::new() };
        if let Some(before) = known.replace(at)
            && before != at
        {
            table.remove(before);
        }
        if let Some(spot) = table.by_ticket.get_mut(&at) {
            if spot.base <= base {
                (spot.base, spot.floor) = (base, floor);
            }
            return Vec::new();
        }
        table.by_ticket.insert(at, Spot { name: name.clone(), id, base, floor });
        *table.lines.entry_ref(name).or_insert(0) += 1;
        if table.early.is_empty() {
            return Vec::new();
        }
        let (early, others) = table.early.drain(..).partition(|early| early.at == at);
        table.early = others;
        // A push from before the claim was sent was for an earlier claim with that ticket.
        let early: VecDeque<PlacePush> = early;
        early.into_iter().filter(|early| early.heard >= base).collect()
    }

    /// The claim's request was not sent. If it was the first, the claim is forgotten.
    pub(super) fn not_sent(&self, id: &ClaimId) {
        let mut table = self.table();
        if table.by_id.get(id) == Some(&None) {
            table.by_id.remove(id);
        }
    }

    /// Forgets a claim that has ended. Returns whether it waited for the name, or others do.
    pub(super) fn forget(&self, name: &Name, id: &ClaimId) -> bool {
        let mut table = self.table();
        match table.by_id.remove(id) {
            Some(Some(at)) => {
                table.remove(at);
                true
            }
            _ => table.lines.contains_key(name),
        }
    }

    /// Forgets a claim whose hold with this fence was lost, because nobody will leave it. A claim that
    /// already waits again is kept.
    pub(super) fn lost(&self, name: &Name, id: &ClaimId, fence: Fence) {
        let waits_again = {
            let table = self.table();
            let spot =
                table.by_id.get(id).copied().flatten().and_then(|at| table.by_ticket.get(&at));
            spot.is_some_and(|spot| spot.floor >= fence)
        };
        if !waits_again {
            self.forget(name, id);
        }
    }

    /// Returns the claim that a push is for. A push for an unknown ticket is kept until its claim is known.
    pub(super) fn find(&self, early: PlacePush) -> Option<(Spot, PlacePush)> {
        let mut table = self.table();
        if let Some(spot) = table.by_ticket.get(&early.at) {
            return Some((spot.clone(), early));
        }
        if table.early.len() >= MOST_EARLY {
            table.early.pop_front();
        }
        table.early.push_back(early);
        None
    }

    /// Whether claims of this process are known to wait for the name.
    pub(super) fn has_line(&self, name: &Name) -> bool {
        self.table().lines.contains_key(name)
    }

    pub(super) fn all(&self) -> Vec<(Name, ClaimId)> {
        self.table().by_ticket.values().map(|spot| (spot.name.clone(), spot.id)).collect()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.table().by_ticket.is_empty()
    }

    /// The partitions in which someone waits.
    pub(super) fn partitions(&self) -> Vec<u16> {
        let mut all: Vec<_> =
            self.table().by_ticket.keys().map(|(partition, _)| *partition).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}
