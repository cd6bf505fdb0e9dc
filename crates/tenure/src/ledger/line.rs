//! The storage in memory.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::HashTable;

use super::{Entry, Process, Record, State, Storage, Totals, Trace};
use crate::model::claim::{ClaimId, Details, Fence, Ticket};
use crate::model::moment::Moment;

/// The counter for fences and tickets, shared by the lines of an engine.
pub trait Numbers {
    /// The highest number given so far.
    fn last(&self) -> u64;
    /// The next number.
    fn next(&mut self) -> u64;
    /// Makes the next number higher than `floor`.
    fn raise(&mut self, floor: u64);
}

/// The lines of a shard share one. It is only used under the shard's lock.
impl Numbers for Arc<AtomicU64> {
    fn last(&self) -> u64 {
        self.load(Ordering::Relaxed)
    }

    fn next(&mut self) -> u64 {
        let next = self.last() + 1;
        self.store(next, Ordering::Relaxed);
        next
    }

    fn raise(&mut self, floor: u64) {
        if floor > self.last() {
            self.store(floor, Ordering::Relaxed);
        }
    }
}

impl Numbers for u64 {
    fn last(&self) -> u64 {
        *self
    }

    fn next(&mut self) -> u64 {
        *self += 1;
        *self
    }

    fn raise(&mut self, floor: u64) {
        *self = (*self).max(floor);
    }
}

/// One name in memory.
#[derive(Clone, Debug, Default)]
pub struct Line<N> {
    numbers: N,
    totals: Totals,
    held: Spots,
    placed: Spots,
    /// Those of `placed` that can be reached, by ticket. Newcomers stand last, so a queue is enough.
    waiting: Queue,
    /// Those of `placed` that are set aside, by ticket.
    aside: Queue,
    traces: Vec<(ClaimId, Trace, Moment)>,
    record: Option<Record>,
    /// A lower bound: nothing ends before this moment. Renewals do not update it; a look at all entries does.
    nothing_ends_before: Moment,
}

type Queue = VecDeque<(Ticket, ClaimId)>;

#[derive(Clone, Debug)]
struct Spot {
    entry: Entry,
    details: Arc<Details>,
}

impl<N: Numbers> Line<N> {
    /// An empty line that takes its numbers from `numbers`.
    pub fn new(numbers: N) -> Line<N> {
        Line {
            numbers,
            totals: Totals::default(),
            held: Spots::default(),
            placed: Spots::default(),
            waiting: Queue::new(),
            aside: Queue::new(),
            traces: Vec::new(),
            record: None,
            nothing_ends_before: Moment::FAR,
        }
    }

    /// Whether nobody holds and nobody waits.
    pub fn is_unused(&self) -> bool {
        self.held.spots.is_empty() && self.totals.waiting == 0
    }

    /// Whether the time of every claim is over.
    pub fn has_ended(&self, now: Moment) -> bool {
        let all = self.held.spots.iter().chain(&self.placed.spots);
        all.map(|spot| spot.entry.until).all(|until| until <= now)
    }

    /// Until when an unused line has something to remember.
    pub fn remembers_until(&self) -> Moment {
        let traces = self.traces.iter().map(|(_, _, until)| *until);
        let record = self.record.iter().map(|record| record.until);
        traces.chain(record).fold(self.totals.resized_until, Moment::max)
    }

    /// Empties an unused line, and keeps its allocations for the next name.
    pub fn clear(&mut self) {
        debug_assert!(self.is_unused());
        self.totals = Totals::default();
        // Large allocations are not kept.
        self.held.shrink();
        self.placed.shrink();
        self.waiting.shrink_to(FEW);
        self.aside.shrink_to(FEW);
        self.traces.clear();
        self.record = None;
        self.nothing_ends_before = Moment::FAR;
    }

    /// The holders, in the order of their fences.
    pub fn holders(&self) -> Vec<(Entry, Arc<Details>)> {
        let mut all: Vec<_> = self.held.spots.iter().map(Spot::shown).collect();
        all.sort_by_key(|(entry, _)| entry.fence());
        all
    }

