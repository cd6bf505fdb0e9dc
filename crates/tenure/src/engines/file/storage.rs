//! The ledger's storage for one name, in the rows of the file.
//!
//! The row of the name is read once and written once in a step; claims are read and written as the ledger needs
//! them. A name that nobody uses has no row, and costs one lookup.

use std::cell::Cell;
use std::sync::Arc;

use rusqlite::{Connection, OptionalExtension, Row, params};

use super::rows::{
    ASIDE, WAITING, content, first_life, moment, read_content, read_entry, read_id, read_moment,
    read_shown, read_span, space_number, span, state_number, terms, write_meta,
};
use super::statements as sql;
use crate::ledger::{Entry, Process, Record, State, Storage, Totals, Trace};
use crate::model::claim::{ClaimId, Details, Fence, Note, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Name;

pub(super) type SqlResult<T> = std::result::Result<T, rusqlite::Error>;

/// The numbers for fences and tickets: one sequence for the whole file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Numbers {
    pub(super) last: u64,
}

impl Numbers {
    pub(super) fn next(&mut self) -> u64 {
        self.last += 1;
        self.last
    }
}

pub(super) struct Rows<'a> {
    db: &'a Connection,
    numbers: &'a mut Numbers,
    pub(super) name: &'a Name,
    /// The row of the name, if it has one.
    pub(super) id: Option<i64>,
    /// The content of the row; `None` if it was just made.
    written: Option<Known>,
    known: Known,
    /// The claim that was read or written last: a step is nearly always about one.
    last: Cell<Option<Entry>>,
    /// The ticket of a place that was given up: the claim behind it must be told.
    pub(super) gap: Option<Ticket>,
}

/// The row of the name.
#[derive(Clone, PartialEq)]
struct Known {
    totals: Totals,
    quiet_until: Moment,
    traces_until: Moment,
    record: Option<Record>,
}

