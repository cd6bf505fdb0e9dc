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
    /// Whether its answer is that of a leave that is sent now: the claim has not asked again since.
    is_shared: bool,
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
        let mut table = self.table();
        let sent = table.by_id.get_mut(&leave.id)?;
        let is_same = sent.is_shared && is_plain(leave) && sent.in_doubt == leave.in_doubt;
        if !is_same || now.since(sent.at) >= SHARED_FOR {
            return None;
        }
        let (tell, told) = oneshot::channel();
        sent.others.push(tell);
        Some(told)
    }

    /// Records a leave that is about to be sent, if its answer can be shared.
    pub(super) fn send(self: &Arc<Leaves>, leave: &Leave, now: Moment) -> OnItsWay {
        let mut table = self.table();
        table.sent += 1;
        let (id, number) = (leave.id, table.sent);
        let on_its_way = OnItsWay { leaves: self.clone(), id, number };
        if !is_plain(leave) {
            return on_its_way;
        }
        // Whoever shares the one before shares this one: the answer of the first is lost, or late.
        let others = table.by_id.remove(&id).map(|before| before.others).unwrap_or_default();
        let in_doubt = leave.in_doubt;
        table.by_id.insert(id, Sent { number, at: now, in_doubt, is_shared: true, others });
        on_its_way
    }

    /// The claim asks again: what was sent before is not its end.
    pub(super) fn forget(&self, id: &ClaimId) {
        if let Some(sent) = self.table().by_id.get_mut(id) {
            sent.is_shared = false;
        }
    }
}

/// Whether it ends the claim, whatever that is and does.
fn is_plain(leave: &Leave) -> bool {
    leave.only.is_none() && !leave.only_waiting && leave.settle.is_none() && !leave.unbegun
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::{Name, Space};

    fn leave() -> Leave {
        let name = Name::new(Space::Lock, "x").unwrap();
        Leave::new(name, ClaimId::from_bytes([7; 16]))
    }

    #[test]
    fn a_second_leave_gets_the_answer_of_the_first() {
        let (leaves, now, leave) = (Arc::new(Leaves::default()), Moment::ORIGIN, leave());
        assert!(leaves.shares(&leave, now).is_none(), "none is on its way");
        let first = leaves.send(&leave, now);
        let mut second = leaves.shares(&leave, now + SHARED_FOR / 2).unwrap();
        assert!(leaves.shares(&leave, now + SHARED_FOR).is_none());
        let third = leaves.send(&leave, now + SHARED_FOR);
        first.answered(&Ok(Left::Quit));
        assert!(second.try_recv().is_err(), "it waits for the later one now");
        third.answered(&Ok(Left::Released));
        assert_eq!(second.try_recv().unwrap().unwrap(), Left::Released);
        assert!(leaves.shares(&leave, now + SHARED_FOR).is_none(), "it was answered");
    }

    /// The answer to another kind of leave says nothing about whether the claim has left.
    #[test]
    fn only_leaves_that_mean_the_same_share_an_answer() {
        let (leaves, now, plain) = (Arc::new(Leaves::default()), Moment::ORIGIN, leave());
        let waiting = Leave { only_waiting: true, ..leave() };
        let in_doubt = Leave { in_doubt: true, ..leave() };
        let other = leaves.send(&waiting, now);
        assert!(leaves.shares(&plain, now).is_none());
        let sent = leaves.send(&plain, now);
        assert!(leaves.shares(&waiting, now).is_none() && leaves.shares(&in_doubt, now).is_none());
        let mut second = leaves.shares(&plain, now).unwrap();
        let another = leaves.send(&waiting, now);
        drop((other, another));
        leaves.forget(&plain.id);
        assert!(leaves.shares(&plain, now).is_none(), "the claim has asked again");
        sent.answered(&Ok(Left::Released));
        assert_eq!(second.try_recv().unwrap().unwrap(), Left::Released);
    }
}