    /// The waiters, including those set aside, in the order of their tickets.
    pub fn waiters(&self) -> Vec<(Entry, Arc<Details>)> {
        let mut all: Vec<_> = self.placed.spots.iter().map(Spot::shown).collect();
        all.sort_by_key(|(entry, _)| entry.ticket);
        all
    }

    /// The holder whose hold ends first.
    pub fn first_to_end(&self) -> Option<(Entry, Arc<Details>)> {
        self.held.spots.iter().min_by_key(|spot| spot.entry.until).map(Spot::shown)
    }

    fn place(&mut self, spot: Spot) {
        let Entry { id, ticket, weight, fixed, until, state, .. } = spot.entry;
        self.totals.fixed += u32::from(fixed);
        self.nothing_ends_before = self.nothing_ends_before.min(until);
        let queue = match state {
            State::Held { .. } => {
                self.totals.held += weight;
                self.held.add(spot);
                return;
            }
            State::Waiting => &mut self.waiting,
            State::Aside => &mut self.aside,
        };
        insert(queue, (ticket, id));
        self.totals.waiting += 1;
        self.placed.add(spot);
    }

    fn take(&mut self, id: &ClaimId) -> Option<Spot> {
        if let Some(spot) = self.held.remove(id) {
            self.totals.held -= spot.entry.weight;
            self.totals.fixed -= u32::from(spot.entry.fixed);
            return Some(spot);
        }
        let spot = self.placed.remove(id)?;
        self.totals.waiting -= 1;
        self.totals.fixed -= u32::from(spot.entry.fixed);
        let queue = match spot.entry.state {
            State::Aside => &mut self.aside,
            _ => &mut self.waiting,
        };
        if let Ok(position) = find(queue, (spot.entry.ticket, *id)) {
            queue.remove(position);
        }
        Some(spot)
    }
}

fn find(queue: &Queue, place: (Ticket, ClaimId)) -> Result<usize, usize> {
    match queue.back() {
        Some(last) if *last < place => Err(queue.len()),
        _ => queue.binary_search(&place),
    }
}

fn insert(queue: &mut Queue, place: (Ticket, ClaimId)) {
    let (Ok(position) | Err(position)) = find(queue, place);
    queue.insert(position, place);
}

/// Claims by id. There are nearly always one or two, so a linear search is enough; an index only pays off for
/// many.
#[derive(Clone, Debug, Default)]
struct Spots {
    spots: Vec<Spot>,
    /// Positions by id. Empty until there are more than a few, then complete until all have left.
    index: HashTable<usize>,
}

const FEW: usize = 8;

impl Spots {
    fn add(&mut self, spot: Spot) {
        self.spots.push(spot);
        let new = match self.spots.len() {
            count if !self.index.is_empty() => count - 1..count,
            ..=FEW => return,
            count => 0..count,
        };
        for position in new {
            let bits = |at: &usize| self.spots[*at].entry.id.bits();
            self.index.insert_unique(bits(&position), position, bits);
        }
    }

    fn position(&self, id: &ClaimId) -> Option<usize> {
        if self.index.is_empty() {
            return self.spots.iter().position(|spot| spot.entry.id == *id);
        }
        self.index.find(id.bits(), |at| self.spots[*at].entry.id == *id).copied()
    }

    fn find(&self, id: &ClaimId) -> Option<&Spot> {
        self.position(id).map(|at| &self.spots[at])
    }

    fn remove(&mut self, id: &ClaimId) -> Option<Spot> {
        let gone = self.position(id)?;
        if !self.index.is_empty() {
            // The last one moves to the position that becomes free.
            let last = self.spots.len() - 1;
            let moved = self.spots[last].entry.id.bits();
            if let Ok(found) = self.index.find_entry(id.bits(), |at| *at == gone) {
                found.remove();
            }
            if let Some(at) = self.index.find_mut(moved, |at| *at == last) {
                *at = gone;
            }
        }
        Some(self.spots.swap_remove(gone))
    }

