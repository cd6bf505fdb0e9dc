//! Reads and writes the values in the rows of the file.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Row;

use super::storage::SqlResult;
use crate::ledger::{Entry, Process, State};
use crate::model::claim::{ClaimId, Details, Fence, OnceTerms, Ticket};
use crate::model::moment::Moment;
use crate::model::name::Space;

pub(super) const WAITING: i64 = 0;
pub(super) const ASIDE: i64 = 1;
pub(super) const HELD: i64 = 2;

pub(super) fn state_number(state: State) -> i64 {
    match state {
        State::Waiting => WAITING,
        State::Aside => ASIDE,
        State::Held { .. } => HELD,
    }
}

pub(super) fn first_life(entry: &Entry) -> bool {
    matches!(entry.state, State::Held { first_life: true, .. })
}

/// The column `fixed`: 1 for a fixed capacity, and 2 for a claim that a server made for one of its clients.
pub(super) fn terms(entry: &Entry) -> i64 {
    i64::from(entry.fixed) + 2 * i64::from(entry.on_behalf)
}

pub(super) fn space_number(space: Space) -> i64 {
    match space {
        Space::Lock => 0,
        Space::Election => 1,
        Space::Once => 2,
    }
}

pub(super) fn space_of(number: i64) -> Space {
    match number {
        1 => Space::Election,
        2 => Space::Once,
        _ => Space::Lock,
    }
}

/// SQLite's integers are signed; "never" is the largest of them.
pub(super) fn moment(at: Moment) -> i64 {
    i64::try_from(at.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn read_moment(nanos: i64) -> Moment {
    if nanos == i64::MAX { Moment::FAR } else { Moment::from_nanos(nanos.max(0) as u64) }
}

pub(super) fn span(span: Duration) -> i64 {
    i64::try_from(span.as_nanos()).unwrap_or(i64::MAX)
}

pub(super) fn read_span(nanos: i64) -> Duration {
    Duration::from_nanos(nanos.max(0) as u64)
}

pub(super) fn content(content: u128) -> Option<[u8; 16]> {
    (content != 0).then(|| content.to_be_bytes())
}

pub(super) fn read_content(row: &Row<'_>, column: usize) -> SqlResult<u128> {
    Ok(row.get::<_, Option<[u8; 16]>>(column)?.map_or(0, u128::from_be_bytes))
}

pub(super) fn read_id(row: &Row<'_>, column: usize) -> SqlResult<ClaimId> {
    row.get(column).map(ClaimId::from_bytes)
}

pub(super) fn read_entry(row: &Row<'_>) -> SqlResult<Entry> {
    let state = match row.get(1)? {
        WAITING => State::Waiting,
        ASIDE => State::Aside,
        _ => {
            let fence = Fence::new(row.get::<_, i64>(3)? as u64);
            State::Held { fence, first_life: row.get(4)? }
        }
    };
    let (terms, keep): (i64, Option<i64>) = (row.get(6)?, row.get(9)?);
    let (rerun, content) = (row.get(10)?, read_content(row, 13)?);
    Ok(Entry {
        id: read_id(row, 0)?,
        ticket: Ticket::new(row.get::<_, i64>(2)? as u64),
        weight: row.get(5)?,
        fixed: terms & 1 != 0,
        ttl: read_span(row.get(7)?),
        process: row.get::<_, i64>(8)? as Process,
        on_behalf: terms & 2 != 0,
        once: keep.map(|keep| OnceTerms { keep: read_span(keep), rerun, content }),
        since: read_moment(row.get(11)?),
        until: read_moment(row.get(12)?),
        state,
    })
}

pub(super) fn read_shown(row: &Row<'_>) -> SqlResult<(Entry, Arc<Details>)> {
    let (owner, reason) = (row.get(14)?, row.get(15)?);
    let meta = read_meta(&row.get::<_, String>(16)?);
    let (value, trace) = (row.get(17)?, row.get(18)?);
    Ok((read_entry(row)?, Arc::new(Details { owner, reason, meta, value, trace })))
}

/// Neither can occur in the details of a claim, which must not contain control characters.
pub(super) const BETWEEN_PAIRS: char = '\u{1e}';
pub(super) const WITHIN_A_PAIR: char = '\u{1f}';

pub(super) fn write_meta(meta: &[(String, String)]) -> String {
    let pairs = meta.iter().map(|(key, value)| format!("{key}{WITHIN_A_PAIR}{value}"));
    pairs.collect::<Vec<_>>().join(&BETWEEN_PAIRS.to_string())
}

pub(super) fn read_meta(text: &str) -> Vec<(String, String)> {
    let pairs = text.split(BETWEEN_PAIRS).filter_map(|pair| pair.split_once(WITHIN_A_PAIR));
    pairs.map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}
