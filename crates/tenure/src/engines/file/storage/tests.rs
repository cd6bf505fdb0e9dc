//! Compares the storage in the file with the one in memory: the ledger takes the same random steps on both, and
//! after each of them every answer, every message and everything that can be asked must be the same.
//!
//! A statement that lacks a condition shows up here: names, spaces and processes share the tables, and each script
//! has several of them. `TENURE_SCRIPTS` sets the number of scripts, `TENURE_FIRST_SEED` the first seed.

mod script;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use rusqlite::Connection;

use self::script::Request;
use super::*;
use crate::engines::file::transaction::{Effects, remove_ended};
use crate::ledger::{Answer, KeepAnswer, Keeper, Ledger, Line, MOVES, Word};
use crate::model::claim::{Broken, Forgotten, Left};
use crate::model::name::Space;

type Memory = Line<Arc<AtomicU64>>;
type Words = Vec<(ClaimId, Word)>;
type Say<'a> = &'a mut dyn FnMut(&Entry, Word) -> bool;

/// The answer to a step.
#[derive(Debug, PartialEq)]
enum Heard {
    Answer(Answer),
    Kept(KeepAnswer),
    Left(Left),
    Broken(Broken),
    Forgotten(Forgotten),
    Resized(bool),
    Nothing,
}

/// The same names in both storages.
struct Both {
    db: Connection,
    numbers: Numbers,
    counter: Arc<AtomicU64>,
    lines: BTreeMap<Name, Memory>,
    now: Moment,
    deaf: BTreeSet<Process>,
}

impl Both {
    fn new(now: Moment) -> Both {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(sql::SCHEMA).unwrap();
        db.set_prepared_statement_cache_capacity(64);
        let (first, lines, deaf) = (1000, BTreeMap::new(), BTreeSet::new());
        let counter = Arc::new(AtomicU64::new(first));
        Both { db, numbers: Numbers { last: first }, counter, lines, now, deaf }
    }

    /// Makes one step on both, and compares everything after it.
    fn step(&mut self, name: &Name, request: &Request) -> Heard {
        let counter = self.counter.clone();
        let mut line = self.lines.remove(name).unwrap_or_else(|| Line::new(counter));
        let before = line.waiters();
        let (ours, our_words) = self.in_memory(&mut line, request);
        let (theirs, mut their_words, gap) = self.in_file(name, request);
        assert_eq!(theirs, ours, "the answer");
        let mut our_words = our_words;
        if matches!(request, Request::Resize(_)) {
            // The order in which claims that are too heavy are told does not matter.
            our_words.sort_by_key(|(id, _)| *id);
            their_words.sort_by_key(|(id, _)| *id);
        }
        assert_eq!(their_words, our_words, "what was said");
        let places: Vec<_> = before.iter().map(|(entry, _)| entry.ticket).collect();
        let given_up = places.iter().copied().filter(|ticket| !has_ticket(&line, *ticket)).max();
        // A claim that ended and returned in the same step was given up, too.
        assert!(gap >= given_up && gap.is_none_or(|gap| places.contains(&gap)), "{gap:?}");
        self.lines.insert(name.clone(), line);
        self.compare(name);
        ours
    }

    fn in_memory(&self, line: &mut Memory, request: &Request) -> (Heard, Words) {
        if let Request::ProcessDied(process) = request {
            for (entry, _) in line.holders().into_iter().chain(line.waiters()) {
                if entry.process == *process && entry.on_behalf {
                    let held = matches!(entry.state, State::Held { .. });
                    let state = if held { entry.state } else { State::Aside };
                    line.change(Entry { process: 0, state, ..entry }).unwrap();
                } else if entry.process == *process {
                    line.remove(&entry.id).unwrap();
                }
            }
        }
        if let Request::Detach(id) = request
            && let Some(entry @ Entry { state: State::Held { .. }, .. }) = line.find(id).unwrap()
        {
            line.change(Entry { process: 0, ..entry }).unwrap();
        }
        let Ok(done) = walk(line, self.now, &self.deaf, request);
        done
    }

