//! The slots where turns arrive: every claim of this process that is not over, by name.
//!
//! A stake is here before its claim is sent, so that no push can come too early, and until the engine
//! has acknowledged its end. The watchdog looks at what is due in the same table. Claims of one name share
//! a shard, so that a look sees which of them stands foremost.

mod shard;

use std::any::Any;
use std::fmt;
use std::sync::atomic::{
    AtomicU64,
    Ordering::{Relaxed, SeqCst},
};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use self::shard::{Due, Table};
use crate::core::claim_state::{Released, Stake, Todo};
use crate::engine::{LeaveAnswers, Turns};
use crate::model::claim::{ClaimId, Fence, Left, Turn};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::observe::{End, Reporter};
use crate::system;
use crate::world::World;

const SHARDS: usize = 64;

pub(crate) struct Slots {
    shards: [Shard; SHARDS],
    /// When the watchdog looks next. Whoever needs it earlier rings the bell.
    next_look: AtomicU64,
    pub(crate) bell: Bell,
    world: Arc<dyn World>,
    shard_of: Box<dyn Fn(&Name) -> u32 + Send + Sync>,
    seen: AtomicU64,
    pub(crate) reporter: Arc<Reporter>,
}

/// Aligned, so that claims of unrelated names do not share a cache line.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    stakes: Mutex<Table>,
    /// When something is due, or earlier.
    due: AtomicU64,
}

impl Slots {
    pub(crate) fn new(
        world: Arc<dyn World>,
        shard_of: Box<dyn Fn(&Name) -> u32 + Send + Sync>,
        reporter: Reporter,
    ) -> Slots {
        let shard = || Shard { due: AtomicU64::new(u64::MAX), ..Shard::default() };
        Slots {
            shards: std::array::from_fn(|_| shard()),
            next_look: AtomicU64::new(u64::MAX),
            bell: Bell::default(),
            world,
            shard_of,
            seen: AtomicU64::new(0),
            reporter: Arc::new(reporter),
        }
    }

    pub(crate) fn insert(&self, stake: Arc<Stake>) {
        self.shard(&stake.claim.name).stakes().insert(stake);
    }

    /// Puts in a stake whose claim was made before, maybe by this process; `false` if this process has
    /// not let go of that.
    pub(crate) fn insert_again(&self, stake: Arc<Stake>) -> bool {
        let mut stakes = self.shard(&stake.claim.name).stakes();
        let before = stakes.find(&stake.claim.id).cloned();
        if before.as_ref().is_some_and(|before| !before.is_detached()) {
            return false;
        }
        let removed = before.as_ref().and_then(|before| stakes.remove(before));
        stakes.insert(stake);
        drop(stakes);
        drop((removed, before));
        true
    }

    /// Lets go of a hold that was only asked after.
    pub(crate) fn let_go(&self, stake: &Arc<Stake>) {
        match stake.let_go(self.world.now()) {
            Ok((forget_at, _)) => self.schedule(stake, forget_at),
            Err(_) => self.remove(stake),
        }
    }

    pub(crate) fn remove(&self, stake: &Stake) {
        let shard = self.shard(&stake.claim.name);
        // It may be the last that holds on to the handle, whose end is heard beyond this table.
        let removed = shard.stakes().remove(stake);
        if let Some((_, look_at)) = &removed {
            self.look_by(shard, *look_at);
        }
    }

    /// Makes the watchdog look at the claim at `at`.
    pub(crate) fn schedule(&self, stake: &Arc<Stake>, at: Moment) {
        let shard = self.shard(&stake.claim.name);
        if stake.timer.is_later(at) {
            shard.stakes().look_by(stake, at);
        }
        self.look_by(shard, at);
    }

    /// A renewal was answered: the claim is looked at when it needs that again, and not before.
    pub(crate) fn renewed(&self, stake: &Arc<Stake>, now: Moment) {
        let shard = self.shard(&stake.claim.name);
        let next = shard.stakes().look_next(stake, now);
        self.look_by(shard, next);
    }

