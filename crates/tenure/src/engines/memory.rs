//! `memory:`: locks within this process.
//!
//! The ledger behind a short mutex. Names are spread over shards, so unrelated ones do not contend. A name takes
//! memory while it is used and while there is something to remember about it. Nothing that is held or waited for
//! is ever evicted.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::fmt;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hashbrown::HashTable;
use hashbrown::hash_table::Entry as Found;

use super::convert::{Limits, holder, kept, record as record_of, renewed, turn, verdict, waiter};
use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns, View};
use crate::ledger::{Answer, Entry, Keeper, Ledger, Line, Storage, Word};
use crate::model::claim::{
    Broken, Claim, ClaimId, Details, Fence, Forgotten, Holder, Keep, Kept, Leave, Left, Note,
    OnceRecord, Renewal, Renewed, Verdict,
};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::{SystemWorld, World};

const SHARDS: usize = 64;
/// How many unused lines a shard keeps, so that a busy program need not allocate for each claim.
const SPARE: usize = 4;
const SWEEP_EVERY: Duration = Duration::from_secs(60);

/// Locks within this process. [`Tenure::connect`](crate::Tenure::connect) lists the URLs.
pub struct Memory {
    shards: Box<[Shard]>,
    clients: RwLock<Arc<[Weak<dyn Turns>]>>,
    world: Arc<dyn World>,
    profile: Profile,
    /// The wall clock in microseconds, when this was made, and when that was.
    wall: (u64, Moment),
}

/// Aligned, so that unrelated names do not share a cache line.
#[repr(align(128))]
struct Shard(Mutex<Table>);

#[expect(clippy::vec_box, reason = "lines move between the table and the spare ones as they are")]
struct Table {
    lines: HashTable<(Name, Box<NamedLine>)>,
    spare: Vec<Box<NamedLine>>,
    /// When to look for unused lines that have nothing left to remember.
    sweep_at: Moment,
    numbers: Arc<AtomicU64>,
}

type NamedLine = Line<Arc<AtomicU64>>;
/// Memory cannot fail.
type Sure<T> = std::result::Result<T, Infallible>;
type Say<'a> = &'a mut dyn FnMut(&Entry, Word) -> bool;
type MemoryLedger<'a> = Ledger<'a, NamedLine, Say<'a>>;

impl Memory {
    /// Locks on the system's clock. Fences start at the wall clock in microseconds, so they keep rising when the
    /// process is restarted, unless a name was granted more than half a million times a second on average.
    pub fn new() -> Memory {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Memory::in_world(Arc::new(SystemWorld), wall.as_micros() as u64)
    }

    /// Locks in a given world, such as virtual time, with fences that start above `last_number`.
    pub fn in_world(world: Arc<dyn World>, last_number: u64) -> Memory {
        let table = |_| Table {
            lines: HashTable::new(),
            spare: Vec::new(),
            sweep_at: Moment::ORIGIN,
            numbers: Arc::new(AtomicU64::new(last_number)),
        };
        Memory {
            shards: (0..SHARDS).map(table).map(|table| Shard(Mutex::new(table))).collect(),
            clients: RwLock::new(Arc::from([])),
            wall: (last_number, world.now()),
            world,
            profile: Profile::new("memory"),
        }
    }

    /// Lets processes hand holds over among their own claims. Here this saves nothing; it is for tests of that.
    pub fn handing_over(mut self) -> Memory {
        self.profile.hands_over = true;
        self
    }

    fn table(&self, name: &Name) -> MutexGuard<'_, Table> {
        let shard = &self.shards[(name.local_hash() >> 40) as usize % SHARDS];
        shard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes one atomic step on a name, and returns what the caller wants to see of the line after it. Messages
    /// to other claims are delivered after the name is unlocked; a turn that nobody takes is passed on.
    fn step<A, T>(
        &self,
        name: &Name,
        act: impl FnOnce(&mut MemoryLedger<'_>) -> Sure<A>,
        see: impl FnOnce(A, Moment, &NamedLine) -> T,
    ) -> T {
        let now = self.world.now();
        let mut outbox = Outbox::default();
        let seen = self.table(name).step(name, now, &mut outbox, act, see);
        while let Some((id, word)) = outbox.pop() {
            let Some(fence) = self.deliver(name, id, word, now) else { continue };
            let leave = Leave { only: Some(fence), unbegun: true, ..Leave::new(name.clone(), id) };
            let act = |ledger: &mut MemoryLedger<'_>| ledger.leave(&leave, 0);
            let _: Left = self.table(name).step(name, now, &mut outbox, act, |left, _, _| left);
        }
        seen
    }

    /// Tells a claim something. Returns the fence of a grant that nobody takes.
    fn deliver(&self, name: &Name, id: ClaimId, word: Word, now: Moment) -> Option<Fence> {
        let fence = match word {
            Word::Granted { fence, .. } => Some(fence),
            _ => None,
        };
        let turn = turn(word, now);
        // Cloned, because the receiver may call this engine, or attach to it.
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner).clone();
        let mut reached = clients.iter().filter_map(Weak::upgrade);
        let taken = reached.any(|client| client.deliver(name, &id, turn.clone()));
        fence.filter(|_| !taken)
    }

