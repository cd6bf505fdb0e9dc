//! A storage that can be broken on purpose, to see that the explorer notices.

use std::convert::Infallible;
use std::sync::Arc;

use tenure::engine::{ClaimId, Details, Fence, Moment, Ticket};
use tenure::ledger::{Entry, Line, Process, Record, State, Storage, Totals, Trace};

type Sure<T> = Result<T, Infallible>;

/// What the storage does wrong.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// The head is the waiting claim with the *highest* ticket.
    LastIsHead,
    /// The head is the first that fits, whatever waits before it.
    HeadIsWhoFits,
    /// There is no head.
    NoHead,
    /// Reports one held unit less than there is.
    HeldIsUnderstated,
    /// The same number is given again and again.
    NumbersRepeat,
    /// Holds are not removed.
    HoldsStay,
    /// Places are not removed.
    PlacesStay,
    /// Nothing ever ends.
    NothingEnds,
    /// Everything ends a second early.
    AllEndsEarly,
    /// Every claim that is found ends a second later than it should.
    FoundLastsLonger,
    /// Nobody is set aside with its process.
    NobodyIsSetAside,
    /// Claims set aside are never brought back by others of their process.
    NobodyComesBack,
    /// Contact of one process brings everyone back.
    AllComeBack,
    /// Nothing is remembered of claims that are gone.
    TracesAreLost,
    /// Everyone is told that nobody waits ahead.
    NobodyIsAhead,
}

/// A line in memory, seen through a fault.
#[derive(Clone)]
pub(crate) struct FaultyStorage {
    pub(crate) line: Line<u64>,
    fault: Option<Fault>,
}

impl FaultyStorage {
    pub(crate) fn new(fault: Option<Fault>) -> FaultyStorage {
        FaultyStorage { line: Line::new(0), fault }
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }
}

impl Storage for FaultyStorage {
    type Error = Infallible;

    fn totals(&self) -> Sure<Totals> {
        let mut totals = self.line.totals()?;
        if self.has(Fault::HeldIsUnderstated) {
            totals.held = totals.held.saturating_sub(1);
        }
        Ok(totals)
    }

    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> Sure<()> {
        self.line.set_capacity(capacity, resized_until)
    }

    fn last_number(&self) -> Sure<u64> {
        self.line.last_number()
    }

    fn next_number(&mut self) -> Sure<u64> {
        match self.line.last_number()? {
            last if last > 3 && self.has(Fault::NumbersRepeat) => Ok(last),
            _ => self.line.next_number(),
        }
    }

    fn raise_numbers(&mut self, floor: Fence) -> Sure<()> {
        self.line.raise_numbers(floor)
    }

    fn find(&self, id: &ClaimId) -> Sure<Option<Entry>> {
        let mut found = self.line.find(id)?;
        if let Some(entry) = found.as_mut().filter(|_| self.has(Fault::FoundLastsLonger)) {
            entry.until = entry.until + std::time::Duration::from_secs(1);
        }
        Ok(found)
    }

    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> Sure<()> {
        self.line.add(entry, details)
    }

    fn change(&mut self, entry: Entry) -> Sure<()> {
        self.line.change(entry)
    }

    fn describe(&mut self, id: &ClaimId, details: &Arc<Details>) -> Sure<()> {
        self.line.describe(id, details)
    }

    fn remove(&mut self, id: &ClaimId) -> Sure<Option<Entry>> {
        let found = self.line.find(id)?;
        let held = matches!(found, Some(Entry { state: State::Held { .. }, .. }));
        let stays = self.has(if held { Fault::HoldsStay } else { Fault::PlacesStay });
        if stays { Ok(found) } else { self.line.remove(id) }
    }

    fn head(&self) -> Sure<Option<Entry>> {
        let Totals { capacity, held, .. } = self.line.totals()?;
        let mut waiting = self.line.waiters().into_iter().map(|(entry, _)| entry);
        let mut waiting = waiting.by_ref().filter(|entry| entry.state == State::Waiting);
        match self.fault {
            Some(Fault::LastIsHead) => Ok(waiting.last()),
            Some(Fault::HeadIsWhoFits) => {
                Ok(waiting.find(|entry| entry.weight <= capacity.saturating_sub(held)))
            }
            Some(Fault::NoHead) => Ok(None),
            _ => self.line.head(),
        }
    }

    fn first(&self, most: u32) -> Sure<Vec<Entry>> {
        self.line.first(most)
    }

    fn ahead(&self, ticket: Ticket) -> Sure<u32> {
        if self.has(Fault::NobodyIsAhead) { Ok(0) } else { self.line.ahead(ticket) }
    }

    fn next_end(&self) -> Sure<Option<Moment>> {
        self.line.next_end()
    }

    fn ended(&mut self, now: Moment, limit: u32) -> Sure<Vec<Entry>> {
        match self.fault {
            Some(Fault::NothingEnds) => Ok(Vec::new()),
            Some(Fault::AllEndsEarly) => {
                self.line.ended(now + std::time::Duration::from_secs(1), limit)
            }
            _ => self.line.ended(now, limit),
        }
    }

    fn holding(&self, fence: Fence) -> Sure<Option<Entry>> {
        self.line.holding(fence)
    }

    fn heavier(&self, weight: u32, limit: u32) -> Sure<Vec<Entry>> {
        self.line.heavier(weight, limit)
    }

    fn reach(&mut self, process: Process, reachable: bool) -> Sure<()> {
        match self.fault {
            Some(Fault::NobodyComesBack) if reachable => Ok(()),
            Some(Fault::NobodyIsSetAside) if !reachable => Ok(()),
            Some(Fault::AllComeBack) if reachable => {
                (1..=4).try_for_each(|process| self.line.reach(process, true))
            }
            _ => self.line.reach(process, reachable),
        }
    }

    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> Sure<()> {
        self.line.trace(id, trace, until)
    }

    fn traced(&self, id: &ClaimId, now: Moment) -> Sure<Option<Trace>> {
        if self.has(Fault::TracesAreLost) { Ok(None) } else { self.line.traced(id, now) }
    }

    fn record(&self, now: Moment) -> Sure<Option<Record>> {
        self.line.record(now)
    }

    fn set_record(&mut self, record: Option<Record>) -> Sure<()> {
        self.line.set_record(record)
    }
}
