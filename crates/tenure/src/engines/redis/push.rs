//! Turns that come by push, and the places they are for.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use foldhash::fast::RandomState;

use super::Shared;
use super::link::{Link, Parcel, Reply};
use super::pushed::{HowEnded, Push, read_push};
use super::wire::By;
use crate::engine::Turns;
use crate::model::claim::{ClaimId, Fence, Grant, Leave, Ticket, Turn, look_again};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::observe;
use crate::world::World;

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
    early: VecDeque<Early>,
}

/// So many pushes that came early are kept, the latest.
const MOST_EARLY: usize = 256;

/// A push that came before the answer that says whose it is.
pub(super) struct Early {
    at: (u16, Ticket),
    heard: Moment,
    base: Moment,
    push: Push,
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

    /// The claim was answered *waiting*. One that has left meanwhile stands nowhere. Returns what was pushed
    /// to it before that.
    pub(super) fn stands(
        &self,
        at: (u16, Ticket),
        name: &Name,
        id: ClaimId,
        base: Moment,
        floor: Fence,
    ) -> Vec<Early> {
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
        // What was heard before the claim was sent is about another that had the ticket.
        let early: VecDeque<Early> = early;
        early.into_iter().filter(|early| early.heard >= base).collect()
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

    /// Whom a push is for. If that is not known, it is kept until it is.
    fn find(&self, early: Early) -> Option<(Spot, Early)> {
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

    fn all(&self) -> Vec<(Name, ClaimId)> {
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

impl Shared {
    /// A push came over `link`. `base` is when the last request that was answered there before it
    /// was sent: what was pushed happened after that.
    pub(super) fn pushed(&self, link: &Arc<Link>, base: Moment, text: &[u8]) {
        let now = self.world.now();
        match read_push(&self.layout, text) {
            Some(Push::Ended { name, id, how }) => {
                self.places.forget(&name, &id);
                let turn = match how {
                    HowEnded::Ended(ended) => Turn::Ended(ended),
                    HowEnded::Settled(outcome) => Turn::Settled(outcome),
                };
                self.deliver(&name, &id, turn);
            }
            Some(Push::Granted { partition, ticket, fence, life, first_life, following }) => {
                if let Some((ticket, after)) = following {
                    let push = Push::LookAt { partition, ticket, after };
                    self.for_place(link, Early { at: (partition, ticket), heard: now, base, push });
                }
                let following = None;
                let push = Push::Granted { partition, ticket, fence, life, first_life, following };
                self.for_place(link, Early { at: (partition, ticket), heard: now, base, push });
            }
            Some(
                push @ (Push::AskAgain { partition, ticket }
                | Push::LookAt { partition, ticket, .. }),
            ) => self.for_place(link, Early { at: (partition, ticket), heard: now, base, push }),
            Some(Push::AreYouThere) => {}
            None => observe::strange_push(&self.profile.label),
        }
    }

    /// What was pushed to one place, now or before it was known whose it is.
    pub(super) fn for_place(&self, link: &Arc<Link>, early: Early) {
        let Some((spot, early)) = self.places.find(early) else { return };
        let Early { heard, base, push, .. } = early;
        let turn = match push {
            Push::Granted { partition, fence, life, first_life, .. } => {
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
                Turn::Granted(grant)
            }
            Push::LookAt { after, .. } => Turn::LookAt(look_again(heard + after, 0)),
            Push::AskAgain { .. } | Push::Ended { .. } | Push::AreYouThere => Turn::LookAgain,
        };
        let granted = if let Turn::Granted(grant) = &turn { Some(grant.fence) } else { None };
        let taken = self.deliver(&spot.name, &spot.id, turn);
        if let Some(fence) = granted.filter(|_| !taken) {
            let leave = Leave::new(spot.name, spot.id);
            let leave = Leave { only: Some(fence), unbegun: true, ..leave };
            let request = self.layout.leave(&leave, true);
            let parcel = Parcel::new(Reply::Ticked(leave.name));
            link.send(&request, Parcel { by: By::Text, ..parcel });
        }
    }

    /// This user may not listen, so that no turn is heard of: everyone who waits asks.
    pub(super) fn all_ask_again(&self) {
        for (name, id) in self.places.all() {
            self.deliver(&name, &id, Turn::LookAgain);
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

#[cfg(test)]
mod tests {
    use std::sync::Weak;

    use super::super::Redis;
    use super::super::config::{Address, RedisConfig, Topology};
    use super::super::link::{Duty, Pending, Target};
    use super::super::resp::Value;
    use super::super::wire::partition;
    use super::*;
    use crate::engine::Engine;
    use crate::model::name::Space;

    #[derive(Debug, Default)]
    struct Heard(Mutex<Vec<Turn>>);

    impl Turns for Heard {
        fn deliver(&self, _: &Name, _: &ClaimId, turn: Turn) -> bool {
            self.0.lock().unwrap().push(turn);
            true
        }

        fn look_again(&self, _: u32) {}
    }

    /// A claim that is about to be answered *waiting*, with ticket 7 after fence 5, and what is pushed
    /// before that. Returns what its owner hears.
    fn heard(pushes: &[&str], sent_before_push: bool) -> Vec<Turn> {
        let address = Address::Tcp { host: "127.0.0.1".into(), port: 1 };
        let redis =
            Redis::unconnected(RedisConfig::new(Topology::Single(address.clone()))).unwrap();
        let heard = Arc::new(Heard::default());
        let turns: Weak<dyn Turns> = Arc::downgrade(&heard) as _;
        redis.attach(turns);
        let shared = &redis.steps.shared;
        let link = Link::new(shared.clone(), Target::Fixed(address), Duty::Commands);
        let name = Name::new(Space::Lock, "x").unwrap();
        let id = ClaimId::from_bytes([7; 16]);
        shared.places.expect(&name, id);
        let before = shared.world.now();
        for push in pushes {
            let text = push.replace('P', &partition(&name).to_string());
            shared.pushed(&link, Moment::ORIGIN, text.as_bytes());
        }
        assert!(heard.0.lock().unwrap().is_empty(), "nobody knows yet whose it is");
        let sent = if sent_before_push { before } else { shared.world.now() };
        let (reply, _answer) = tokio::sync::oneshot::channel();
        let waits =
            [Value::Bytes(b"W".as_slice().into()), Value::Int(7), Value::Int(0), Value::Int(5)];
        let pending = Pending { sent, reply: Reply::Claim(reply, name, id) };
        link.answered(pending, Value::List(waits.into()));
        heard.0.lock().unwrap().clone()
    }

    /// Where commands have a connection of their own, the turn can be there before the place is.
    #[test]
    fn a_turn_that_overtakes_the_answer_waiting_is_kept() {
        let turns = heard(&["G P 7 9 2000 1"], true);
        assert!(matches!(&turns[..], [Turn::Granted(grant)] if grant.fence == Fence::new(9)));
        assert!(matches!(&heard(&["A P 7"], true)[..], [Turn::LookAgain]));
        assert!(matches!(&heard(&["L P 7 1000"], true)[..], [Turn::LookAt(_)]));
        let behind = heard(&["G P 6 8 2000 1 7 2000"], true);
        assert!(matches!(&behind[..], [Turn::LookAt(_)]), "{behind:?}");
    }

    #[test]
    fn a_turn_of_another_or_an_older_one_is_not_believed() {
        assert!(heard(&["G P 8 9 2000 1"], true).is_empty(), "another's");
        assert!(heard(&["G P 7 5 2000 1"], true).is_empty(), "from before the answer");
        assert!(heard(&["G P 7 9 2000 1"], false).is_empty(), "from before the claim");
    }
}