impl<'a> Rows<'a> {
    pub(super) fn load(
        db: &'a Connection,
        numbers: &'a mut Numbers,
        name: &'a Name,
    ) -> SqlResult<Rows<'a>> {
        let mut select = db.prepare_cached(sql::NAME)?;
        let row = select.query_row(params![space_number(name.space()), name.as_str()], |row| {
            Ok((row.get(0)?, Known::read(row)?))
        });
        let (id, known) = match row.optional()? {
            Some((id, known)) => (Some(id), known),
            None => (None, Known::nothing()),
        };
        let (written, last, gap) = (Some(known.clone()), Cell::new(None), None);
        Ok(Rows { db, numbers, name, id, written, known, last, gap })
    }

    /// Writes the row of the name, or removes it if there is nothing left to remember.
    pub(super) fn save(self, now: Moment) -> SqlResult<()> {
        let Known { totals, quiet_until, traces_until, record } = &self.known;
        let used = totals.held > 0 || totals.waiting > 0;
        let once_until = record.as_ref().map_or(Moment::ORIGIN, |record| record.until);
        let remembers = totals.resized_until.max(*traces_until).max(once_until) > now;
        let Some(id) = self.id else { return Ok(()) };
        if !used && !remembers {
            self.db.prepare_cached(sql::REMOVE_NAME)?.execute([id])?;
        } else if self.written.as_ref() != Some(&self.known) {
            let record = record.as_ref();
            self.db.prepare_cached(sql::CHANGE_NAME)?.execute(params![
                id,
                totals.capacity,
                moment(totals.resized_until),
                totals.held,
                totals.waiting,
                totals.fixed,
                moment(*quiet_until),
                moment(*traces_until),
                record.map(|record| record.fence.get() as i64),
                record.map(|record| span(record.keep)),
                record.map(|record| moment(record.until)),
                record.and_then(|record| record.outcome.as_deref()),
                record.and_then(|record| content(record.content)),
                record.map(|record| record.doubt),
            ])?;
        }
        Ok(())
    }

    /// Whether this step changed the record of a once.
    pub(super) fn changes_record(&self) -> bool {
        let written = self.written.as_ref().and_then(|written| written.record.as_ref());
        written != self.known.record.as_ref()
    }

    fn id_of_row(&mut self) -> SqlResult<i64> {
        if let Some(id) = self.id {
            return Ok(id);
        }
        let mut insert = self.db.prepare_cached(sql::ADD_NAME)?;
        let id = insert.insert(params![space_number(self.name.space()), self.name.as_str()])?;
        (self.id, self.written) = (Some(id), None);
        Ok(id)
    }

    fn one(&self, statement: &str, values: impl rusqlite::Params) -> SqlResult<Option<Entry>> {
        if self.id.is_none() {
            return Ok(None);
        }
        self.db.prepare_cached(statement)?.query_row(values, read_entry).optional()
    }

    fn several(&self, statement: &str, values: impl rusqlite::Params) -> SqlResult<Vec<Entry>> {
        if self.id.is_none() {
            return Ok(Vec::new());
        }
        self.db.prepare_cached(statement)?.query_map(values, read_entry)?.collect()
    }

    /// Adds a claim to the totals (1) or removes it (-1).
    fn count(&mut self, entry: &Entry, by: i64) {
        let shift = |count: &mut u32, units: u32| {
            *count = (i64::from(*count) + by * i64::from(units)).clamp(0, u32::MAX.into()) as u32;
        };
        let totals = &mut self.known.totals;
        shift(&mut totals.fixed, u32::from(entry.fixed));
        match entry.state {
            State::Held { .. } => shift(&mut totals.held, entry.weight),
            State::Waiting | State::Aside => shift(&mut totals.waiting, 1),
        }
    }

    /// The hold that ends first.
    pub(super) fn first_to_end(&self) -> SqlResult<Option<(Entry, Arc<Details>)>> {
        let Some(id) = self.id else { return Ok(None) };
        self.db.prepare_cached(sql::FIRST_TO_END)?.query_row([id], read_shown).optional()
    }

    /// The claim right behind a place that was given up.
    pub(super) fn after(&self, ticket: Ticket) -> SqlResult<Option<Entry>> {
        self.one(sql::AFTER, params![self.id, ticket.get() as i64])
    }

    /// The claims that a process has here.
    pub(super) fn claims_of(&self, process: Process) -> SqlResult<Vec<ClaimId>> {
        let Some(id) = self.id else { return Ok(Vec::new()) };
        let mut select = self.db.prepare_cached(sql::CLAIMS_OF_PROCESS)?;
        select.query_map(params![id, process as i64], |row| read_id(row, 0))?.collect()
    }

    /// All clients with claims here.
    pub(super) fn clients(&self) -> SqlResult<Vec<Process>> {
        self.numbers(sql::CLIENTS)
    }

    fn numbers(&self, statement: &str) -> SqlResult<Vec<Process>> {
        let mut select = self.db.prepare_cached(statement)?;
        let found = select.query_map(params![self.id], |row| row.get::<_, i64>(0))?;
        found.map(|number| number.map(|number| number as Process)).collect()
    }

    /// The clients whose death would move the line for the foremost place that `process` has here: all holders,
    /// and the client right before it, which watches those before itself. Without a place: all holders, and the
    /// head of the line.
    pub(super) fn in_the_way_of(&self, process: Process) -> SqlResult<Vec<Process>> {
        let Some(id) = self.id else { return Ok(Vec::new()) };
        let mut all = self.numbers(sql::HOLDING_PROCESSES)?;
        let foremost: Option<i64> = self
            .db
            .prepare_cached(sql::FOREMOST)?
            .query_row(params![id, process as i64], |row| row.get(0))?;
        match foremost {
            Some(foremost) => {
                let mut select = self.db.prepare_cached(sql::BEFORE)?;
                let before = select.query_row(params![id, foremost], |row| row.get::<_, i64>(0));
                all.extend(before.optional()?.map(|number| number as Process));
            }
            None => all.extend(self.head()?.map(|head| head.process)),
        }
        Ok(all)
    }
}

