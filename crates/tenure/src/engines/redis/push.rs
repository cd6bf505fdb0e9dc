//! Turns that come by push, and the places they are for.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;

use super::Shared;
use super::answer::{HowEnded, Push, read_push};
use super::link::{Link, Parcel, Reply};
use super::wire::By;
use crate::claim::{ClaimId, Fence, Grant, Leave, Ticket, Turn, look_again};
use crate::clock::World;
use crate::engine::Turns;
use crate::moment::Moment;
use crate::name::Name;
use crate::observe;

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
}

#[derive(Clone)]
struct Spot {
    name: Name,
    id: ClaimId,
    /// When the last request that was answered *waiting* was sent, and the highest fence then. An
    /// answer that found the grant is no base for it: the grant is older.
    base: Moment,
    floor: Fence,
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

    /// The claim was answered *waiting*. One that has left meanwhile stands nowhere.
    pub(super) fn stands(
        &self,
        at: (u16, Ticket),
        name: &Name,
        id: ClaimId,
        base: Moment,
        floor: Fence,
    ) {
        let mut table = self.table();
        let Some(known) = table.by_id.get_mut(&id) else { return };
        if let Some(before) = known.replace(at)
            && before != at
        {
            table.remove(before);
        }
        if let Some(spot) = table.by_ticket.get_mut(&at) {
            if spot.base <= base {
                (spot.base, spot.floor) = (base, floor);
            }
            return;
        }
        table.by_ticket.insert(at, Spot { name: name.clone(), id, base, floor });
        *table.lines.entry_ref(name).or_insert(0) += 1;
    }

    /// The request of the claim was not sent. If it was its first, there is nothing to be heard of it.
    pub(super) fn not_sent(&self, id: &ClaimId) {
        let mut table = self.table();
        if table.by_id.get(id) == Some(&None) {
            table.by_id.remove(id);
        }
    }

    /// The claim is over. Returns whether it stood in line for the name, or others do.
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

    /// The hold with this fence is no more, and nobody will leave it. A claim that waits again since
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

    fn find(&self, at: (u16, Ticket)) -> Option<Spot> {
        self.table().by_ticket.get(&at).cloned()
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

impl Shared {
    /// A push came over `link`. `base` is when the last request that was answered there before it
    /// was sent: what was pushed happened after that.
    pub(super) fn pushed(&self, link: &Arc<Link>, base: Moment, text: &[u8]) {
        match read_push(&self.layout, text) {
            Some(Push::Granted { partition, ticket, fence, life, first_life, following }) => {
                if let Some((ticket, after)) = following {
                    self.look_at((partition, ticket), after);
                }
                let Some(spot) = self.places.find((partition, ticket)) else { return };
                self.saw(partition, fence);
                // Older than its base, which the core may not have heard of yet.
                if fence <= spot.floor {
                    return;
                }
                let mut grant = Grant::new(fence, base.max(spot.base), life, first_life);
                if self.config.wait_replicas > 0 {
                    // Nobody has counted the replicas that have it: renew first.
                    grant.start_by = Moment::ORIGIN;
                }
                if !self.deliver(&spot.name, &spot.id, Turn::Granted(grant)) {
                    let leave = Leave {
                        only: Some(fence),
                        unbegun: true,
                        ..Leave::new(spot.name, spot.id)
                    };
                    let request = self.layout.leave(&leave, true);
                    let parcel = Parcel::new(Reply::Ticked(leave.name));
                    link.send(&request, Parcel { by: By::Text, ..parcel });
                }
            }
            Some(Push::AskAgain { partition, ticket }) => {
                if let Some(spot) = self.places.find((partition, ticket)) {
                    self.deliver(&spot.name, &spot.id, Turn::LookAgain);
                }
            }
            Some(Push::LookAt { partition, ticket, after }) => {
                self.look_at((partition, ticket), after);
            }
            Some(Push::Ended { name, id, how }) => {
                self.places.forget(&name, &id);
                let turn = match how {
                    HowEnded::Ended(ended) => Turn::Ended(ended),
                    HowEnded::Settled(outcome) => Turn::Settled(outcome),
                };
                self.deliver(&name, &id, turn);
            }
            None => observe::strange_push(&self.profile.label),
        }
    }

    fn look_at(&self, at: (u16, Ticket), after: Duration) {
        if let Some(spot) = self.places.find(at) {
            let when = look_again(self.world.now() + after, 0);
            self.deliver(&spot.name, &spot.id, Turn::LookAt(when));
        }
    }

    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let clients = self.clients();
        clients.iter().any(|client| client.deliver(name, id, turn.clone()))
    }

    pub(super) fn clients(&self) -> Vec<Arc<dyn Turns>> {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(std::sync::Weak::upgrade).collect()
    }
}
