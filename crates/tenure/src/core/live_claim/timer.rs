//! When the watchdog looks at a claim.

use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use crate::model::claim::Ticket;
use crate::model::moment::Moment;

/// When the watchdog looks at a claim. Only written under the mutex of the claim's shard.
#[derive(Debug)]
pub(crate) struct Timer {
    /// The time of its timer; [`Timer::NEW`] while it has none.
    due: AtomicU64,
    /// Its ticket among the claims of its name, as of the last look; [`Timer::NOWHERE`] if it has none.
    ticket: AtomicU64,
}

impl Timer {
    /// No timer. As no moment is earlier, it never has to be changed to an earlier one.
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
        // Zero means that there is no timer.
        self.due.store(due.as_nanos().max(1), SeqCst);
    }

    pub(crate) fn ticket(&self) -> Option<Ticket> {
        let ticket = self.ticket.load(SeqCst);
        (ticket != Timer::NOWHERE).then(|| Ticket::new(ticket))
    }

    pub(crate) fn stands(&self, ticket: Option<Ticket>) {
        self.ticket.store(ticket.map_or(Timer::NOWHERE, Ticket::get), SeqCst);
    }

    /// The claim no longer has a timer.
    pub(crate) fn end(&self) {
        // Most claims are over before they had one.
        if self.due.load(SeqCst) != Timer::NEW {
            self.due.store(Timer::NEW, SeqCst);
        }
    }
}

impl Default for Timer {
    fn default() -> Timer {
        Timer { due: AtomicU64::new(Timer::NEW), ticket: AtomicU64::new(Timer::NOWHERE) }
    }
}
