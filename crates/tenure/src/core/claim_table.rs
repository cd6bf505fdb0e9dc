//! The claim table: every claim of this process that is not over, by name. Turns arrive here.
//!
//! A claim is here before its request is sent, so that no push can come too early, and until the engine
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

use self::shard::{Due, ShardClaims};
use crate::core::claim_state::{ClaimState, Effects, Release, Unheard};
use crate::core::live_claim::{LiveClaim, Work};
use crate::engine::{LeaveAnswers, Turns};
use crate::model::claim::{ClaimId, Fence, Left, Turn};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::model::request::Request;
use crate::observe::{HoldEnd, Reporter};
use crate::system;
use crate::world::World;

const SHARDS: usize = 64;

pub(crate) struct ClaimTable {
    shards: [Shard; SHARDS],
    /// When the watchdog looks next. Whoever needs it earlier notifies it by the signal.
    next_look: AtomicU64,
    pub(crate) watchdog_signal: Signal,
    world: Arc<dyn World>,
    shard_of: Box<dyn Fn(&Name) -> u32 + Send + Sync>,
    seen: AtomicU64,
    pub(crate) reporter: Arc<Reporter>,
}

/// Aligned, so that claims of unrelated names do not share a cache line.
#[derive(Default)]
#[repr(align(128))]
struct Shard {
    claims: Mutex<ShardClaims>,
    /// When something is due, or earlier.
    due: AtomicU64,
}

impl ClaimTable {
    pub(crate) fn new(
        world: Arc<dyn World>,
        shard_of: Box<dyn Fn(&Name) -> u32 + Send + Sync>,
        reporter: Reporter,
    ) -> ClaimTable {
        let shard = || Shard { due: AtomicU64::new(u64::MAX), ..Shard::default() };
        ClaimTable {
            shards: std::array::from_fn(|_| shard()),
            next_look: AtomicU64::new(u64::MAX),
            watchdog_signal: Signal::default(),
            world,
            shard_of,
            seen: AtomicU64::new(0),
            reporter: Arc::new(reporter),
        }
    }

    pub(crate) fn insert(&self, live: Arc<LiveClaim>) {
        self.shard(&live.claim.name).claims().insert(live);
    }

    /// Inserts a claim that was detached before, maybe by this process; `false` if this process still
    /// holds it.
    pub(crate) fn insert_again(&self, live: Arc<LiveClaim>) -> bool {
        let mut claims = self.shard(&live.claim.name).claims();
        let before = claims.find(&live.claim.id).cloned();
        if before.as_ref().is_some_and(|before| !before.is_detached()) {
            return false;
        }
        let removed = before.as_ref().and_then(|before| claims.remove(before));
        claims.insert(live);
        drop(claims);
        drop((removed, before));
        true
    }

    /// Lets go of a detached hold that was only checked on.
    pub(crate) fn detach(&self, live: &Arc<LiveClaim>) {
        match live.detach(self.world.now()) {
            Ok((forget_at, _)) => self.schedule(live, forget_at),
            Err(_) => self.remove(live),
        }
    }

    pub(crate) fn remove(&self, live: &LiveClaim) {
        let shard = self.shard(&live.claim.name);
        // It may be the last that holds on to the handle, whose end is heard beyond this table.
        let removed = shard.claims().remove(live);
        if let Some((_, look_at)) = &removed {
            self.look_by(shard, *look_at);
        }
    }

    /// Makes the watchdog look at the claim at `at`.
    pub(crate) fn schedule(&self, live: &Arc<LiveClaim>, at: Moment) {
        let shard = self.shard(&live.claim.name);
        if live.timer.is_later(at) {
            shard.claims().look_by(live, at);
        }
        self.look_by(shard, at);
    }

    /// A renewal was answered: the claim is looked at when it needs that again, and not before.
    pub(crate) fn renewed(&self, live: &Arc<LiveClaim>, now: Moment) {
        let shard = self.shard(&live.claim.name);
        let next = shard.claims().look_next(live, now);
        self.look_by(shard, next);
    }

    fn look_by(&self, shard: &Shard, at: Moment) {
        // Nearly always something else is due earlier. If that has just been looked at, so was this:
        // a claim is changed before it is scheduled, and a look resets the mark before it begins.
        if shard.due.load(SeqCst) <= at.as_nanos() {
            return;
        }
        shard.due.fetch_min(at.as_nanos(), SeqCst);
        if at.as_nanos() < self.next_look.load(SeqCst) {
            self.watchdog_signal.notify();
        }
    }

    /// A new watchdog takes over: answers to what the last one sent will not be heard.
    pub(crate) fn take_over(&self) {
        for live in self.all() {
            live.with(|state, _| state.not_in_flight());
            self.schedule(&live, Moment::ORIGIN);
        }
    }