    fn look_by(&self, shard: &Shard, at: Moment) {
        // Nearly always something else is due earlier. If that has just been looked at, so was this:
        // a stake is changed before it is scheduled, and a look resets the mark before it begins.
        if shard.due.load(SeqCst) <= at.as_nanos() {
            return;
        }
        shard.due.fetch_min(at.as_nanos(), SeqCst);
        if at.as_nanos() < self.next_look.load(SeqCst) {
            self.bell.ring();
        }
    }

    /// A new watchdog takes over: whatever the one before it asked is not heard any more.
    pub(crate) fn take_over(&self) {
        for stake in self.all() {
            stake.not_in_flight();
            self.schedule(&stake, Moment::ORIGIN);
        }
    }

    /// Says when the watchdog will look next, and is believed: whatever is due earlier is either in
    /// the answer or rings the bell.
    pub(crate) fn settle_next_look(&self) -> Moment {
        let earliest = || self.shards.iter().map(|shard| shard.due.load(SeqCst)).min();
        loop {
            let next = earliest().unwrap_or(u64::MAX);
            self.next_look.store(next, SeqCst);
            if earliest().unwrap_or(u64::MAX) >= next {
                return Moment::from_nanos(next);
            }
        }
    }

    /// Looks at what is due, and collects what is to be done.
    pub(crate) fn look(&self, now: Moment) -> Vec<(Arc<Stake>, Todo)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            if shard.due.load(SeqCst) > now.as_nanos() {
                continue;
            }
            // Reset before the look: whatever changes behind it lowers the mark again.
            shard.due.store(u64::MAX, SeqCst);
            let mut stakes = shard.stakes();
            for Due { stake, ticket, first } in stakes.due(now) {
                let mut todo = Todo::default();
                let next = stake.look(now, first, &mut todo);
                stakes.looked(&stake, not_in_circles(next, now));
                if !todo.is_empty() {
                    found.push(((ticket, stake.claim.id), stake, todo));
                }
            }
            shard.due.fetch_min(stakes.next().as_nanos(), SeqCst);
        }
        // The table's order differs from run to run; what follows from a look must not.
        found.sort_by_key(|(order, ..)| *order);
        found.into_iter().map(|(_, stake, todo)| (stake, todo)).collect()
    }

    /// Does what needs no engine: wakes, logs, forgets.
    pub(crate) fn carry_out(&self, stake: &Arc<Stake>, todo: &mut Todo) {
        if todo.over {
            self.remove(stake);
        }
        if let Some(heard) = todo.heard.take() {
            self.reporter.renewals(vec![(stake.clone(), heard)]);
        }
        if let Some(why) = todo.at_risk.take() {
            self.reporter.at_risk(stake, why, self.world.now());
        }
        if let Some(ended) = todo.lost.take() {
            self.reporter.lost(self.end(stake, todo), ended);
        }
        if std::mem::take(&mut todo.unheard) {
            self.reporter.release_unanswered(stake);
        }
        if std::mem::take(&mut todo.unanswered) {
            self.reporter.released_late(self.end(stake, todo), None);
        }
        if let Some(waker) = todo.wake.take() {
            system::wake(waker);
        }
        todo.wake_observers.drain(..).for_each(system::wake);
        drop(todo.frees.take());
    }

    fn end<'a>(&'a self, stake: &'a Arc<Stake>, todo: &mut Todo) -> End<'a> {
        End { stake, holding: todo.holding.take(), world: &self.world }
    }

    /// The engine answered a leave, or did not.
    pub(crate) fn left(&self, stake: &Arc<Stake>, answer: Option<Left>) {
        let Some(left) = answer else {
            stake.not_left(self.world.now());
            self.schedule(stake, Moment::ORIGIN);
            return;
        };
        let mut todo = Todo::default();
        let now = if left == Left::Released { Moment::ORIGIN } else { self.world.now() };
        match stake.left(left.clone(), now, &mut todo) {
            Some(Released::Late) => {
                let ended = if let Left::Gone(ended) = left { Some(ended) } else { None };
                self.reporter.released_late(self.end(stake, &mut todo), ended);
            }
            Some(Released::InTime) => self.reporter.released(self.end(stake, &mut todo)),
            Some(Released::Unknown) | None => {}
        }
        self.carry_out(stake, &mut todo);
    }

    /// Whether nothing is left to be done. What was let go of needs nothing.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |shard: &Shard| shard.stakes().iter().all(|stake| stake.is_detached());
        self.shards.iter().all(idle)
    }

    /// All stakes, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<Stake>> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| shard.stakes().iter().cloned().collect::<Vec<_>>())
            .collect();
        all.sort_by_key(|stake| stake.claim.id);
        all
    }

    /// Whether a live hold of this very process has that fence.
    pub(crate) fn is_mine(&self, name: &Name, fence: Fence) -> bool {
        let stakes = self.shard(name).stakes();
        stakes.iter().any(|stake| stake.claim.name == *name && stake.holds(fence))
    }

    /// The highest fence seen, for claims to carry.
    pub(crate) fn seen(&self) -> Fence {
        Fence::new(self.seen.load(Relaxed))
    }

    pub(crate) fn saw(&self, fence: Fence) {
        self.seen.fetch_max(fence.get(), Relaxed);
    }

    fn shard(&self, name: &Name) -> &Shard {
        // The low bits choose the bucket of other tables; these are free.
        &self.shards[(name.local_hash() >> 48) as usize % SHARDS]
    }
}