    fn leave_now(&self, leave: &Leave) -> Left {
        self.step(&leave.name, |ledger| ledger.leave(leave, 0), |left, _, _| left)
    }

    fn renew_one(&self, renewal: &Renewal) -> Renewed {
        match renewal {
            Renewal::Hold { name, id, fence, ttl } => {
                self.step(name, |ledger| ledger.renew(id, *fence, *ttl), seen)
            }
            Renewal::Place(claim) => {
                self.step(&claim.name, |ledger| ledger.claim(claim, 0, false), seen)
            }
        }
    }
}

/// Messages to other claims, in order. Most steps have one or none, which needs no allocation.
#[derive(Default)]
struct Outbox {
    first: Option<(ClaimId, Word)>,
    rest: VecDeque<(ClaimId, Word)>,
}

impl Outbox {
    fn push(&mut self, id: ClaimId, word: Word) {
        match self.first {
            None => self.first = Some((id, word)),
            Some(_) => self.rest.push_back((id, word)),
        }
    }

    fn pop(&mut self) -> Option<(ClaimId, Word)> {
        std::mem::replace(&mut self.first, self.rest.pop_front())
    }
}

impl Default for Memory {
    fn default() -> Memory {
        Memory::new()
    }
}

impl Table {
    fn step<A, T>(
        &mut self,
        name: &Name,
        now: Moment,
        outbox: &mut Outbox,
        act: impl FnOnce(&mut MemoryLedger<'_>) -> Sure<A>,
        see: impl FnOnce(A, Moment, &NamedLine) -> T,
    ) -> T {
        self.sweep(now);
        let found = self.lines.entry(name.local_hash(), |(known, _)| known == name, hash_of);
        let mut found = match found {
            Found::Occupied(found) => found,
            Found::Vacant(room) => {
                let fresh = || Box::new(Line::new(self.numbers.clone()));
                room.insert((name.clone(), self.spare.pop().unwrap_or_else(fresh)))
            }
        };
        let line = &mut *found.get_mut().1;
        // Everyone who waits here is in this process, and can be reached.
        let mut say = |entry: &Entry, word: Word| {
            if word != Word::AreYouThere {
                outbox.push(entry.id, word);
            }
            true
        };
        let mut ledger = Ledger::new(line, now, &mut say as Say<'_>);
        let Ok(answer) = act(&mut ledger);
        let mut more = ledger.more();
        while more {
            let mut ledger = Ledger::new(line, now, &mut say as Say<'_>);
            let Ok(()) = ledger.tick();
            more = ledger.more();
        }
        let seen = see(answer, now, line);
        if line.is_unused() && line.remembers_until() <= now {
            let ((_, line), _) = found.remove();
            self.recycle(line);
        }
        seen
    }

    /// Now and then ends the claims whose time is over in lines that no step touches any more, and forgets lines
    /// that are no longer needed. Lines in use need no sweep: their own steps do this.
    fn sweep(&mut self, now: Moment) {
        if now < self.sweep_at {
            return;
        }
        self.sweep_at = now + SWEEP_EVERY;
        self.lines.retain(|(_, line)| {
            if line.has_ended(now) {
                // There is nobody to tell.
                let mut say = |_: &Entry, _: Word| false;
                let Ok(()) = Ledger::new(&mut **line, now, &mut say as Say<'_>).tick();
            }
            !line.is_unused() || line.remembers_until() > now
        });
    }

    fn recycle(&mut self, mut line: Box<NamedLine>) {
        if self.spare.len() < SPARE {
            line.clear();
            self.spare.push(line);
        }
        // A burst of names must not keep its memory for ever.
        if self.lines.capacity() > 256 && self.lines.len() < self.lines.capacity() / 8 {
            let room = self.lines.len() * 2;
            self.lines.shrink_to(room, hash_of);
        }
    }

    fn view(&self, name: &Name, now: Moment) -> Option<View> {
        let (name, line) = self.lines.find(name.local_hash(), |(known, _)| known == name)?;
        let Ok(totals) = line.totals();
        let live = |(entry, _): &(Entry, Arc<Details>)| entry.until > now;
        let holders: Vec<_> =
            line.holders().into_iter().filter(live).map(|found| holder(found, now)).collect();
        let waiters: Vec<_> =
            line.waiters().into_iter().filter(live).map(|found| waiter(found, now)).collect();
        let Ok(record) = line.record(now);
        let record = record.map(|known| record_of(known, now));
        let view = View { name: name.clone(), capacity: totals.capacity, holders, waiters, record };
        (view.is_used() || view.record.is_some()).then_some(view)
    }
}

fn hash_of((name, _): &(Name, Box<NamedLine>)) -> u64 {
    name.local_hash()
}

impl Engine for Memory {
    fn profile(&self) -> &Profile {
        &self.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        let alive = clients.iter().filter(|client| client.strong_count() > 0).cloned();
        *clients = alive.chain([turns]).collect();
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let act = |ledger: &mut MemoryLedger<'_>| ledger.claim(claim, 0, true);
        let see = |answer, now, line: &NamedLine| {
            verdict(answer, Limits::of(claim), now, || first_holder(line, now))
        };
        Step::ready(self.step(&claim.name, act, see))
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        Step::ready(Ok(batch.iter().map(|renewal| self.renew_one(renewal)).collect()))
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        let (wall, since) = self.wall;
        let highest = wall + self.world.now().since(since).as_micros() as u64;
        let (carrier, fence, ttl, details) = (keep.id, keep.fence, keep.ttl, &keep.details);
        let keeper = Keeper { carrier, fence, ttl, fences: (keep.fences, highest), details };
        let act = |ledger: &mut MemoryLedger<'_>| ledger.keep(&keeper);
        let see = |answer, now, _: &NamedLine| kept(answer, fence, now);
        Step::ready(Ok(self.step(&keep.name, act, see)))
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        Step::ready(Ok(self.leave_now(leave)))
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        done.done(Ok(self.leave_now(&leave)));
    }

    fn leave_at_once(&self, leave: &Leave) -> Option<Left> {
        Some(self.leave_now(leave))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        let done = self.step(
            name,
            |ledger| ledger.resize(capacity),
            |done, _, _| match done {
                true => Ok(()),
                false => Err(Claim::capacity_is_fixed()),
            },
        );
        Step::ready(done)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        Step::ready(Ok(self.step(name, |ledger| ledger.break_hold(fence, note), |done, _, _| done)))
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        let settled = seen.outcome.is_some();
        let act = |ledger: &mut MemoryLedger<'_>| ledger.forget(seen.fence, settled);
        Step::ready(Ok(self.step(name, act, |done, _, _| done)))
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let now = self.world.now();
        let page = match scope {
            Scope::Name(name) => {
                Page { views: self.table(name).view(name, now).into_iter().collect(), more: false }
            }
            Scope::Prefix { space, prefix, after, limit } => {
                let fits = |name: &Name| {
                    let later = after.as_ref().is_none_or(|after| name > after);
                    name.space() == *space && name.as_str().starts_with(prefix) && later
                };
                let mut views = Vec::new();
                for shard in &self.shards {
                    let table = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
                    let names = table.lines.iter().map(|(name, _)| name).filter(|name| fits(name));
                    let used = names.filter_map(|name| table.view(name, now)).filter(View::is_used);
                    views.extend(used.map(|view| View { record: None, ..view }));
                }
                views.sort_by(|a, b| a.name.cmp(&b.name));
                let more = views.len() > *limit;
                views.truncate(*limit);
                Page { views, more }
            }
        };
        Step::ready(Ok(page))
    }

    fn glance(&self, name: &Name) -> Option<View> {
        self.table(name).view(name, self.world.now())
    }

    fn health(&self) -> Step<()> {
        Step::ready(Ok(()))
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        let alone = Finding::warning("reach", "the lines are in this process")
            .why("no other process sees them, and they end with this one")
            .fix("use file: for the processes of a machine, redis:// for several machines");
        Step::ready(Ok(vec![alone]))
    }

    fn close(&self) -> Step<()> {
        Step::ready(Ok(()))
    }
}

fn seen(answer: Answer, now: Moment, line: &NamedLine) -> Renewed {
    renewed(answer, now, || first_holder(line, now))
}

fn first_holder(line: &NamedLine, now: Moment) -> Option<Holder> {
    line.first_to_end().map(|found| holder(found, now))
}

impl fmt::Debug for Memory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memory").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::Result;
    use crate::model::name::Space;
    use crate::world::Job;
    use std::sync::atomic::Ordering::Relaxed;

    /// A world in which time stands still until the test moves it.
    #[derive(Debug, Default)]
    struct Still(AtomicU64);

    impl World for Still {
        fn now(&self) -> Moment {
            Moment::from_nanos(self.0.load(Relaxed))
        }

        fn mint(&self) -> Result<ClaimId> {
            SystemWorld.mint()
        }

        fn start(&self, _: Job) -> std::io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_hold_that_ended_unnoticed_takes_no_room_for_long() {
        let world = Arc::new(Still::default());
        let memory = Memory::in_world(world.clone(), 0);
        let claim = |text: &str| {
            let name = Name::new(Space::Lock, text).unwrap();
            let claim = Claim::new(name, world.mint().unwrap());
            assert!(matches!(memory.claim(&claim).at_hand(), Ok(Ok(Verdict::Granted(_)))));
            claim
        };
        let lines = || {
            let count = |shard: &Shard| shard.0.lock().unwrap().lines.len();
            memory.shards.iter().map(count).sum::<usize>()
        };
        (0..500).for_each(|number| drop(claim(&format!("forgotten:{number}"))));
        assert_eq!(lines(), 500);
        world.0.store(120_000_000_000, Relaxed);
        // Each claim sweeps the shard of its name.
        for number in 0..2000 {
            memory.leave_now(&Leave::new(claim(&format!("busy:{number}")).name, ClaimId::NONE));
        }
        assert_eq!(lines(), 2000);
    }
}
