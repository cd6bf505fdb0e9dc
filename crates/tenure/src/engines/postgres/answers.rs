//! What comes back: rows, as the ledger's answers.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::Row;

use super::row::{Columns, Fields};
use crate::ledger::Answer;
use crate::model::claim::{
    Details, Ended, Fence, Holder, Note, OnceRecord, Outcome, Ticket, Waiter,
};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};
use crate::model::view::{Page, Scope, View};

/// The answer of a step.
#[derive(Debug)]
pub(super) struct StepAnswer {
    pub(super) code: char,
    pub(super) answer: Answer,
    pub(super) holder: Option<Holder>,
    /// The step stopped at its limit and should go on.
    pub(super) more: bool,
}

impl StepAnswer {
    /// A claim that waits is to look again by then.
    pub(super) fn look_by(&mut self, at: Moment) {
        if let Answer::Waiting { next_end, .. } = &mut self.answer {
            *next_end = at.min(*next_end);
        }
    }

    /// Whether the step was left out of its batch: it must be sent alone.
    pub(super) fn was_left_out(&self) -> bool {
        self.code == 'Y'
    }
}

fn strange(what: &str) -> Error {
    let reason = format!("the server answered what no version of tenure does: {what}");
    Error::new(ErrorKind::Internal, reason).next("run `tenure setup` again").in_doubt()
}

fn span(micros: i64) -> Duration {
    Duration::from_micros(micros.try_into().unwrap_or(0))
}

fn number(number: i64) -> u64 {
    number.try_into().unwrap_or(0)
}

/// A column, which must be there.
fn column<'a, T: tokio_postgres::types::FromSql<'a>>(
    row: &'a impl Columns,
    at: usize,
) -> Result<T> {
    row.column(at).ok_or_else(|| strange(&format!("column {at}")))
}

/// Reads the row of a step that was sent at `sent`.
pub(super) fn read_step(row: &Row, sent: Moment) -> Result<StepAnswer> {
    let row = &Fields::read(column(row, 0)?).ok_or_else(|| strange("no row"))?;
    let long = |at| column::<Option<i64>>(row, at).map(Option::unwrap_or_default);
    let flag = |at| column::<Option<bool>>(row, at).map(Option::unwrap_or_default);
    let code = column::<&str>(row, 0)?.chars().next().unwrap_or(' ');
    let gone = || -> Result<Answer> {
        let by: Option<String> = column(row, 11)?;
        let Some(by) = by else { return Ok(Answer::Gone(Ended::Expired)) };
        let reason = column::<Option<String>>(row, 12)?.unwrap_or_default();
        Ok(Answer::Gone(Ended::Broken(Note { by, reason })))
    };
    let next_end: Option<i64> = column(row, 7)?;
    let answer = match code {
        'G' => Answer::Granted {
            fence: Fence::new(number(long(1)?)),
            remaining: span(long(2)?),
            first_life: flag(3)?,
        },
        'W' => Answer::Waiting {
            ticket: Ticket::new(number(long(4)?)),
            ahead: long(5)?.try_into().unwrap_or(u32::MAX),
            floor: Fence::new(number(long(6)?)),
            next_end: next_end.map_or(Moment::FAR, |end| sent + span(end)),
            held_up: flag(8)?,
        },
        'B' => Answer::Busy,
        'F' => Answer::Full,
        'C' => Answer::Conflict { capacity: long(9)?.try_into().unwrap_or(u32::MAX) },
        'S' => Answer::Settled(column::<Option<&[u8]>>(row, 10)?.unwrap_or_default().into()),
        'U' => Answer::Unsettled,
        'O' => Answer::OtherContent,
        'L' => Answer::Left,
        'N' => Answer::Exhausted,
        // What an operator's step and a leave answer is in the code; the rest is not looked at.
        'X' | 'R' | 'Q' | 'D' | 'M' | 'Y' => gone()?,
        _ => return Err(strange("a code")),
    };
    let holder = match column::<Option<i64>>(row, 14)? {
        Some(fence) => Some(Holder {
            fence: Fence::new(number(fence)),
            weight: long(15)?.try_into().unwrap_or(u32::MAX),
            held_for: span(long(16)?),
            remaining: span(long(17)?),
            details: details(row, 18)?,
        }),
        None => None,
    };
    Ok(StepAnswer { code, answer, holder, more: flag(13)? })
}

/// Owner, reason, meta, value and trace, from column `at` on.
fn details(row: &impl Columns, at: usize) -> Result<Arc<Details>> {
    let meta: Vec<String> = column::<Option<Vec<String>>>(row, at + 2)?.unwrap_or_default();
    let pairs = meta.chunks_exact(2);
    let details = Details {
        owner: column::<Option<String>>(row, at)?.unwrap_or_default(),
        reason: column(row, at + 1)?,
        meta: pairs.map(|pair| (pair[0].clone(), pair[1].clone())).collect(),
        value: column(row, at + 3)?,
        trace: column(row, at + 4)?,
    };
    Ok(Arc::new(details))
}

/// Reads who holds and who waits.
pub(super) fn read_page(rows: &[Row], scope: &Scope) -> Result<Page> {
    let (space, limit) = match scope {
        Scope::Name(name) => (name.space(), 1),
        Scope::Prefix { space, limit, .. } => (*space, *limit),
    };
    let mut views: Vec<View> = Vec::new();
    for row in rows {
        read_view(row, space, &mut views)?;
    }
    for view in &mut views {
        view.holders.sort_by_key(|holder| holder.fence);
        view.waiters.sort_by_key(|waiter| waiter.ticket);
    }
    views.retain(|view| view.is_used() || view.record.is_some());
    let more = views.len() > limit;
    views.truncate(limit);
    Ok(Page { views, more })
}

fn read_view(row: &Row, space: Space, views: &mut Vec<View>) -> Result<()> {
    let name: &str = column(row, 0)?;
    let capacity = column::<i64>(row, 1)?.try_into().unwrap_or(u32::MAX);
    // The rows of a name follow each other.
    if views.last().is_none_or(|view| view.name.as_str() != name) {
        let name = Name::new(space, name)?;
        let (holders, waiters) = (Vec::new(), Vec::new());
        views.push(View { name, capacity, holders, waiters, record: None });
    }
    let Some(view) = views.last_mut() else { return Ok(()) };
    let fence = Fence::new(number(column(row, 3)?));
    let weight = column::<i64>(row, 5)?.try_into().unwrap_or(u32::MAX);
    let (since, remaining) = (span(column(row, 6)?), span(column(row, 7)?));
    match column::<i32>(row, 2)? {
        2 => {
            let details = details(row, 10)?;
            view.holders.push(Holder { fence, weight, held_for: since, remaining, details });
        }
        0 => {
            let (ticket, details) = (Ticket::new(number(column(row, 4)?)), details(row, 10)?);
            view.waiters.push(Waiter { ticket, weight, waited: since, details });
        }
        _ => {
            let outcome = column::<Option<&[u8]>>(row, 9)?.map(Outcome::from);
            view.record = Some(OnceRecord::new(fence, outcome, span(column(row, 8)?), remaining));
        }
    }
    Ok(())
}