    fn shrink(&mut self) {
        if self.spots.capacity() > FEW {
            *self = Spots::default();
        }
    }
}

impl Spot {
    fn shown(&self) -> (Entry, Arc<Details>) {
        (self.entry, self.details.clone())
    }
}

impl<N: Numbers> Storage for Line<N> {
    type Error = Infallible;

    fn totals(&self) -> Result<Totals, Infallible> {
        Ok(self.totals)
    }

    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> Result<(), Infallible> {
        self.totals.capacity = capacity;
        self.totals.resized_until = resized_until;
        Ok(())
    }

    fn last_number(&self) -> Result<u64, Infallible> {
        Ok(self.numbers.last())
    }

    fn next_number(&mut self) -> Result<u64, Infallible> {
        Ok(self.numbers.next())
    }

    fn raise_numbers(&mut self, floor: Fence) -> Result<(), Infallible> {
        self.numbers.raise(floor.get());
        Ok(())
    }

    fn find(&self, id: &ClaimId) -> Result<Option<Entry>, Infallible> {
        if let Some(spot) = self.held.find(id) {
            return Ok(Some(spot.entry));
        }
        Ok(self.placed.find(id).map(|spot| spot.entry))
    }

    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> Result<(), Infallible> {
        self.place(Spot { entry, details: details.clone() });
        Ok(())
    }

    fn change(&mut self, entry: Entry) -> Result<(), Infallible> {
        if let Some(spot) = self.take(&entry.id) {
            self.place(Spot { entry, ..spot });
        }
        Ok(())
    }

    fn describe(&mut self, id: &ClaimId, details: &Arc<Details>) -> Result<(), Infallible> {
        if let Some(mut spot) = self.take(id) {
            spot.details = details.clone();
            self.place(spot);
        }
        Ok(())
    }

    fn remove(&mut self, id: &ClaimId) -> Result<Option<Entry>, Infallible> {
        Ok(self.take(id).map(|spot| spot.entry))
    }

    fn head(&self) -> Result<Option<Entry>, Infallible> {
        let first = self.waiting.front().and_then(|(_, id)| self.placed.find(id));
        Ok(first.map(|spot| spot.entry))
    }

    fn first(&self, most: u32) -> Result<Vec<Entry>, Infallible> {
        let first = self.waiting.iter().take(most as usize);
        Ok(first.filter_map(|(_, id)| self.placed.find(id)).map(|spot| spot.entry).collect())
    }

    fn ahead(&self, ticket: Ticket) -> Result<u32, Infallible> {
        Ok(self.waiting.partition_point(|(before, _)| *before < ticket) as u32)
    }

    fn next_end(&self) -> Result<Option<Moment>, Infallible> {
        Ok(self.held.spots.iter().map(|spot| spot.entry.until).min())
    }

    fn ended(&mut self, now: Moment, limit: u32) -> Result<Vec<Entry>, Infallible> {
        if !self.traces.is_empty() {
            self.traces.retain(|(_, _, until)| *until > now);
        }
        if now < self.nothing_ends_before {
            return Ok(Vec::new());
        }
        let all = self.held.spots.iter().chain(&self.placed.spots).map(|spot| spot.entry);
        let (mut ended, mut next) = (Vec::new(), Moment::FAR);
        for entry in all {
            if entry.until <= now && ended.len() < limit as usize {
                ended.push(entry);
            } else {
                next = next.min(entry.until);
            }
        }
        self.nothing_ends_before = next;
        // Holds before places, the earliest first: the order in which separate steps would have found them.
        ended.sort_by_key(|entry| (entry.fence() == Fence::default(), entry.until, entry.ticket));
        Ok(ended)
    }

    fn holding(&self, fence: Fence) -> Result<Option<Entry>, Infallible> {
        Ok(self.held.spots.iter().map(|spot| spot.entry).find(|entry| entry.holds(fence)))
    }

    fn heavier(&self, weight: u32, limit: u32) -> Result<Vec<Entry>, Infallible> {
        let all = self.placed.spots.iter().map(|spot| spot.entry);
        Ok(all.filter(|entry| entry.weight > weight).take(limit as usize).collect())
    }