    fn in_file(&mut self, name: &Name, request: &Request) -> (Heard, Words, Option<Ticket>) {
        if let Request::Detach(id) = request {
            let mut detach = self.db.prepare_cached(sql::DETACH_CLAIM).unwrap();
            detach.execute(params![id.to_bytes()]).unwrap();
        }
        let mut rows = Rows::load(&self.db, &mut self.numbers, name).unwrap();
        if let Request::ProcessDied(process) = request {
            let mut effects = Effects::default();
            remove_ended(&mut rows, *process, &mut effects).unwrap();
        }
        let (heard, words) = walk(&mut rows, self.now, &self.deaf, request).unwrap();
        let gap = rows.gap;
        rows.save(self.now).unwrap();
        (heard, words, gap)
    }

    /// A step whose result is compared later.
    fn step_unseen(&mut self, name: &Name, request: &Request) {
        let counter = self.counter.clone();
        let mut line = self.lines.remove(name).unwrap_or_else(|| Line::new(counter));
        let (ours, our_words) = self.in_memory(&mut line, request);
        let (theirs, their_words, _) = self.in_file(name, request);
        assert_eq!((theirs, their_words), (ours, our_words));
        self.lines.insert(name.clone(), line);
    }

    /// Compares everything that can be asked about the name, and checks that its neighbours have not changed.
    fn compare(&mut self, name: &Name) {
        for line in self.lines.values() {
            assert_eq!(line.last_number().unwrap(), self.numbers.last, "the last number");
        }
        self.forget(name);
        for (each, line) in &self.lines {
            let rows = Rows::load(&self.db, &mut self.numbers, each).unwrap();
            compare_totals(&rows, line);
            compare_claims(&rows, line, self.now);
            if each == name {
                compare_places(&rows, line);
                compare_clients(&rows, line);
            }
        }
    }

    /// A name that nobody uses and that has nothing to remember must have no row.
    fn forget(&mut self, name: &Name) {
        let Some(line) = self.lines.get_mut(name) else { return };
        let rows = Rows::load(&self.db, &mut self.numbers, name).unwrap();
        let remembers = line.remembers_until();
        if rows.id.is_none() {
            assert!(line.is_unused() && remembers <= self.now, "it was forgotten too early");
            line.clear();
        } else if line.is_unused() && remembers <= self.now {
            // A trace that was replaced may have lasted longer.
            assert!(rows.known.traces_until > self.now, "it has nothing to remember");
        }
    }

    /// After the longest memory nothing must be left.
    fn end(&mut self) {
        self.now = self.now + Duration::from_secs(200_000);
        let names: Vec<_> = self.lines.keys().cloned().collect();
        for name in names {
            self.step(&name, &Request::Tick);
        }
        let count = |table: &str| -> i64 {
            let count = format!("SELECT count(*) FROM {table}");
            self.db.query_row(&count, [], |row| row.get(0)).unwrap()
        };
        assert_eq!((count("claim"), count("name")), (0, 0), "claims, names");
    }
}

