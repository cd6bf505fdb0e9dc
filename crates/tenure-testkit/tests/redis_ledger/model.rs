//! The ledger's side: the rule as written in Rust, on one name.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{
    Broken, Claim, ClaimId, Details, Fence, Forgotten, Holder, Leave, Left, Moment, Note,
    OnceRecord, Outcome, Waiter,
};
use tenure::ledger::{self, Answer, Entry, KeepAnswer, Keeper, Ledger, Line, Process, Storage};

use super::said::{Millis, Said, Shown, Word};
use super::storage::ByProcess;

/// A step, with the numbers of one side.
#[derive(Clone, Debug)]
pub(crate) enum Request {
    Claim(Claim),
    Keep(Claim),
    Renew { id: ClaimId, fence: Fence, ttl: Duration },
    HandOver { id: ClaimId, fence: Fence, ttl: Duration, fences: u32, details: Arc<Details> },
    Leave(Leave),
    Break(Fence, Note),
    Forget(OnceRecord),
    Resize(u32),
}

/// The result of a step.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) said: Said,
    /// The pushes, and their receivers.
    pub(crate) words: Vec<(Process, ClaimId, Word)>,
    /// Some claims in line had ended, or could not be reached. The scripts deal with them when they come upon them,
    /// the ledger at once: until then, who is ahead and who comes next need not be the same.
    pub(crate) vague: bool,
    /// The asking claim is the next in line and was told when to look. Whether it heard that before it heard its
    /// place, and so could not know that it was meant, depends on the server.
    pub(crate) self_hint: bool,
    /// How often the step stopped at its bound.
    pub(crate) ticks: u32,
}

type Known = BTreeMap<(Process, ClaimId), Option<(u64, Fence)>>;

pub(crate) struct Model {
    pub(crate) line: Line<u64>,
    pub(crate) now: Millis,
    /// Processes that cannot be reached.
    pub(crate) deaf: BTreeSet<Process>,
    /// Processes that could not be reached, or let a hold run out, since they last asked.
    away: BTreeSet<Process>,
    /// A place has ended: the scripts do not sweep it away in every step, as the ledger does.
    stale: bool,
    /// The claims that the engine of each process knows, the tickets by which it finds them, and the
    /// highest fence when it last heard that they wait.
    known: Known,
    /// The latest moment until which it ever had something to remember.
    pub(crate) remembers: Millis,
}

impl Model {
    pub(crate) fn new(first: u64, now: Millis) -> Model {
        Model {
            line: Line::new(first),
            now,
            deaf: BTreeSet::new(),
            away: BTreeSet::new(),
            stale: false,
            known: BTreeMap::new(),
            remembers: 0,
        }
    }

    pub(crate) fn step(&mut self, request: &Request, process: Process) -> Came {
        self.forget_if_unused();
        let murky = self.is_murky();
        self.stale |= self.line.waiters().iter().any(|(it, _)| it.until <= moment(self.now));
        self.expect(request, process);
        let mut walk = Walk::default();
        let answer = self.ledger(request, process, &mut walk);
        self.answered(request, process, &answer);
        let said = self.said(request, answer, &walk.first);
        let Walk { words, ticks, self_hint, .. } = walk;
        let murky = murky || self.is_murky();
        self.remembers = self.remembers.max(millis(self.line.remembers_until()));
        self.forget_if_unused();
        Came { said, words, vague: murky || self.stale, self_hint, ticks }
    }

    /// An unused name is as good as new when it has nothing left to remember.
    fn forget_if_unused(&mut self) {
        self.stale &= !self.line.is_unused();
        if self.line.is_unused() && self.line.remembers_until() <= moment(self.now) {
            self.line.clear();
        }
    }

    fn is_murky(&self) -> bool {
        self.line.waiters().iter().any(|(entry, _)| self.away.contains(&entry.process))
    }

    fn ledger(&mut self, request: &Request, process: Process, walk: &mut Walk) -> Heard {
        let now = moment(self.now);
        let (deaf, known) = (&self.deaf, &mut self.known);
        let asker = match request {
            Request::Claim(claim) | Request::Keep(claim) => Some(claim.id),
            _ => None,
        };
        let mut say = |entry: &Entry, word: ledger::Word| {
            let reached = !deaf.contains(&entry.process);
            let is_hint = matches!(word, ledger::Word::LookAt(_));
            walk.self_hint |= is_hint && asker == Some(entry.id);
            if reached && let Some(word) = pushed(known, entry, word, now) {
                walk.words.push((entry.process, entry.id, word));
            }
            reached
        };
        let mut storage = ByProcess { line: &mut self.line, asker, away: &mut self.away };
        let mut ledger = Ledger::new(&mut storage, now, &mut say);
        let Ok(heard) = act(&mut ledger, request, process);
        let (mut more, mut ticks) = (ledger.more(), 0);
        let first = first_to_end(storage.line, now);
        while more {
            ticks += 1;
            let mut ledger = Ledger::new(&mut storage, now, &mut say);
            let Ok(()) = ledger.tick();
            more = ledger.more();
        }
        (walk.ticks, walk.first) = (ticks, first);
        // The asking claim stays in line only for this step.
        for process in &self.away {
            let Ok(()) = self.line.reach(*process, false);
        }
        heard
    }