/// Whatever is still due right after a look waits for a moment: an engine that answers at once, and
/// wrongly, must not keep the watchdog from everyone else.
pub(crate) fn not_in_circles(next: Moment, now: Moment) -> Moment {
    if next <= now { now + Duration::from_millis(1) } else { next }
}

impl Shard {
    fn stakes(&self) -> MutexGuard<'_, Table> {
        self.stakes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns for Slots {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let stake = {
            let stakes = self.shard(name).stakes();
            stakes.find(id).cloned()
        };
        let Some(stake) = stake else { return false };
        let look_at = match turn {
            Turn::LookAgain => Moment::ORIGIN,
            Turn::LookAt(at) => at,
            _ => Moment::FAR,
        };
        let mut todo = Todo::default();
        let taken = stake.deliver(turn, &mut todo);
        self.carry_out(&stake, &mut todo);
        if taken {
            self.schedule(&stake, look_at);
        }
        taken
    }

    fn look_again(&self, shard: u32) {
        for stake in self.all() {
            if stake.ticket().is_some() && (self.shard_of)(&stake.claim.name) == shard {
                self.deliver(&stake.claim.name, &stake.claim.id, Turn::LookAgain);
            }
        }
    }

    fn check_holds(&self, shards: &[u32]) {
        for stake in self.all() {
            if shards.contains(&(self.shard_of)(&stake.claim.name)) && stake.renew_now() {
                self.schedule(&stake, Moment::ORIGIN);
            }
        }
    }
}

impl fmt::Debug for Slots {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slots").finish_non_exhaustive()
    }
}

impl LeaveAnswers for Slots {
    fn left(&self, claim: Arc<dyn Any + Send + Sync>, answer: Option<Left>) {
        if let Ok(stake) = claim.downcast::<Stake>() {
            Slots::left(self, &stake, answer);
        }
    }
}

/// Wakes the watchdog.
#[derive(Default)]
pub(crate) struct Bell(Mutex<(bool, Option<Waker>)>);

impl Bell {
    pub(crate) fn ring(&self) {
        let waker = {
            let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            bell.0 = true;
            bell.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll_rung(&self, cx: &Context<'_>) -> Poll<()> {
        let mut bell = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut bell.0) {
            return Poll::Ready(());
        }
        bell.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}
