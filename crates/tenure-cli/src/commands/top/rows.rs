//! The names as rows: their content, filter and order.

use std::cmp::Reverse;
use std::time::Duration;

use tenure::View;
use tenure::engine::Name;

use crate::commands::ls;
use crate::facts;
use crate::output::clean;
use crate::settings::Settings;

/// One name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Row {
    /// The name.
    pub(super) id: Name,
    /// The name as it is shown.
    pub(super) name: String,
    pub(super) state: String,
    pub(super) owner: String,
    pub(super) held: Option<Duration>,
    pub(super) left: Option<Duration>,
    pub(super) waiting: usize,
    pub(super) oldest: Option<Duration>,
    pub(super) note: String,
    /// Whether a renewal is overdue.
    pub(super) late: bool,
}

/// The order of rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Sort {
    /// What needs attention comes first: late renewals, then long waits.
    Trouble,
    Name,
    Wait,
    Held,
}

impl Sort {
    pub(super) fn next(self) -> Sort {
        match self {
            Sort::Trouble => Sort::Name,
            Sort::Name => Sort::Wait,
            Sort::Wait => Sort::Held,
            Sort::Held => Sort::Trouble,
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Sort::Trouble => "trouble",
            Sort::Name => "name",
            Sort::Wait => "wait",
            Sort::Held => "held",
        }
    }
}

impl Row {
    fn new(view: &View, settings: &Settings) -> Row {
        let oldest = facts::oldest(view);
        let short = settings.short_name(view.name.as_str());
        Row {
            id: view.name.clone(),
            name: clean(short),
            state: facts::state(view),
            owner: ls::owners(view),
            held: oldest.map(|holder| holder.held_for),
            left: view.holders.iter().map(|holder| holder.remaining).min(),
            waiting: view.waiters.len(),
            oldest: view.waiters.iter().map(|waiter| waiter.waited).max(),
            note: facts::note(view),
            late: view.holders.iter().any(facts::is_late),
        }
    }

    fn has(&self, wanted: &str) -> bool {
        let texts = [&self.name, &self.owner, &self.note, &self.state];
        texts.iter().any(|text| text.to_lowercase().contains(wanted))
    }
}

/// The rows that contain `filter`, in order.
pub(super) fn rows(views: &[View], filter: &str, sort: Sort, settings: &Settings) -> Vec<Row> {
    let wanted = filter.to_lowercase();
    let rows = views.iter().map(|view| Row::new(view, settings));
    let mut rows: Vec<_> = rows.filter(|row| wanted.is_empty() || row.has(&wanted)).collect();
    // Equal rows stay in the order of their names.
    rows.sort_by(|a, b| a.id.cmp(&b.id));
    match sort {
        Sort::Trouble => rows.sort_by_key(|row| Reverse((row.late, row.oldest, row.held))),
        Sort::Name => {}
        Sort::Wait => rows.sort_by_key(|row| Reverse((row.oldest, row.waiting))),
        Sort::Held => rows.sort_by_key(|row| Reverse(row.held)),
    }
    rows
}
