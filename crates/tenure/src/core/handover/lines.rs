//! The machines of all names that claims of this process use, and when each is due.

use std::collections::{BTreeSet, VecDeque};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hashbrown::HashTable;

use super::line::{Effect, Line};
use crate::engine::Ack;
use crate::model::claim::Leave;
use crate::model::moment::Moment;
use crate::model::name::Name;

const SHARDS: usize = 16;

/// Cheap to clone: all share the same machines.
#[derive(Clone, Default)]
pub(super) struct Lines(Arc<Shards>);

#[derive(Default)]
struct Shards {
    shards: [Shard; SHARDS],
    /// When the watchdog looks next, as far as it knows.
    next_look: AtomicU64,
    /// How many machines there are.
    count: AtomicUsize,
}

#[derive(Default)]
#[repr(align(128))]
struct Shard(Mutex<Table>);

#[derive(Default)]
struct Table {
    lines: HashTable<(Name, Box<Kept>)>,
    timers: BTreeSet<(Moment, Name)>,
}

struct Kept {
    line: Line,
    /// When it is due, as the timers say.
    due: Option<Moment>,
    /// A thread carries out its effects.
    busy: bool,
    /// Leaves that wait for that thread: the effects before them must reach the engine first.
    leaves: VecDeque<(Leave, Ack)>,
}

/// What is to be carried out next.
pub(super) enum Next {
    Effect(Effect),
    Leave(Leave, Ack),
}

/// What is to be done after a machine was told something.
#[derive(Default)]
pub(super) struct After {
    pub(super) next: Option<Next>,
    /// The watchdog would look too late.
    pub(super) hurry: bool,
}

impl Table {
    /// A burst of names must not keep its memory for ever.
    fn forget(&mut self, name: &Name) {
        if let Ok(found) = self.lines.find_entry(name.local_hash(), |(known, _)| known == name) {
            found.remove();
        }
        if self.lines.capacity() > 256 && self.lines.len() < self.lines.capacity() / 8 {
            let room = self.lines.len() * 2;
            self.lines.shrink_to(room, hash);
        }
    }
}

fn hash(entry: &(Name, Box<Kept>)) -> u64 {
    entry.0.local_hash()
}

impl Lines {
    fn table(&self, name: &Name) -> MutexGuard<'_, Table> {
        let shard = &self.0.shards[(name.local_hash() >> 56) as usize % SHARDS];
        shard.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells the machine of a name something. Without `ttl` only if there is one; otherwise it is made.
    ///
    /// If effects follow, the first is returned to the thread that is to carry them all out, one after the other, with
    /// [`Lines::next`]. If a thread does so already, the effects are left to that one.
    pub(super) fn tell<T>(
        &self,
        name: &Name,
        ttl: Option<Duration>,
        told: impl FnOnce(&mut Line) -> T,
    ) -> Option<(T, After)> {
        if ttl.is_none() && self.0.count.load(SeqCst) == 0 {
            return None;
        }
        let mut table = self.table(name);
        let is_it = |entry: &(Name, Box<Kept>)| entry.0 == *name;
        let kept = match (table.lines.find_mut(name.local_hash(), is_it), ttl) {
            (Some(_), _) => table.lines.find_mut(name.local_hash(), is_it)?,
            (None, Some(ttl)) => {
                let (line, leaves) = (Line::new(ttl), VecDeque::new());
                let kept = Kept { line, due: None, busy: false, leaves };
                let entry = (name.clone(), Box::new(kept));
                self.0.count.fetch_add(1, SeqCst);
                table.lines.insert_unique(name.local_hash(), entry, hash).into_mut()
            }
            (None, None) => return None,
        };
        let answer = told(&mut kept.1.line);
        if kept.1.busy {
            return Some((answer, After::default()));
        }
        Some((answer, self.after(&mut table, name)))
    }

