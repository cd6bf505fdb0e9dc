//! Probes whether the engine can be reached: when someone missed an answer; while claims with an outage policy
//! are in line; and during an outage, until it is over.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::{LONGEST_PATIENCE, no_answer, own_way};
use crate::core::handle::Core;
use crate::core::outage::is_outage;
use crate::engine::{Engine, Page, Scope, Step};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// How often to probe while someone is in line.
const WHILE_UP: Duration = Duration::from_secs(1);
/// How often to probe during an outage, and how soon again when the engine is in doubt or has not answered.
const WHILE_DOWN: Duration = Duration::from_millis(500);
const IN_DOUBT: Duration = Duration::from_millis(200);
/// How often a probe under way is checked until the silence is too long.
const LOOKS: u32 = 4;
/// How long the callers' connection may take after the watchdog's own has answered: it cannot reconnect while their
/// runtime is not polled.
const FOR_CALLERS: Duration = Duration::from_secs(2);

/// The probes under way, at most one for each shard, and when to send the next.
pub(super) struct Probes {
    /// When to probe next, and when the last probe was sent.
    at: Moment,
    asked: Moment,
    under_way: BTreeMap<u32, Probe>,
    /// The shards that did not answer.
    silent: BTreeMap<u32, Silence>,
    /// The shards that are down but answer the watchdog, and since when.
    answers: BTreeMap<u32, Moment>,
}

struct Probe {
    name: Name,
    sent: Moment,
    /// When to check whether the silence is too long.
    due: Moment,
    step: Step<Page>,
    /// Sent over the callers' connection, after the watchdog's own has answered: it may be restored later, and
    /// callers must not return too early.
    by_callers: bool,
}

/// How long a shard has not answered, counting only time in which this process was running.
struct Silence {
    so_far: Duration,
    looked: Moment,
}

impl Default for Probes {
    fn default() -> Probes {
        let (under_way, silent, answers) = (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
        Probes { at: Moment::FAR, asked: Moment::ORIGIN, under_way, silent, answers }
    }
}

impl Probes {
    /// When there is something to do.
    pub(super) fn next(&self) -> Moment {
        let due = self.under_way.values().map(|probe| probe.due).min();
        self.at.min(due.unwrap_or(Moment::FAR))
    }

    /// Sends the probes that are due.
    pub(super) fn send_out(&mut self, core: &Core, lifeline: &mut Option<Arc<dyn Engine>>) {
        let (down, doubted) = (core.outage.names_down(), core.outage.names_doubted());
        // A closed engine answers, but is not back.
        let nobody_asks = down.is_empty() && doubted.is_empty() && !core.outage.someone_waits();
        if nobody_asks || core.open().is_err() {
            *self = Probes { asked: self.asked, ..Probes::default() };
            return;
        }
        let now = core.world.now();
        let every = match (doubted.is_empty(), down.is_empty()) {
            (false, _) => IN_DOUBT.min(core.longest_silence() / LOOKS),
            (true, false) => WHILE_DOWN,
            (true, true) => WHILE_UP,
        };
        self.at = self.at.min(self.asked + every);
        if now < self.at {
            return;
        }
        let mut names = core.names_waited_for();
        let more = down.into_iter().chain(doubted);
        names.extend(more.map(|name| (core.engine.shard(&name), name)));
        self.asked = now;
        self.at = if names.is_empty() { Moment::FAR } else { now + every };
        self.silent.retain(|shard, _| names.contains_key(shard));
        for (shard, name) in names {
            let engine = own_way(core, lifeline);
            self.under_way.entry(shard).or_insert_with(|| Probe::new(core, engine, name));
        }
    }

    /// Handles the answers that have arrived, and notices those that are overdue. Returns whether there were any.
    pub(super) fn poll_answers(&mut self, core: &Core, cx: &mut Context<'_>) -> bool {
        let now = core.world.now();
        let mut changed = false;
        for (shard, mut probe) in std::mem::take(&mut self.under_way) {
            let down = core.outage.is_down(shard);
            let since = self.answers.get(&shard).filter(|_| probe.by_callers);
            let long_enough = since.is_some_and(|since| now >= *since + FOR_CALLERS);
            match Pin::new(&mut probe.step).poll(cx) {
                _ if long_enough => {
                    changed = true;
                    self.comes_back(core, shard);
                }
                Poll::Ready(answer) if !is_there(&answer) => {
                    changed = true;
                    if !probe.by_callers {
                        self.answers.remove(&shard);
                    }
                    match answer.map(drop) {
                        Err(error) if is_outage(&error) => {
                            self.is_silent(core, shard, &probe, &error, now);
                        }
                        // An engine that asks for time can be reached, but cannot be returned to yet.
                        Err(error) => {
                            self.silent.remove(&shard);
                            core.outage.is_there(shard, Some(error));
                        }
                        Ok(()) => {}
                    }
                }
                Poll::Ready(_) if down && !probe.by_callers => {
                    changed = true;
                    self.answers.entry(shard).or_insert(now);
                    let engine = &core.engine;
                    let again = Probe { by_callers: true, ..Probe::new(core, engine, probe.name) };
                    self.under_way.insert(shard, again);
                }
                Poll::Ready(_) => {
                    changed = true;
                    self.comes_back(core, shard);
                }
                Poll::Pending if now >= probe.sent + LONGEST_PATIENCE => changed = true,
                Poll::Pending => {
                    if now >= probe.due {
                        changed = true;
                        probe.due = now + core.longest_silence() / LOOKS;
                        self.is_silent(core, shard, &probe, &no_answer(), now);
                    }
                    self.under_way.insert(shard, probe);
                }
            }
        }
        changed
    }

    fn comes_back(&mut self, core: &Core, shard: u32) {
        self.silent.remove(&shard);
        self.answers.remove(&shard);
        core.comes_back(shard);
    }

    /// The shard is down if it has been silent for too long. The time between two checks counts only in part: if
    /// this process was stopped, the answer may have arrived meanwhile.
    fn is_silent(&mut self, core: &Core, shard: u32, probe: &Probe, error: &Error, now: Moment) {
        let longest = core.longest_silence();
        let begins = Silence { so_far: Duration::ZERO, looked: probe.sent };
        let silence = self.silent.entry(shard).or_insert(begins);
        silence.so_far += now.since(silence.looked).min(longest / LOOKS);
        silence.looked = now;
        if core.outage.is_down(shard) {
            return;
        }
        match silence.so_far >= longest {
            true => core.goes_down(&probe.name, error),
            // So that it is probed again soon.
            false => core.doubt(&probe.name),
        }
    }
}

impl Probe {
    fn new(core: &Core, engine: &Arc<dyn Engine>, name: Name) -> Probe {
        let sent = core.world.now();
        let step = engine.inspect(&Scope::Name(name.clone()));
        Probe { name, sent, due: sent + core.longest_silence() / LOOKS, step, by_callers: false }
    }
}

/// Whether the engine can be reached, no matter what it answered.
fn is_there(answer: &Result<Page>) -> bool {
    !matches!(answer, Err(error) if error.kind() == ErrorKind::Unavailable)
}
