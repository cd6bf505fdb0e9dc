//! Where the waiting claims of this process stand.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use super::protocol::push::Push;
use crate::model::claim::{ClaimId, Fence, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// The claims of this process that wait, or waited before they held. Pushes name a claim by its
/// ticket: the id is a secret, and a channel is not.
#[derive(Default)]
pub(super) struct Places(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_ticket: HashMap<(u16, Ticket), Spot>,
    /// Every claim that may wait, from its first request to its end; where it stands, once it does.
    by_id: HashMap<ClaimId, Option<(u16, Ticket)>>,
    /// How many stand in line for a name.
    lines: HashMap<Name, u32>,
    /// Pushes for tickets that nobody here is known to have: where commands have a connection of their own,
    /// a push can overtake the answer that says who stands there.
    early: VecDeque<PlacePush>,
}

/// How many early pushes are kept, at most.
const MOST_EARLY: usize = 256;

/// A push for the claim at a place. It may come before the answer that says whose place that is.
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
    /// When the last request that was answered *waiting* was sent, and the highest fence then. An
    /// answer that reports the grant does not count: the grant is older.
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

    /// The claim is about to be sent. Returns whether others stand in line for the name.
    pub(super) fn expect(&self, name: &Name, id: ClaimId) -> bool {
        let mut table = self.table();
        table.by_id.entry(id).or_default();
        table.lines.contains_key(name)
    }

    /// The claim was answered *waiting*. If it has left meanwhile, nothing is recorded. Returns what was pushed
    /// to it before that.
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

    /// The request of the claim was not sent. If it was its first, the claim is forgotten.
    pub(super) fn not_sent(&self, id: &ClaimId) {
        let mut table = self.table();
        if table.by_id.get(id) == Some(&None) {
            table.by_id.remove(id);
        }
    }

    /// The claim has ended. Returns whether it stood in line for the name, or others do.
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

    /// The hold with this fence has ended, and nobody will leave it. A claim that waits again by now
    /// stays.
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

    /// The claim that a push is for. A push for an unknown ticket is kept until its claim is known.
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
