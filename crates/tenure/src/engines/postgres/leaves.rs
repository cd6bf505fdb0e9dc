//! Leaves that are on their way. The watchdog sends a leave again after milliseconds, and a commit may take longer on a
//! busy disk: a second one would only keep the disk busier. So it shares the answer of the first, for a while.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use foldhash::fast::RandomState;
use tokio::sync::oneshot;

use crate::model::claim::{ClaimId, Leave, Left};
use crate::model::error::Result;
use crate::model::moment::Moment;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// A leave that has been on its way for longer is sent again: its connection may be of no more use.
const SHARED_FOR: Duration = Duration::from_millis(200);

#[derive(Default)]
pub(super) struct Leaves(Mutex<Table>);

#[derive(Default)]
struct Table {
    by_id: HashMap<ClaimId, Sent>,
    /// How many were sent.
    sent: u64,
}

struct Sent {
    number: u64,
    at: Moment,
    in_doubt: bool,
    /// Others who want its answer.
    others: Vec<oneshot::Sender<Result<Left>>>,
}

/// A leave on its way. If it is dropped, nobody gets an answer.
pub(super) struct OnItsWay {
    leaves: Arc<Leaves>,
    id: ClaimId,
    number: u64,
}

impl Leaves {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to the same leave, if it was sent just now.
    pub(super) fn shares(
        &self,
        leave: &Leave,
        now: Moment,
    ) -> Option<oneshot::Receiver<Result<Left>>> {
        let is_plain =
            leave.only.is_none() && !leave.only_waiting && leave.settle.is_none() && !leave.unbegun;
        let mut table = self.table();
        let sent = table.by_id.get_mut(&leave.id)?;
        if !is_plain || sent.in_doubt != leave.in_doubt || now.since(sent.at) >= SHARED_FOR {
            return None;
        }
        let (tell, told) = oneshot::channel();
        sent.others.push(tell);
        Some(told)
    }

    /// Records a leave that is about to be sent.
    pub(super) fn send(self: &Arc<Leaves>, leave: &Leave, now: Moment) -> OnItsWay {
        let mut table = self.table();
        table.sent += 1;
        let (id, number) = (leave.id, table.sent);
        // Whoever shares the one before shares this one: the answer of the first is lost, or late.
        let others = table.by_id.remove(&id).map(|before| before.others).unwrap_or_default();
        table.by_id.insert(id, Sent { number, at: now, in_doubt: leave.in_doubt, others });
        OnItsWay { leaves: self.clone(), id, number }
    }

    /// The claim asks again: what was sent before is not its end.
    pub(super) fn forget(&self, id: &ClaimId) {
        let mut table = self.table();
        if !table.by_id.is_empty() {
            table.by_id.remove(id);
        }
    }
}

impl OnItsWay {
    /// Tells the answer to whoever shares it.
    pub(super) fn answered(self, left: &Result<Left>) {
        for tell in self.take() {
            // They may have stopped waiting.
            let _ = tell.send(left.clone());
        }
    }

    fn take(&self) -> Vec<oneshot::Sender<Result<Left>>> {
        let mut table = self.leaves.table();
        match table.by_id.get(&self.id) {
            Some(sent) if sent.number == self.number => {}
            _ => return Vec::new(),
        }
        table.by_id.remove(&self.id).map(|sent| sent.others).unwrap_or_default()
    }
}

impl Drop for OnItsWay {
    fn drop(&mut self) {
        drop(self.take());
    }
}
