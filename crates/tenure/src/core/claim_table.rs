//! The claim table: every claim of this process that is not over, by name. Turns arrive here.
//!
//! A claim is here before its request is sent, so that no push can come too early, and stays until the engine has
//! acknowledged its end. The watchdog finds what is due in the same table. Claims of one name share a shard, so a
//! look sees which of them is foremost.

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
    /// When the watchdog looks next. Whoever needs it earlier wakes it through the signal.
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

    /// Inserts a claim that was detached before, maybe by this process. Returns `false` if this process still
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

    /// Detaches again a hold that was only checked.
    pub(crate) fn detach(&self, live: &Arc<LiveClaim>) {
        match live.detach(self.world.now()) {
            Ok((forget_at, _)) => self.schedule(live, forget_at),
            Err(_) => self.remove(live),
        }
    }

    pub(crate) fn remove(&self, live: &LiveClaim) {
        let shard = self.shard(&live.claim.name);
        // Dropped after unlocking: it may be the last owner of the handle, and dropping that affects more than
        // this table.
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

    /// A renewal was answered: schedules the next look for when it is needed, and no earlier.
    pub(crate) fn renewed(&self, live: &Arc<LiveClaim>, now: Moment) {
        let shard = self.shard(&live.claim.name);
        let next = shard.claims().look_next(live, now);
        self.look_by(shard, next);
    }

    fn look_by(&self, shard: &Shard, at: Moment) {
        // Nearly always something else is due earlier. If that look has just happened, it covered this claim as
        // well: a claim is changed before it is scheduled, and a look resets the mark before it begins.
        if shard.due.load(SeqCst) <= at.as_nanos() {
            return;
        }
        shard.due.fetch_min(at.as_nanos(), SeqCst);
        if at.as_nanos() < self.next_look.load(SeqCst) {
            self.watchdog_signal.notify();
        }
    }

    /// A new watchdog takes over: answers to what the last one sent will not be received.
    pub(crate) fn take_over(&self) {
        self.for_each(|live| {
            live.with(|state, _| state.not_in_flight());
            self.schedule(live, Moment::ORIGIN);
        });
    }

    /// Sets and returns when the watchdog looks next. Anything that is due earlier is either included in the
    /// result or notifies the watchdog.
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

    /// Looks at what is due, and collects the work that follows.
    pub(crate) fn look(&self, now: Moment) -> Vec<(Arc<LiveClaim>, Work)> {
        let mut found = Vec::new();
        for shard in &self.shards {
            if shard.due.load(SeqCst) > now.as_nanos() {
                continue;
            }
            // Reset before the look: a change after it lowers the mark again.
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
        // The table's order differs from run to run; the effects of a look must not.
        found.sort_by_key(|(order, ..)| *order);
        found.into_iter().map(|(_, live, work)| (live, work)).collect()
    }

    /// Tells a claim what happened, and carries out the effects.
    pub(crate) fn tell(
        &self,
        live: &Arc<LiveClaim>,
        told: impl FnOnce(&mut ClaimState, &Request) -> Effects,
    ) {
        let work = live.tell(told);
        self.carry_out(live, work);
    }

    /// Carries out everything that needs no engine: forgets, reports, wakes, schedules. What goes to the engine
    /// has been taken out.
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

    /// Whether there is nothing left to do. Detached claims need nothing.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = |shard: &Shard| shard.claims().iter().all(|live| live.is_detached());
        self.shards.iter().all(idle)
    }

    /// All claims, in the order of their ids.
    pub(crate) fn all(&self) -> Vec<Arc<LiveClaim>> {
        self.all_that(|_| true)
    }

    /// All claims of a kind, in the order of their ids, so that what follows does not differ from run to run. A process may
    /// hold a million, so only those that are wanted are collected and sorted. `wanted` runs under a lock.
    pub(crate) fn all_that(&self, wanted: impl Fn(&LiveClaim) -> bool) -> Vec<Arc<LiveClaim>> {
        let mut found = Vec::new();
        for shard in &self.shards {
            let claims = shard.claims();
            let wanted = claims.iter().filter(|live| wanted(live));
            found.extend(wanted.map(|live| (live.claim.id, live.clone())));
        }
        found.sort_unstable_by_key(|(id, _)| *id);
        found.into_iter().map(|(_, live)| live).collect()
    }

    /// Calls `act` for every claim, in no particular order, so `act` may only change when the watchdog looks at a
    /// claim. Takes the claims of one shard at a time.
    fn for_each(&self, act: impl Fn(&Arc<LiveClaim>)) {
        for shard in &self.shards {
            let claims: Vec<_> = shard.claims().iter().cloned().collect();
            claims.iter().for_each(&act);
        }
    }

    /// Whether a live hold of this process has that fence.
    pub(crate) fn is_mine(&self, name: &Name, fence: Fence) -> bool {
        let claims = self.shard(name).claims();
        claims
            .iter()
            .any(|live| live.claim.name == *name && live.with(|state, _| state.holds(fence)))
    }

    /// The highest fence seen, which claims carry.
    pub(crate) fn seen(&self) -> Fence {
        Fence::new(self.seen.load(Relaxed))
    }

    pub(crate) fn saw(&self, fence: Fence) {
        self.seen.fetch_max(fence.get(), Relaxed);
    }

    fn shard(&self, name: &Name) -> &Shard {
        // The low bits choose the bucket in other tables; these are unused.
        &self.shards[(name.local_hash() >> 48) as usize % SHARDS]
    }
}

