//! The local line: a line within this process for each name. A claim with `on_outage = Local` stands in it
//! first, and keeps its turn there until the caller drops its hold.
//!
//! The rule is that of the ledger, without time: every claim in it belongs to this process and leaves by being
//! dropped, so nothing has to expire. Even a lost hold keeps other claims of this process out until its
//! owner drops it. Only a turn that is not taken, because its future is not polled, is passed on after a first
//! life; the claim keeps its place.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::model::claim::{Claim, Details, FIRST_LIFE};
use crate::model::error::Result;
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::system;
use crate::world::World;

/// The local lines of one `Tenure`.
pub(crate) struct LocalLines {
    lines: Mutex<HashMap<Name, Line>>,
    world: Arc<dyn World>,
    generation: u64,
    /// When untaken turns are passed on.
    due: AtomicU64,
    /// Tells the watchdog that `due` is earlier than it knows.
    hurry: Box<dyn Fn() + Send + Sync>,
}

#[derive(Default)]
struct Line {
    next: u64,
    held: u64,
    /// Both in the order of arrival.
    inside: BTreeMap<u64, Inside>,
    waiting: BTreeMap<u64, Waiting>,
}

struct Inside {
    taken: bool,
    units: Units,
    since: Moment,
    details: Arc<Details>,
}

struct Waiting {
    units: Units,
    details: Arc<Details>,
    waker: Option<Waker>,
    /// It did not take its turn, and is skipped until it is polled again.
    aside: bool,
}

#[derive(Clone, Copy)]
struct Units {
    weight: u32,
    capacity: u32,
    fixed: bool,
}

/// A place in a local line, and later the turn. Dropping it leaves.
pub(crate) struct LocalPlace {
    lines: Arc<LocalLines>,
    name: Name,
    number: u64,
}

/// A claim that keeps others of this process waiting.
pub(crate) struct LocalHolder {
    pub(crate) details: Arc<Details>,
    pub(crate) held_for: Duration,
}

impl LocalLines {
    pub(crate) fn new(
        world: Arc<dyn World>,
        hurry: impl Fn() + Send + Sync + 'static,
    ) -> Arc<LocalLines> {
        let (generation, due) = (system::generation(), AtomicU64::new(u64::MAX));
        let hurry = Box::new(hurry);
        Arc::new(LocalLines { lines: Mutex::default(), world, generation, due, hurry })
    }

    /// Joins the line, in the order of the calls. Returns `None` if the name is taken and the claim does not want
    /// to wait.
    pub(crate) fn join(self: &Arc<LocalLines>, claim: &Claim) -> Result<Option<LocalPlace>> {
        let Claim { name, weight, capacity, fixed, max_waiters, details, .. } = claim;
        let units = Units { weight: *weight, capacity: *capacity, fixed: *fixed };
        let now = self.world.now();
        let mut lines = self.lines();
        let line = lines.entry(name.clone()).or_default();
        if let Some(other) = line.disagrees(units) {
            return Err(Claim::conflict((*weight, *capacity), other));
        }
        let number = line.next;
        line.next += 1;
        let nobody_waits = line.waiting.values().all(|waiting| waiting.aside);
        if nobody_waits && line.fits(units) {
            let details = details.clone();
            line.let_in(number, Inside { taken: true, units, since: now, details });
        } else if !claim.may_wait {
            return Ok(None);
        } else if line.waiting.len() >= *max_waiters as usize {
            return Err(Claim::full(*max_waiters));
        } else {
            let (waker, aside, details) = (None, false, details.clone());
            line.waiting.insert(number, Waiting { units, details, waker, aside });
        }
        drop(lines);
        Ok(Some(LocalPlace { lines: self.clone(), name: name.clone(), number }))
    }

    /// The claim that has held the name longest.
    pub(crate) fn holder(&self, name: &Name) -> Option<LocalHolder> {
        let now = self.world.now();
        let lines = self.lines();
        let (_, first) = lines.get(name)?.inside.first_key_value()?;
        Some(LocalHolder { details: first.details.clone(), held_for: now.since(first.since) })
    }

    /// When to look next for untaken turns.
    pub(crate) fn due(&self) -> Moment {
        Moment::from_nanos(self.due.load(SeqCst))
    }

    /// Passes on the turns that were not taken for a first life.
    pub(crate) fn pass_on(&self, now: Moment) {
        if now < self.due() {
            return;
        }
        // Reset before the walk: letting someone in after it lowers it again.
        self.due.store(u64::MAX, SeqCst);
        let mut wake = Vec::new();
        let mut next = Moment::FAR;
        for line in self.lines().values_mut() {
            line.set_aside(now);
            wake.extend(line.admit(now));
            let untaken = line.inside.values().filter(|inside| !inside.taken);
            next = untaken.map(|inside| inside.since + FIRST_LIFE).fold(next, Moment::min);
        }
        self.due.fetch_min(next.as_nanos(), SeqCst);
        wake.into_iter().for_each(system::wake);
    }