    fn reach(&mut self, process: Process, reachable: bool) -> Result<(), Infallible> {
        let (from, to, state) = if reachable {
            (&mut self.aside, &mut self.waiting, State::Waiting)
        } else {
            (&mut self.waiting, &mut self.aside, State::Aside)
        };
        if from.is_empty() {
            return Ok(());
        }
        for spot in &mut self.placed.spots {
            let Entry { id, ticket, .. } = spot.entry;
            if spot.entry.process == process
                && let Ok(position) = find(from, (ticket, id))
            {
                from.remove(position);
                insert(to, (ticket, id));
                spot.entry.state = state;
            }
        }
        Ok(())
    }

    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> Result<(), Infallible> {
        // The last trace counts: a claim that was broken and then left in doubt must stay out.
        self.traces.retain(|(of, _, _)| *of != id);
        self.traces.push((id, trace, until));
        Ok(())
    }

    fn traced(&self, id: &ClaimId, now: Moment) -> Result<Option<Trace>, Infallible> {
        let known = |(of, _, until): &&(ClaimId, Trace, Moment)| of == id && *until > now;
        Ok(self.traces.iter().find(known).map(|(_, trace, _)| trace.clone()))
    }

    fn record(&self, now: Moment) -> Result<Option<Record>, Infallible> {
        let held = self.totals.held > 0;
        Ok(self.record.clone().filter(|record| held || record.until > now))
    }

    fn set_record(&mut self, record: Option<Record>) -> Result<(), Infallible> {
        self.record = record;
        Ok(())
    }
}

/// Two lines are equal if they have the same claims in the same state. Cached bounds and spare room do not count.
impl<N: PartialEq> PartialEq for Line<N> {
    fn eq(&self, other: &Line<N>) -> bool {
        self.numbers == other.numbers && self.facts() == other.facts()
    }
}

impl<N: Eq> Eq for Line<N> {}

impl<N: Hash> Hash for Line<N> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.numbers.hash(state);
        self.facts().hash(state);
    }
}

type Facts<'a> = (Totals, Vec<&'a Entry>, &'a [(ClaimId, Trace, Moment)], &'a Option<Record>);

impl<N> Line<N> {
    fn facts(&self) -> Facts<'_> {
        let all = self.held.spots.iter().chain(&self.placed.spots).map(|spot| &spot.entry);
        let mut all: Vec<_> = all.collect();
        all.sort_by_key(|entry| entry.id);
        (self.totals, all, &self.traces, &self.record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spot(number: u8) -> Spot {
        let entry = Entry {
            id: ClaimId::from_bytes([number; 16]),
            ticket: Ticket::new(number.into()),
            weight: 1,
            fixed: true,
            ttl: std::time::Duration::ZERO,
            process: 0,
            on_behalf: false,
            once: None,
            since: Moment::ORIGIN,
            until: Moment::FAR,
            state: State::Held { fence: Fence::new(number.into()), first_life: false },
        };
        Spot { entry, details: Arc::default() }
    }

    #[test]
    fn a_crowd_that_comes_and_goes_is_found_and_removed() {
        let mut held = Spots::default();
        // Above the limit, below it, and above again: the index must be complete at every point.
        for (from, to) in [(0, 12), (12, 3), (3, 7), (7, 2), (2, 20), (20, 0), (0, 3), (3, 0)] {
            for number in from..to {
                held.add(spot(number));
            }
            for number in (to..from).rev() {
                let id = ClaimId::from_bytes([number; 16]);
                assert!(held.remove(&id).is_some(), "{number} of {from}..{to}");
                assert!(held.remove(&id).is_none());
            }
            for number in 0..to {
                let id = ClaimId::from_bytes([number; 16]);
                assert_eq!(held.find(&id).map(|spot| spot.entry.id), Some(id));
            }
        }
        assert!(held.spots.is_empty() && held.index.is_empty());
    }
}