    /// A claim that may wait is known from its first request.
    fn expect(&mut self, request: &Request, process: Process) {
        match request {
            Request::Claim(claim) if claim.may_wait => {
                self.known.entry((process, claim.id)).or_default();
            }
            Request::Keep(claim) => {
                self.known.entry((process, claim.id)).or_default();
            }
            Request::Leave(leave) => {
                self.known.remove(&(process, leave.id));
            }
            _ => {}
        }
    }

    /// Only a known claim can be told its place.
    fn answered(&mut self, request: &Request, process: Process, heard: &Heard) {
        let gone = match (request, heard) {
            (Request::Renew { id, fence, .. }, Heard::Answer(Answer::Gone(_)))
            | (Request::HandOver { id, fence, .. }, Heard::Kept(KeepAnswer::Gone(_))) => {
                Some((id, fence))
            }
            _ => None,
        };
        if let Some((id, fence)) = gone {
            // A hold that has ended is forgotten; a claim that waits again is not.
            if !matches!(self.known.get(&(process, *id)), Some(Some((_, floor))) if floor >= fence)
            {
                self.known.remove(&(process, *id));
            }
        }
        let (Request::Claim(claim) | Request::Keep(claim)) = request else { return };
        if matches!(request, Request::Claim(_)) && !claim.may_wait {
            return;
        }
        let Heard::Answer(answer) = heard else { return };
        match answer {
            Answer::Waiting { ticket, floor, .. } => {
                if let Some(known) = self.known.get_mut(&(process, claim.id)) {
                    *known = Some((ticket.get(), *floor));
                }
            }
            Answer::Granted { .. } => {}
            _ => {
                self.known.remove(&(process, claim.id));
            }
        }
    }

    fn said(&self, request: &Request, heard: Heard, first: &[Holder]) -> Said {
        let answer = match heard {
            Heard::Answer(answer) => answer,
            Heard::Kept(KeepAnswer::Held { remaining, first_life, waiting, fences }) => {
                let remaining = remaining.as_millis() as Millis;
                return Said::Kept {
                    remaining,
                    first_life,
                    waiting,
                    fences: (fences.next, fences.last),
                };
            }
            Heard::Kept(KeepAnswer::Gone(ended)) => return Said::Gone(Some(ended)),
            Heard::Left(Left::Released) => return Said::Released,
            Heard::Left(Left::Quit) => return Said::Quit,
            Heard::Left(Left::Gone(ended)) => return Said::Gone(Some(ended)),
            Heard::Broken(Broken::Done) | Heard::Resized(true) => return Said::Done,
            Heard::Broken(Broken::MovedOn) => return Said::MovedOn,
            Heard::Forgotten(Forgotten::Done) => return Said::Done,
            Heard::Forgotten(Forgotten::MovedOn) => return Said::MovedOn,
            Heard::Resized(false) => return Said::Conflict(None),
        };
        let renews = matches!(request, Request::Keep(_) | Request::Renew { .. });
        match answer {
            Answer::Granted { fence, remaining, first_life } => Said::Granted {
                fence: fence.get(),
                remaining: remaining.as_millis() as Millis,
                first_life,
            },
            Answer::Waiting { ticket, ahead, floor, next_end, held_up } => {
                let end = moment(self.now).until(next_end).as_millis() as Millis;
                let end = (next_end < Moment::FAR).then_some(end);
                // A delayed claim looks every two seconds for each claim ahead of it.
                let look = held_up.then(|| 2000 * Millis::from(ahead.min(10)));
                let look = look.map(|look| look - 1 - 5 * Millis::from(ahead.min(40)));
                let next_end = end.into_iter().chain(look).min();
                let (ticket, floor) = (ticket.get(), floor.get());
                Said::Waiting { ticket, ahead, floor, next_end, holders: first.to_vec() }
            }
            Answer::Conflict { capacity } if renews => {
                Said::Gone(Some(tenure::Ended::Conflict { capacity }))
            }
            Answer::Gone(ended) => Said::Gone(Some(ended)),
            _ if renews => Said::Gone(Some(tenure::Ended::Expired)),
            Answer::Conflict { capacity } => Said::Conflict(Some(capacity)),
            Answer::Busy => Said::Busy { holders: first.to_vec() },
            Answer::Full => Said::Full,
            Answer::Settled(outcome) => Said::Settled(outcome.to_vec()),
            Answer::Unsettled => Said::Unsettled,
            Answer::OtherContent => Said::OtherContent,
            Answer::Left => Said::Left,
            Answer::Exhausted => Said::Odd("exhausted".to_owned()),
        }
    }