    /// Wakes the claims that were let in, and schedules a check that they take their turn.
    fn call(&self, wake: Vec<Waker>, now: Moment, let_in: bool) {
        wake.into_iter().for_each(system::wake);
        let due = (now + FIRST_LIFE).as_nanos();
        if let_in && self.due.fetch_min(due, SeqCst) > due {
            (self.hurry)();
        }
    }

    fn lines(&self) -> MutexGuard<'_, HashMap<Name, Line>> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Line {
    fn fits(&self, units: Units) -> bool {
        self.held + u64::from(units.weight) <= u64::from(units.capacity)
    }

    fn let_in(&mut self, number: u64, inside: Inside) {
        self.held += u64::from(inside.units.weight);
        self.inside.insert(number, inside);
    }

    /// The capacity that this claim conflicts with, if a resize cannot be the reason. If one capacity is fixed, all
    /// are the same, so any one stands for all.
    fn disagrees(&self, units: Units) -> Option<u32> {
        let inside = self.inside.values().map(|inside| inside.units).next();
        let other = inside.or_else(|| self.waiting.values().map(|waiting| waiting.units).next())?;
        let differs = other.capacity != units.capacity && (other.fixed || units.fixed);
        differs.then_some(other.capacity)
    }

    /// Lets in the next claims. Returns the wakers to wake.
    fn admit(&mut self, now: Moment) -> Vec<Waker> {
        let mut wake = Vec::new();
        loop {
            let mut there = self.waiting.iter().filter(|(_, waiting)| !waiting.aside);
            let next = there.next().filter(|(_, first)| self.fits(first.units)).map(|(at, _)| *at);
            let Some((number, first)) = next.and_then(|at| self.waiting.remove_entry(&at)) else {
                return wake;
            };
            let Waiting { units, details, waker, .. } = first;
            self.let_in(number, Inside { taken: false, units, since: now, details });
            wake.extend(waker);
        }
    }

    /// Takes back the turns that were not taken.
    fn set_aside(&mut self, now: Moment) {
        let late = |inside: &Inside| !inside.taken && inside.since + FIRST_LIFE <= now;
        let late: Vec<u64> =
            self.inside.iter().filter(|(_, it)| late(it)).map(|(at, _)| *at).collect();
        for number in late {
            if let Some(Inside { units, details, .. }) = self.leave(number) {
                let (waker, aside) = (None, true);
                self.waiting.insert(number, Waiting { units, details, waker, aside });
            }
        }
    }

    fn leave(&mut self, number: u64) -> Option<Inside> {
        let left = self.inside.remove(&number)?;
        self.held -= u64::from(left.units.weight);
        Some(left)
    }
}

impl LocalPlace {
    /// Whether it has been let in, and need not wait. Takes the turn if so.
    pub(crate) fn take(&self) -> bool {
        let mut lines = self.lines.lines();
        let inside = lines.get_mut(&self.name).and_then(|line| line.inside.get_mut(&self.number));
        inside.map(|inside| inside.taken = true).is_some()
    }

    #[cfg(test)]
    fn is_inside(&self) -> bool {
        let lines = self.lines.lines();
        lines.get(&self.name).is_some_and(|line| line.inside.contains_key(&self.number))
    }

    /// Ready when its turn has come. Takes the turn.
    pub(crate) fn poll_turn(&self, cx: &Context<'_>) -> Poll<()> {
        let now = self.lines.world.now();
        let mut lines = self.lines.lines();
        let Some(line) = lines.get_mut(&self.name) else { return Poll::Ready(()) };
        let was_aside = match line.waiting.get_mut(&self.number) {
            Some(waiting) => std::mem::take(&mut waiting.aside),
            None => false,
        };
        let wake = if was_aside { line.admit(now) } else { Vec::new() };
        let (polled, before) = match line.waiting.get_mut(&self.number) {
            Some(waiting) => (Poll::Pending, waiting.waker.replace(cx.waker().clone())),
            None => {
                line.inside.entry(self.number).and_modify(|inside| inside.taken = true);
                (Poll::Ready(()), None)
            }
        };
        drop(lines);
        drop(before);
        wake.into_iter().for_each(system::wake);
        polled
    }

    /// The number of claims of this process that wait before it.
    pub(crate) fn ahead(&self) -> usize {
        let lines = self.lines.lines();
        let line = lines.get(&self.name);
        line.map_or(0, |line| line.waiting.range(..self.number).count())
    }
}

