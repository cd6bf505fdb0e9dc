//! A line that records reachability as the scripts do: for each process, not for each place.

use std::collections::BTreeSet;
use std::convert::Infallible;
use std::sync::Arc;

use tenure::engine::{ClaimId, Details, Fence, Moment, Ticket};
use tenure::ledger::{Entry, Line, Process, Record, State, Storage, Totals, Trace};

/// When one place of a process is set aside because nobody heard its turn, all of them are; only the
/// claim that is asking stays.
pub(crate) struct ByProcess<'a> {
    pub(crate) line: &'a mut Line<u64>,
    pub(crate) asker: Option<ClaimId>,
    /// Processes without contact since they could not be reached.
    pub(crate) away: &'a mut BTreeSet<Process>,
}

type Sure<T> = Result<T, Infallible>;

impl Storage for ByProcess<'_> {
    type Error = Infallible;

    fn change(&mut self, entry: Entry) -> Sure<()> {
        self.line.change(entry)?;
        if entry.state != State::Aside {
            return Ok(());
        }
        self.reach(entry.process, false)?;
        if let Some(id) = self.asker
            && let Some(place) = self.line.find(&id)?
            && place.state == State::Aside
        {
            self.line.change(Entry { state: State::Waiting, ..place })?;
        }
        Ok(())
    }

    fn reach(&mut self, process: Process, reachable: bool) -> Sure<()> {
        match reachable {
            true => self.away.remove(&process),
            false => self.away.insert(process),
        };
        self.line.reach(process, reachable)
    }

    fn totals(&self) -> Sure<Totals> {
        self.line.totals()
    }

    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> Sure<()> {
        self.line.set_capacity(capacity, resized_until)
    }

    fn last_number(&self) -> Sure<u64> {
        self.line.last_number()
    }

    fn next_number(&mut self) -> Sure<u64> {
        self.line.next_number()
    }

    fn raise_numbers(&mut self, floor: Fence) -> Sure<()> {
        self.line.raise_numbers(floor)
    }

    fn find(&self, id: &ClaimId) -> Sure<Option<Entry>> {
        self.line.find(id)
    }

    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> Sure<()> {
        self.line.add(entry, details)
    }

    fn describe(&mut self, id: &ClaimId, details: &Arc<Details>) -> Sure<()> {
        self.line.describe(id, details)
    }

    fn remove(&mut self, id: &ClaimId) -> Sure<Option<Entry>> {
        self.line.remove(id)
    }

    fn head(&self) -> Sure<Option<Entry>> {
        self.line.head()
    }

    fn first(&self, most: u32) -> Sure<Vec<Entry>> {
        self.line.first(most)
    }

    fn ahead(&self, ticket: Ticket) -> Sure<u32> {
        self.line.ahead(ticket)
    }

    fn next_end(&self) -> Sure<Option<Moment>> {
        self.line.next_end()
    }

    fn ended(&mut self, now: Moment, limit: u32) -> Sure<Vec<Entry>> {
        self.line.ended(now, limit)
    }

    fn holding(&self, fence: Fence) -> Sure<Option<Entry>> {
        self.line.holding(fence)
    }

    fn heavier(&self, weight: u32, limit: u32) -> Sure<Vec<Entry>> {
        self.line.heavier(weight, limit)
    }

    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> Sure<()> {
        self.line.trace(id, trace, until)
    }

    fn traced(&self, id: &ClaimId, now: Moment) -> Sure<Option<Trace>> {
        self.line.traced(id, now)
    }

    fn record(&self, now: Moment) -> Sure<Option<Record>> {
        self.line.record(now)
    }

    fn set_record(&mut self, record: Option<Record>) -> Sure<()> {
        self.line.set_record(record)
    }
}
