//! When the watchdog looks at a claim.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::model::claim::Ticket;
use crate::model::moment::Moment;

/// When the watchdog looks at a claim. Written under the mutex of the claim's shard alone.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The key of its timer; [`Timer::NEW`] while it has none.
    due: AtomicU64,
    /// Where it stands among those of its name, as of the last look; [`Timer::NOWHERE`] if it does not.
    ticket: AtomicU64,
}

impl Timer {
    /// No timer, so that no moment is earlier and none needs to be changed.
    const NEW: u64 = 0;
    const NOWHERE: u64 = u64::MAX;

    /// Whether its timer is set for later than `at`.
    pub(crate) fn is_later(&self, at: Moment) -> bool {
        self.due.load(SeqCst) > at.as_nanos()
    }

    pub(crate) fn due(&self) -> Moment {
        Moment::from_nanos(self.due.load(SeqCst))
    }

    pub(crate) fn set(&self, due: Moment) {
        // The origin is the mark of those that have none.
        self.due.store(due.as_nanos().max(1), SeqCst);
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        let ticket = self.ticket.load(SeqCst);
        (ticket != Timer::NOWHERE).then(|| Ticket::new(ticket))
    }

    pub(crate) fn stands(&self, ticket: Option<Ticket>) {
        self.ticket.store(ticket.map_or(Timer::NOWHERE, Ticket::get), SeqCst);
    }

    /// It has none any more.
    pub(crate) fn end(&self) {
        self.due.store(Timer::NEW, SeqCst);
    }
}

impl Default for Timer {
    fn default() -> Timer {
        Timer { due: AtomicU64::new(Timer::NEW), ticket: AtomicU64::new(Timer::NOWHERE) }
    }
}