impl Drop for LocalPlace {
    fn drop(&mut self) {
        // Another thread of the parent may have held the mutex when this child was forked.
        if self.lines.generation != system::generation() {
            return;
        }
        let now = self.lines.world.now();
        let mut lines = self.lines.lines();
        let Some(line) = lines.get_mut(&self.name) else { return };
        let gone = line.waiting.remove(&self.number);
        let left = line.leave(self.number);
        let before = line.inside.len();
        let wake = line.admit(now);
        let let_in = line.inside.len() > before;
        if line.inside.is_empty() && line.waiting.is_empty() {
            lines.remove(&self.name);
        }
        drop(lines);
        drop((gone, left));
        self.lines.call(wake, now, let_in);
    }
}

impl fmt::Debug for LocalLines {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("LocalLines")
    }
}

impl fmt::Debug for LocalPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LocalPlace({:?}, {})", self.name, self.number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::error::ErrorKind;
    use crate::model::name::Space;
    use crate::world::SystemWorld;

    fn claim(weight: u32, capacity: u32) -> Claim {
        let name = Name::new(Space::Lock, "x").unwrap();
        let id = SystemWorld.mint().unwrap();
        let fixed = capacity == 1;
        Claim { weight, capacity, fixed, ..Claim::new(name, id) }
    }

    fn lines() -> Arc<LocalLines> {
        LocalLines::new(Arc::new(SystemWorld), || {})
    }

    fn join(lines: &Arc<LocalLines>, weight: u32, capacity: u32) -> LocalPlace {
        lines.join(&claim(weight, capacity)).unwrap().unwrap()
    }

    #[test]
    fn first_come_first_served_and_the_head_of_the_line_blocks() {
        let lines = lines();
        let first = join(&lines, 2, 3);
        let heavy = join(&lines, 3, 3);
        let light = join(&lines, 1, 3);
        assert!(first.is_inside() && !heavy.is_inside() && !light.is_inside());
        assert_eq!((heavy.ahead(), light.ahead()), (0, 1));
        drop(first);
        assert!(heavy.is_inside() && !light.is_inside());
        drop(heavy);
        assert!(light.is_inside());
        drop(light);
        assert!(lines.lines().is_empty(), "nothing is left behind");
    }

    #[test]
    fn a_claim_that_leaves_the_line_lets_others_pass() {
        let lines = lines();
        let first = join(&lines, 1, 2);
        let heavy = join(&lines, 2, 2);
        let light = join(&lines, 1, 2);
        drop(heavy);
        assert!(light.is_inside());
        drop((first, light));
        assert!(lines.lines().is_empty());
    }

    #[test]
    fn a_turn_that_nobody_takes_passes_on_and_the_place_is_kept() {
        let lines = lines();
        let cx = &Context::from_waker(Waker::noop());
        let first = join(&lines, 1, 1);
        let (stuck, next, last) = (join(&lines, 1, 1), join(&lines, 1, 1), join(&lines, 1, 1));
        drop(first);
        assert!(stuck.is_inside());
        let now = SystemWorld.now();
        lines.pass_on(now + FIRST_LIFE / 2);
        assert!(stuck.is_inside(), "it has a first life");
        lines.pass_on(now + FIRST_LIFE * 2);
        assert!(!stuck.is_inside() && next.is_inside());
        assert!(next.poll_turn(cx).is_ready());
        lines.pass_on(now + FIRST_LIFE * 9);
        assert!(next.is_inside(), "what was taken stays");
        assert!(stuck.poll_turn(cx).is_pending());
        drop(next);
        assert!(stuck.is_inside() && !last.is_inside());
        drop(stuck);
        assert!(last.poll_turn(cx).is_ready());
    }

    /// It was let in between joining and the check, so the check takes the turn.
    #[test]
    fn a_turn_that_was_found_is_taken() {
        let lines = lines();
        let first = join(&lines, 1, 1);
        let (found, next) = (join(&lines, 1, 1), join(&lines, 1, 1));
        assert!(!found.take());
        drop(first);
        assert!(found.take() && !next.take());
        lines.pass_on(SystemWorld.now() + FIRST_LIFE * 2);
        assert!(found.is_inside() && !next.is_inside(), "two are inside");
    }

    #[test]
    fn a_mutex_and_a_semaphore_of_one_name_do_not_agree_but_a_resized_one_does() {
        let lines = lines();
        let five = join(&lines, 1, 5);
        let error = lines.join(&claim(1, 1)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Conflict);
        let eight = join(&lines, 1, 8);
        assert!(eight.is_inside());
        drop((five, eight));
        assert!(join(&lines, 1, 1).is_inside());
    }

    #[test]
    fn a_claim_that_does_not_want_to_wait_or_finds_too_many_does_not_stay() {
        let lines = lines();
        let first = join(&lines, 1, 1);
        let busy = Claim { may_wait: false, ..claim(1, 1) };
        assert!(lines.join(&busy).unwrap().is_none());
        let full = Claim { max_waiters: 0, ..claim(1, 1) };
        assert_eq!(lines.join(&full).unwrap_err().kind(), ErrorKind::Full);
        drop(first);
        assert!(lines.lines().is_empty());
    }
}