    /// Leaves the thread that carries out effects this leave, too. Returns it if there is no such thread.
    pub(super) fn leave_after(&self, name: &Name, leave: Leave, done: Ack) -> Option<(Leave, Ack)> {
        let mut table = self.table(name);
        let is_it = |entry: &(Name, Box<Kept>)| entry.0 == *name;
        match table.lines.find_mut(name.local_hash(), is_it) {
            Some((_, kept)) if kept.busy => {
                kept.leaves.push_back((leave, done));
                None
            }
            _ => Some((leave, done)),
        }
    }

    /// Whether a thread carries out effects.
    pub(super) fn is_busy(&self, name: &Name) -> bool {
        let table = self.table(name);
        let found = table.lines.find(name.local_hash(), |(known, _)| known == name);
        found.is_some_and(|(_, kept)| kept.busy)
    }

    /// Looks at a machine, if there is one.
    pub(super) fn look<T>(&self, name: &Name, look: impl FnOnce(&Line) -> T) -> Option<T> {
        let table = self.table(name);
        let found = table.lines.find(name.local_hash(), |(known, _)| known == name)?;
        Some(look(&found.1.line))
    }

    /// The next effect, after one was carried out.
    pub(super) fn next(&self, name: &Name) -> After {
        let mut table = self.table(name);
        self.after(&mut table, name)
    }

    fn after(&self, table: &mut Table, name: &Name) -> After {
        let is_it = |entry: &(Name, Box<Kept>)| entry.0 == *name;
        let Some((_, kept)) = table.lines.find_mut(name.local_hash(), is_it) else {
            return After::default();
        };
        let effect = kept.line.outbox.pop_front().map(Next::Effect);
        let leave = |(leave, done)| Next::Leave(leave, done);
        let next = effect.or_else(|| kept.leaves.pop_front().map(leave));
        kept.busy = next.is_some();
        if kept.busy {
            return After { next, hurry: false };
        }
        let (due, before) = (kept.line.due(), kept.due);
        let is_idle = kept.line.is_idle();
        let timed = Some(due).filter(|due| *due != Moment::FAR && !is_idle);
        kept.due = timed;
        if timed != before {
            if let Some(before) = before {
                table.timers.remove(&(before, name.clone()));
            }
            if let Some(due) = timed {
                table.timers.insert((due, name.clone()));
            }
        }
        if is_idle {
            table.forget(name);
            self.0.count.fetch_sub(1, SeqCst);
        }
        let next = timed.map_or(u64::MAX, Moment::as_nanos);
        let hurry =
            next < self.0.next_look.load(SeqCst) && next < self.0.next_look.fetch_min(next, SeqCst);
        After { next: None, hurry }
    }

    /// The names whose machines are due.
    pub(super) fn due(&self, now: Moment) -> Vec<Name> {
        let mut due = Vec::new();
        for shard in &self.0.shards {
            let table = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            due.extend(
                table.timers.iter().take_while(|(at, _)| *at <= now).map(|(_, n)| n.clone()),
            );
        }
        // The order of the table differs from run to run.
        due.sort_unstable();
        due
    }

    /// All names for which this holds.
    pub(super) fn names(&self, wanted: impl Fn(&Name) -> bool) -> Vec<Name> {
        let mut names = Vec::new();
        for shard in &self.0.shards {
            let table = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            let known = table.lines.iter().map(|(name, _)| name).filter(|name| wanted(name));
            names.extend(known.cloned());
        }
        names.sort_unstable();
        names
    }

    /// Sets and returns when the watchdog looks next.
    pub(super) fn settle_next(&self) -> Moment {
        // First, so that what becomes due earlier in the meantime wakes it.
        self.0.next_look.store(u64::MAX, SeqCst);
        let next = self.earliest();
        self.0.next_look.fetch_min(next.as_nanos(), SeqCst);
        next
    }

    fn earliest(&self) -> Moment {
        let first = |shard: &Shard| {
            let table = shard.0.lock().unwrap_or_else(PoisonError::into_inner);
            table.timers.first().map_or(Moment::FAR, |(at, _)| *at)
        };
        self.0.shards.iter().map(first).min().unwrap_or(Moment::FAR)
    }
}