    /// The name as it is, without ended claims and waiters that cannot be reached.
    pub(crate) fn show(&self) -> Shown {
        let now = moment(self.now);
        let lives = |(entry, _): &(Entry, _)| entry.until > now;
        let holders = self.line.holders().into_iter().filter(lives);
        let heard = |(entry, _): &(Entry, _)| !self.deaf.contains(&entry.process);
        let waiters = self.line.waiters().into_iter().filter(lives).filter(heard);
        let holders: Vec<_> = holders.map(|it| holder(it, now)).collect();
        let waiters: Vec<_> = waiters
            .map(|(entry, details)| Waiter {
                ticket: entry.ticket,
                weight: entry.weight,
                waited: now.since(entry.since),
                details,
            })
            .collect();
        if holders.is_empty() && waiters.is_empty() {
            return Shown::default();
        }
        let Ok(totals) = self.line.totals();
        Shown { capacity: totals.capacity, holders, waiters }
    }
}

enum Heard {
    Answer(Answer),
    Kept(KeepAnswer),
    Left(Left),
    Broken(Broken),
    Forgotten(Forgotten),
    Resized(bool),
}

fn act<W: FnMut(&Entry, ledger::Word) -> bool>(
    ledger: &mut Ledger<'_, ByProcess<'_>, W>,
    request: &Request,
    process: Process,
) -> Result<Heard, std::convert::Infallible> {
    Ok(match request {
        Request::Claim(claim) => Heard::Answer(ledger.claim(claim, process, true)?),
        Request::Keep(claim) => Heard::Answer(ledger.claim(claim, process, false)?),
        Request::Renew { id, fence, ttl } => Heard::Answer(ledger.renew(id, *fence, *ttl)?),
        Request::HandOver { id, fence, ttl, fences, details } => {
            // How many fences there are depends on the clock and the counter of the server.
            let fences = (*fences, u64::MAX);
            let (carrier, fence, ttl) = (*id, *fence, *ttl);
            Heard::Kept(ledger.keep(&Keeper { carrier, fence, ttl, fences, details })?)
        }
        Request::Leave(leave) => Heard::Left(ledger.leave(leave, process)?),
        Request::Break(fence, note) => Heard::Broken(ledger.break_hold(*fence, note)?),
        Request::Forget(seen) => {
            Heard::Forgotten(ledger.forget(seen.fence, seen.outcome.is_some())?)
        }
        Request::Resize(capacity) => Heard::Resized(ledger.resize(*capacity)?),
    })
}

/// What a claim receives of a message: a turn finds it by the ticket that its process knows.
fn pushed(known: &mut Known, entry: &Entry, word: ledger::Word, now: Moment) -> Option<Word> {
    let ticket = |spot: &Option<(u64, Fence)>| spot.map(|(ticket, _)| ticket);
    let is_known =
        known.get(&(entry.process, entry.id)).and_then(ticket) == Some(entry.ticket.get());
    let bytes = |outcome: Outcome| outcome.to_vec();
    match word {
        ledger::Word::Granted { fence, life, first_life } => {
            let (fence, life) = (fence.get(), life.as_millis() as Millis);
            is_known.then_some(Word::Granted { fence, life, first_life })
        }
        ledger::Word::LookAt(end) => {
            is_known.then(|| Word::LookAt(now.until(end).as_millis() as Millis))
        }
        ledger::Word::Ended(ended) => {
            known.remove(&(entry.process, entry.id));
            Some(Word::Ended(ended))
        }
        ledger::Word::Settled(outcome) => {
            known.remove(&(entry.process, entry.id));
            Some(Word::Settled(bytes(outcome)))
        }
        ledger::Word::AreYouThere => None,
        ledger::Word::LookAgain => is_known.then_some(Word::LookAgain),
    }
}

fn holder((entry, details): (Entry, Arc<Details>), now: Moment) -> Holder {
    let (held_for, remaining) = (now.since(entry.since), now.until(entry.until));
    Holder { fence: entry.fence(), weight: entry.weight, held_for, remaining, details }
}

/// All holders whose holds end first.
fn first_to_end(line: &Line<u64>, now: Moment) -> Vec<Holder> {
    let holders = line.holders();
    let first = holders.iter().map(|(entry, _)| entry.until).min();
    let those = holders.into_iter().filter(|(entry, _)| Some(entry.until) == first);
    those.map(|it| holder(it, now)).collect()
}

#[derive(Default)]
struct Walk {
    /// Among the holders at the time of the answer, those whose holds end first.
    first: Vec<Holder>,
    words: Vec<(Process, ClaimId, Word)>,
    self_hint: bool,
    ticks: u32,
}

pub(crate) fn moment(millis: Millis) -> Moment {
    Moment::from_nanos(millis * 1_000_000)
}

pub(crate) fn millis(moment: Moment) -> Millis {
    moment.as_nanos() / 1_000_000
}