fn walk<S: Storage>(
    storage: &mut S,
    now: Moment,
    deaf: &BTreeSet<Process>,
    request: &Request,
) -> Result<(Heard, Words), S::Error> {
    let mut words = Vec::new();
    let mut say = |entry: &Entry, word: Word| {
        let heard = !deaf.contains(&entry.process);
        if heard {
            words.push((entry.id, word));
        }
        heard
    };
    let mut ledger = Ledger::new(storage, now, &mut say as Say<'_>);
    let heard = match request {
        Request::Claim(claim, process, in_hand) => {
            Heard::Answer(ledger.claim(claim, *process, *in_hand)?)
        }
        Request::Renew(id, fence, ttl) => Heard::Answer(ledger.renew(id, *fence, *ttl)?),
        Request::Keep { id, fence, ttl, fences, details } => {
            let (carrier, fence, ttl, fences) = (*id, *fence, *ttl, *fences);
            Heard::Kept(ledger.keep(&Keeper { carrier, fence, ttl, fences, details })?)
        }
        Request::Leave(leave, process) => Heard::Left(ledger.leave(leave, *process)?),
        Request::Break(fence, note) => Heard::Broken(ledger.break_hold(*fence, note)?),
        Request::Forget(fence, settled) => Heard::Forgotten(ledger.forget(*fence, *settled)?),
        Request::Resize(capacity) => Heard::Resized(ledger.resize(*capacity)?),
        Request::Tick | Request::ProcessDied(_) => {
            ledger.tick()?;
            Heard::Nothing
        }
        Request::Detach(_) => Heard::Nothing,
    };
    let mut more = ledger.more();
    while more {
        let mut ledger = Ledger::new(storage, now, &mut say as Say<'_>);
        ledger.tick()?;
        more = ledger.more();
    }
    Ok((heard, words))
}

fn has_ticket(line: &Memory, ticket: Ticket) -> bool {
    let all = line.holders().into_iter().chain(line.waiters());
    all.map(|(entry, _)| entry.ticket).any(|known| known == ticket)
}

fn compare_totals(rows: &Rows<'_>, line: &Memory) {
    let (ours, theirs) = (line.totals().unwrap(), rows.totals().unwrap());
    assert_eq!(theirs.held, ours.held, "units held");
    assert_eq!(theirs.waiting, ours.waiting, "claims that wait");
    assert_eq!(theirs.fixed, ours.fixed, "claims that are fixed");
    if rows.id.is_some() {
        assert_eq!((theirs.capacity, theirs.resized_until), (ours.capacity, ours.resized_until));
    }
    assert_eq!(rows.next_end().unwrap(), line.next_end().unwrap(), "the next end");
    let first = rows.first_to_end().unwrap().map(|(entry, _)| entry.until);
    assert_eq!(first, line.next_end().unwrap(), "the first to end");
    let ends = line.holders().into_iter().chain(line.waiters()).map(|(entry, _)| entry.until);
    let ends = ends.min().unwrap_or(Moment::FAR);
    assert!(rows.known.quiet_until <= ends, "something ends while it should be quiet");
}

/// Compares the places, by every question that the ledger and the transaction ask.
fn compare_places(rows: &Rows<'_>, line: &Memory) {
    assert_eq!(rows.head().unwrap(), line.head().unwrap(), "the head");
    let tickets = line.waiters().into_iter().map(|(entry, _)| entry.ticket.get());
    for ticket in tickets.flat_map(|ticket| [ticket - 1, ticket, ticket + 1]).map(Ticket::new) {
        assert_eq!(rows.ahead(ticket).unwrap(), line.ahead(ticket).unwrap(), "ahead of {ticket}");
        let mut behind = waiting(line).into_iter().filter(|entry| entry.ticket > ticket);
        assert_eq!(rows.after(ticket).unwrap(), behind.next(), "right behind {ticket}");
    }
    for weight in 0..6 {
        let ours = ids(line.heavier(weight, 1 << 20).unwrap());
        let theirs = ids(rows.heavier(weight, 1 << 20).unwrap());
        assert_eq!(theirs, ours, "heavier than {weight}");
        assert_eq!(rows.heavier(weight, 1).unwrap().len(), ours.len().min(1));
    }
}

fn compare_claims(rows: &Rows<'_>, line: &Memory, now: Moment) {
    let ours: Vec<_> = line.holders().into_iter().chain(line.waiters()).collect();
    let theirs = match rows.id {
        Some(id) => {
            let mut select = rows.db.prepare_cached(sql::SHOWN).unwrap();
            let all = select.query_map([id], read_shown).unwrap();
            all.collect::<SqlResult<Vec<_>>>().unwrap()
        }
        None => Vec::new(),
    };
    assert_eq!(theirs, ours, "everyone who is there");
    for id in script::some_ids(now) {
        assert_eq!(rows.find(&id).unwrap(), line.find(&id).unwrap(), "the claim {id}");
        let (theirs, ours) = (rows.traced(&id, now).unwrap(), line.traced(&id, now).unwrap());
        assert_eq!(theirs, ours, "the trace of {id}");
    }
    let fences = ours.iter().map(|(entry, _)| entry.fence().get());
    for fence in fences.flat_map(|fence| [fence, fence + 1]).chain([0]).map(Fence::new) {
        let theirs = rows.holding(fence).unwrap();
        assert_eq!(theirs, line.holding(fence).unwrap(), "the hold with {fence}");
    }
    assert_eq!(rows.record(now).unwrap(), line.record(now).unwrap(), "the record");
}

fn compare_clients(rows: &Rows<'_>, line: &Memory) {
    let all: Vec<_> = line.holders().into_iter().chain(line.waiters()).map(|(it, _)| it).collect();
    let clients = |all: &mut dyn Iterator<Item = Process>| all.collect::<BTreeSet<_>>();
    let theirs = clients(&mut rows.clients().unwrap().into_iter());
    assert_eq!(theirs, clients(&mut all.iter().map(|it| it.process)), "the clients");
    for process in script::PROCESSES {
        let own = all.iter().filter(|it| it.process == process);
        let theirs = rows.claims_of(process).unwrap();
        assert_eq!(sorted(theirs), sorted(own.map(|it| it.id).collect()), "claims of {process}");
        let mut expected = clients(&mut line.holders().iter().map(|(it, _)| it.process));
        let places = line.waiters();
        let foremost = places.iter().map(|(it, _)| it).find(|it| it.process == process);
        let before = match foremost {
            Some(foremost) => waiting(line).into_iter().rfind(|it| it.ticket < foremost.ticket),
            None => line.head().unwrap(),
        };
        expected.extend(before.map(|it| it.process));
        let theirs = clients(&mut rows.in_the_way_of(process).unwrap().into_iter());
        assert_eq!(theirs, expected, "in the way of {process}");
    }
}

/// The waiting claims that are not set aside, by ticket.
fn waiting(line: &Memory) -> Vec<Entry> {
    let all = line.waiters().into_iter().map(|(entry, _)| entry);
    all.filter(|entry| entry.state == State::Waiting).collect()
}

fn ids(entries: Vec<Entry>) -> Vec<ClaimId> {
    sorted(entries.into_iter().map(|entry| entry.id).collect())
}

fn sorted<T: Ord>(mut all: Vec<T>) -> Vec<T> {
    all.sort();
    all
}

fn number(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

#[test]
fn every_script_behaves_as_it_does_in_memory() {
    let first = number("TENURE_FIRST_SEED", 0);
    let mut met = BTreeMap::<&str, u64>::new();
    let count = number("TENURE_SCRIPTS", 200);
    for seed in first..first + count {
        let play = std::panic::AssertUnwindSafe(|| script::play(seed, &mut met));
        if let Err(panic) = std::panic::catch_unwind(play) {
            // The steps are on stderr, before the panic.
            panic!("seed {seed}: {}", script::said(&*panic));
        }
    }
    if count >= 200 {
        let rare: Vec<_> =
            script::EVERYTHING.iter().filter(|it| met.get(**it) < Some(&5)).collect();
        assert_eq!(rare, Vec::<&&str>::new(), "too rarely met: {met:?}");
    }
}

/// More claims than one step can end, admit or refuse.
#[test]
fn a_crowd_moves_on_in_several_steps() {
    let mut both = Both::new(script::BEGIN);
    let name = Name::new(Space::Lock, "crowd").unwrap();
    let crowd = MOVES * 2 + 5;
    for number in 0..crowd * 2 {
        let claim = script::one_of_a_crowd(&name, number, crowd);
        both.step_unseen(&name, &Request::Claim(claim, 1 + u64::from(number % 3), true));
    }
    both.compare(&name);
    both.now = both.now + Duration::from_secs(31);
    // All holds have ended, and all waiting claims are admitted or set aside.
    both.deaf.insert(2);
    both.step(&name, &Request::Tick);
    both.deaf.clear();
    both.step(&name, &Request::ProcessDied(1));
    both.step(&name, &Request::Resize(crowd * 2));
    both.end();
}