    /// Sets and returns when the watchdog looks next. Whatever is due earlier is either counted in the answer or
    /// notifies the watchdog.
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
    pub(crate) fn look(&self, now: Moment) -> Vec<(Arc<LiveClaim>, Work)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            if shard.due.load(SeqCst) > now.as_nanos() {
                continue;
            }
            // Reset before the look: whatever changes behind it lowers the mark again.
            shard.due.store(u64::MAX, SeqCst);
            let mut claims = shard.claims();
            for Due { live, ticket, first } in claims.due(now) {
                let (next, work) = live.tell_for(|state, request| state.look(request, now, first));
                claims.looked(&live, not_in_circles(next, now));
                if !work.effects.is_empty() {
                    found.push(((ticket, live.claim.id), live, work));
                }
            }
            shard.due.fetch_min(claims.next().as_nanos(), SeqCst);
        }
        // The table's order differs from run to run; what follows from a look must not.
        found.sort_by_key(|(order, ..)| *order);
        found.into_iter().map(|(_, live, work)| (live, work)).collect()
    }

    /// Tells a claim what happened, and carries out what that means.
    pub(crate) fn tell(
        &self,
        live: &Arc<LiveClaim>,
        told: impl FnOnce(&mut ClaimState, &Request) -> Effects,
    ) {
        let work = live.tell(told);
        self.carry_out(live, work);
    }

    /// Does what needs no engine: forgets, reports, wakes, schedules. What goes to the engine was taken out.
    pub(crate) fn carry_out(&self, live: &Arc<LiveClaim>, work: Work) {
        let Work { effects, waker, observers, holding, local_place } = work;
        if effects.over {
            self.remove(live);
        }
        if let Some(outcome) = effects.renewal {
            self.reporter.renewals(vec![(live.clone(), outcome)]);
        }
        if let Some(why) = effects.at_risk {
            self.reporter.at_risk(live, why, self.world.now());
        }
        let end = |holding| HoldEnd { claim: live, holding, world: &self.world };
        match (effects.lost, effects.released) {
            (Some(ended), _) => self.reporter.lost(end(holding), *ended),
            (None, Some(Release::InTime)) => self.reporter.released(end(holding)),
            (None, Some(Release::Late(ended))) => {
                self.reporter.released_late(end(holding), ended.map(|ended| *ended));
            }
            (None, None) => drop(holding),
        }
        if effects.unheard == Unheard::Say {
            self.reporter.release_unanswered(live);
        }
        if let Some(waker) = waker {
            system::wake(waker);
        }
        observers.into_iter().for_each(system::wake);
        drop(local_place);
        if effects.look_at != Moment::FAR {
            self.schedule(live, effects.look_at);
        }
    }

    /// The engine answered a leave, or did not.
    pub(crate) fn left(&self, live: &Arc<LiveClaim>, answer: Option<Left>) {
        let Some(left) = answer else {
            let now = self.world.now();
            return self.tell(live, |state, _| state.not_left(now));
        };
        let now = if left == Left::Released { Moment::ORIGIN } else { self.world.now() };
        self.tell(live, |state, _| state.left(left, now));
    }

    /// Whether nothing is left to be done. What was let go of needs nothing.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |shard: &Shard| shard.claims().iter().all(|live| live.is_detached());
        self.shards.iter().all(idle)
    }

    /// All claims, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<LiveClaim>> {
        let mut all: Vec<_> = self
            .shards
            .iter()
            .flat_map(|shard| shard.claims().iter().cloned().collect::<Vec<_>>())
            .collect();
        all.sort_by_key(|live| live.claim.id);
        all
    }

    /// Whether a live hold of this very process has that fence.
    pub(crate) fn is_mine(&self, name: &Name, fence: Fence) -> bool {
        let claims = self.shard(name).claims();
        claims
            .iter()
            .any(|live| live.claim.name == *name && live.with(|state, _| state.holds(fence)))
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
    fn claims(&self) -> MutexGuard<'_, ShardClaims> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turns for ClaimTable {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let live = {
            let claims = self.shard(name).claims();
            claims.find(id).cloned()
        };
        let Some(live) = live else { return false };
        let (taken, work) = live.tell_for(|state, _| state.deliver(turn));
        self.carry_out(&live, work);
        taken
    }

    fn look_again(&self, shard: u32) {
        for live in self.all() {
            if live.ticket().is_some() && (self.shard_of)(&live.claim.name) == shard {
                self.deliver(&live.claim.name, &live.claim.id, Turn::LookAgain);
            }
        }
    }

    fn check_holds(&self, shards: &[u32]) {
        for live in self.all() {
            if shards.contains(&(self.shard_of)(&live.claim.name)) {
                self.tell(&live, |state, _| state.renew_now());
            }
        }
    }
}

impl fmt::Debug for ClaimTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimTable").finish_non_exhaustive()
    }
}

impl LeaveAnswers for ClaimTable {
    fn left(&self, claim: Arc<dyn Any + Send + Sync>, answer: Option<Left>) {
        if let Ok(live) = claim.downcast::<LiveClaim>() {
            ClaimTable::left(self, &live, answer);
        }
    }
}

/// Wakes the watchdog.
#[derive(Default)]
pub(crate) struct Signal(Mutex<(bool, Option<Waker>)>);

impl Signal {
    pub(crate) fn notify(&self) {
        let waker = {
            let mut signal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            signal.0 = true;
            signal.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    pub(crate) fn poll_notified(&self, cx: &Context<'_>) -> Poll<()> {
        let mut signal = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::take(&mut signal.0) {
            return Poll::Ready(());
        }
        signal.1 = Some(cx.waker().clone());
        Poll::Pending
    }
}