/// Delays what is still due right after a look: an engine that gives wrong answers at once must not keep the
/// watchdog from everyone else.
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
        for live in self.all_that(|live| live.ticket().is_some()) {
            if (self.shard_of)(&live.claim.name) == shard {
                self.deliver(&live.claim.name, &live.claim.id, Turn::LookAgain);
            }
        }
    }

    fn check_holds(&self, shards: &[u32]) {
        self.for_each(|live| {
            if shards.contains(&(self.shard_of)(&live.claim.name)) {
                self.tell(live, |state, _| state.renew_now());
            }
        });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::request_builder::RequestBuilder;
    use crate::model::claim::{Grant, Place, Ticket};
    use crate::model::name::Space;
    use crate::model::options::Options;
    use crate::world::SystemWorld;

    fn table() -> ClaimTable {
        // Two shards of the engine: names that begin with "a", and all others.
        let shard_of = |name: &Name| u32::from(!name.as_str().starts_with('a'));
        ClaimTable::new(Arc::new(SystemWorld), Box::new(shard_of), Reporter::new("test"))
    }

    fn live(number: u128, name: &str) -> Arc<LiveClaim> {
        let name = Name::new(Space::Lock, name).unwrap();
        let mut builder = RequestBuilder::new(name, &Options::new("me".into()));
        builder.claim.id = ClaimId::from_bytes(number.to_be_bytes());
        builder.into_live()
    }

    fn held(number: u128, name: &str, since: Moment) -> Arc<LiveClaim> {
        let live = live(number, name);
        let grant = Grant::new(Fence::new(1), since, Duration::from_secs(30), false);
        drop(live.start(&grant, since, None));
        live
    }

    fn waits(number: u128, name: &str, now: Moment) -> Arc<LiveClaim> {
        let live = live(number, name);
        let (ticket, floor, later) = (Ticket::new(1), Fence::new(1), now + Duration::from_secs(5));
        let place =
            Place { ticket, ahead: 0, floor, asked_at: now, look_again: later, holder: None };
        live.with(|state, _| state.stands(place, now));
        live
    }

    /// A table with many holds and a few waiting claims, all of which were looked at, so that none is due.
    fn many_holds(now: Moment) -> (ClaimTable, Vec<Arc<LiveClaim>>) {
        let table = table();
        let holds = (0..1000).map(|number| held(number, &format!("a{number}"), now));
        let holds =
            holds.chain((1000..2000).map(|number| held(number, &format!("b{number}"), now)));
        let holds: Vec<_> = holds.collect();
        holds.iter().for_each(|live| table.insert(live.clone()));
        // Ids fall while names rise: neither the names nor the order of insertion is the order of ids.
        for number in 0..10 {
            table.insert(waits(3000 - number, &format!("a-waits{number}"), now));
            table.insert(waits(4000 - number, &format!("b-waits{number}"), now));
        }
        table.schedule(&holds[0], Moment::ORIGIN);
        table.shards.iter().for_each(|shard| shard.due.store(0, SeqCst));
        while table.settle_next_look() <= now {
            table.look(now);
        }
        (table, holds)
    }

    #[test]
    fn only_claims_of_a_kind_are_collected_in_the_order_of_their_ids() {
        let (table, _holds) = many_holds(table().world.now());
        let waiting = table.all_that(|live| live.ticket().is_some());
        let ids: Vec<ClaimId> = waiting.iter().map(|live| live.claim.id).collect();
        let expected = (2991..=3000).chain(3991..=4000).map(|number: u128| number.to_be_bytes());
        assert_eq!(ids, expected.map(ClaimId::from_bytes).collect::<Vec<_>>());
        assert_eq!(table.all().len(), 2020);
    }

    #[test]
    fn checking_holds_makes_all_of_them_due_and_nothing_else() {
        let now = table().world.now();
        let (table, holds) = many_holds(now);
        assert_eq!(table.look(now).len(), 0, "nothing is due yet");
        table.check_holds(&[0]);
        assert!(table.settle_next_look() <= now);
        let mut renewed = Vec::new();
        while table.settle_next_look() <= now {
            let work = table.look(now);
            assert!(work.iter().all(|(_, work)| work.effects.renew != Moment::FAR));
            renewed.extend(work.into_iter().map(|(live, _)| live.claim.id));
        }
        renewed.sort_unstable();
        let expected: Vec<ClaimId> = holds[..1000].iter().map(|live| live.claim.id).collect();
        assert_eq!(renewed, expected, "all holds of that shard, each once");
    }

    #[test]
    fn looking_again_reaches_every_claim_that_waits_and_no_hold() {
        let now = table().world.now();
        let (table, _holds) = many_holds(now);
        table.look_again(1);
        let mut looked = 0;
        for (live, _) in table.look(now) {
            assert!(live.claim.name.as_str().starts_with("b-waits"), "{:?}", live.claim.name);
            looked += 1;
        }
        assert_eq!(looked, 10);
    }
}