impl Storage for Rows<'_> {
    type Error = rusqlite::Error;

    fn totals(&self) -> SqlResult<Totals> {
        Ok(self.known.totals)
    }

    fn set_capacity(&mut self, capacity: u32, resized_until: Moment) -> SqlResult<()> {
        self.id_of_row()?;
        self.known.totals.capacity = capacity;
        self.known.totals.resized_until = resized_until;
        Ok(())
    }

    fn last_number(&self) -> SqlResult<u64> {
        Ok(self.numbers.last)
    }

    fn next_number(&mut self) -> SqlResult<u64> {
        Ok(self.numbers.next())
    }

    fn raise_numbers(&mut self, floor: Fence) -> SqlResult<()> {
        self.numbers.last = self.numbers.last.max(floor.get());
        Ok(())
    }

    fn find(&self, id: &ClaimId) -> SqlResult<Option<Entry>> {
        if let Some(last) = self.last.get().filter(|last| last.id == *id) {
            return Ok(Some(last));
        }
        let found = self.one(sql::CLAIM, params![id.to_bytes(), self.id])?;
        self.last.set(found);
        Ok(found)
    }

    fn add(&mut self, entry: Entry, details: &Arc<Details>) -> SqlResult<()> {
        let name = self.id_of_row()?;
        self.db.prepare_cached(sql::ADD_CLAIM)?.execute(params![
            entry.id.to_bytes(),
            name,
            state_number(entry.state),
            entry.ticket.get() as i64,
            entry.fence().get() as i64,
            first_life(&entry),
            entry.weight,
            terms(&entry),
            span(entry.ttl),
            entry.process as i64,
            entry.once.map(|once| span(once.keep)),
            entry.once.is_some_and(|once| once.rerun),
            moment(entry.since),
            moment(entry.until),
            entry.once.and_then(|once| content(once.content)),
            details.owner,
            details.reason,
            write_meta(&details.meta),
            details.value,
            details.trace,
        ])?;
        self.known.quiet_until = self.known.quiet_until.min(entry.until);
        self.count(&entry, 1);
        self.last.set(Some(entry));
        Ok(())
    }

    fn change(&mut self, entry: Entry) -> SqlResult<()> {
        let Some(before) = self.find(&entry.id)? else { return Ok(()) };
        self.db.prepare_cached(sql::CHANGE_CLAIM)?.execute(params![
            entry.id.to_bytes(),
            self.id,
            state_number(entry.state),
            entry.fence().get() as i64,
            first_life(&entry),
            moment(entry.since),
            moment(entry.until),
            entry.process as i64,
        ])?;
        self.known.quiet_until = self.known.quiet_until.min(entry.until);
        self.count(&before, -1);
        self.count(&entry, 1);
        self.last.set(Some(entry));
        Ok(())
    }

    fn describe(&mut self, id: &ClaimId, details: &Arc<Details>) -> SqlResult<()> {
        self.db.prepare_cached(sql::DESCRIBE_CLAIM)?.execute(params![
            id.to_bytes(),
            self.id,
            details.owner,
            details.reason,
            write_meta(&details.meta),
            details.value,
            details.trace,
        ])?;
        Ok(())
    }

    fn remove(&mut self, id: &ClaimId) -> SqlResult<Option<Entry>> {
        let Some(entry) = self.find(id)? else { return Ok(None) };
        self.db.prepare_cached(sql::REMOVE_CLAIM)?.execute(params![id.to_bytes(), self.id])?;
        self.last.set(None);
        self.count(&entry, -1);
        if !matches!(entry.state, State::Held { .. }) {
            self.gap = self.gap.max(Some(entry.ticket));
        }
        Ok(Some(entry))
    }

    fn head(&self) -> SqlResult<Option<Entry>> {
        if self.known.totals.waiting == 0 {
            return Ok(None);
        }
        self.one(sql::HEAD, params![self.id])
    }

    fn first(&self, most: u32) -> SqlResult<Vec<Entry>> {
        self.several(sql::FIRST, params![self.id, most])
    }

    fn ahead(&self, ticket: Ticket) -> SqlResult<u32> {
        let mut select = self.db.prepare_cached(sql::AHEAD)?;
        select.query_row(params![self.id, ticket.get() as i64], |row| row.get(0))
    }

    fn next_end(&self) -> SqlResult<Option<Moment>> {
        let mut select = self.db.prepare_cached(sql::NEXT_END)?;
        let end: Option<i64> = select.query_row(params![self.id], |row| row.get(0))?;
        Ok(end.map(read_moment))
    }

    fn ended(&mut self, now: Moment, limit: u32) -> SqlResult<Vec<Entry>> {
        if now < self.known.quiet_until {
            return Ok(Vec::new());
        }
        let ended = self.several(sql::ENDED, params![self.id, moment(now), limit])?;
        // The claims found are about to be removed; if there are more, some end at once.
        let more = ended.len() == limit as usize;
        let next = |id: i64| -> SqlResult<Option<i64>> {
            let mut select = self.db.prepare_cached(sql::QUIET_UNTIL)?;
            select.query_row(params![id], |row| row.get(0))
        };
        self.known.quiet_until = match self.id {
            Some(_) if more || !ended.is_empty() => Moment::ORIGIN,
            Some(id) => next(id)?.map_or(Moment::FAR, read_moment),
            None => Moment::FAR,
        };
        Ok(ended)
    }

    fn holding(&self, fence: Fence) -> SqlResult<Option<Entry>> {
        self.one(sql::HOLDING, params![self.id, fence.get() as i64])
    }

    fn heavier(&self, weight: u32, limit: u32) -> SqlResult<Vec<Entry>> {
        self.several(sql::HEAVIER, params![self.id, weight, limit])
    }

    fn reach(&mut self, process: Process, reachable: bool) -> SqlResult<()> {
        if self.known.totals.waiting == 0 {
            return Ok(());
        }
        let (from, to) = if reachable { (ASIDE, WAITING) } else { (WAITING, ASIDE) };
        let mut update = self.db.prepare_cached(sql::REACH)?;
        update.execute(params![self.id, process as i64, from, to])?;
        self.last.set(None);
        Ok(())
    }

    fn trace(&mut self, id: ClaimId, trace: Trace, until: Moment) -> SqlResult<()> {
        let name = self.id_of_row()?;
        let (by, reason) = match &trace {
            Trace::LeftInDoubt => (None, None),
            Trace::Broken(note) => (Some(&note.by), Some(&note.reason)),
        };
        let mut insert = self.db.prepare_cached(sql::ADD_TRACE)?;
        insert.execute(params![id.to_bytes(), name, moment(until), by, reason])?;
        self.known.traces_until = self.known.traces_until.max(until);
        Ok(())
    }

    fn traced(&self, id: &ClaimId, now: Moment) -> SqlResult<Option<Trace>> {
        if self.known.traces_until <= now {
            return Ok(None);
        }
        let mut select = self.db.prepare_cached(sql::TRACE)?;
        let found = select.query_row(params![id.to_bytes(), self.id, moment(now)], |row| {
            let (by, reason): (Option<String>, Option<String>) = (row.get(0)?, row.get(1)?);
            let note = by.map(|by| Note { by, reason: reason.unwrap_or_default() });
            Ok(note.map_or(Trace::LeftInDoubt, Trace::Broken))
        });
        found.optional()
    }

    fn record(&self, now: Moment) -> SqlResult<Option<Record>> {
        let held = self.known.totals.held > 0;
        Ok(self.known.record.clone().filter(|record| held || record.until > now))
    }

    fn set_record(&mut self, record: Option<Record>) -> SqlResult<()> {
        self.id_of_row()?;
        self.known.record = record;
        Ok(())
    }
}

impl Known {
    fn nothing() -> Known {
        Known {
            totals: Totals::default(),
            quiet_until: Moment::FAR,
            traces_until: Moment::ORIGIN,
            record: None,
        }
    }

    fn read(row: &Row<'_>) -> SqlResult<Known> {
        let totals = Totals {
            capacity: row.get(1)?,
            resized_until: read_moment(row.get(2)?),
            held: row.get(3)?,
            waiting: row.get(4)?,
            fixed: row.get(5)?,
        };
        let record = match row.get::<_, Option<i64>>(8)? {
            None => None,
            Some(fence) => Some(Record {
                fence: Fence::new(fence as u64),
                keep: read_span(row.get(9)?),
                until: read_moment(row.get(10)?),
                outcome: row.get::<_, Option<Vec<u8>>>(11)?.map(Arc::from),
                content: read_content(row, 12)?,
                doubt: row.get(13)?,
            }),
        };
        let (quiet_until, traces_until) = (read_moment(row.get(6)?), read_moment(row.get(7)?));
        Ok(Known { totals, quiet_until, traces_until, record })
    }
}

#[cfg(test)]
mod tests;
