//! One transaction: steps of the ledger on the names in the file, and their messages to others.
//!
//! Nothing is sent before the transaction is committed; until then it only asks who can be reached.

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, params};

use super::host::{Identity, Life, wall_micros};
use super::messages::Message;
use super::rows::{moment, read_id, read_shown, space_number, space_of};
use super::sockets::{Reach, Sockets};
use super::statements as sql;
use super::storage::{Numbers, Rows, SqlResult};
use crate::engine::{Page, Scope, View};
use crate::engines::convert::{
    Limits, holder, kept, record as record_of, renewed, verdict, waiter,
};
use crate::ledger::{Answer, Entry, Keeper, Ledger, Process, State, Storage, Word};
use crate::model::claim::{
    Broken, Claim, ClaimId, FIRST_LIFE, Fence, Forgotten, Keep, Kept, Leave, Left, Note,
    OnceRecord, Renewal, Renewed, Verdict,
};
use crate::model::error::Result;
use crate::model::moment::Moment;
use crate::model::name::Name;

pub(super) struct Transaction<'a> {
    pub(super) db: &'a Connection,
    pub(super) sockets: &'a Sockets,
    pub(super) numbers: Numbers,
    pub(super) now: Moment,
    /// This client.
    pub(super) own: Process,
    pub(super) processes: ClientProcesses,
    /// Whether a client is watched already.
    pub(super) watched: &'a dyn Fn(Process) -> bool,
    pub(super) effects: Effects,
    pub(super) reach: Reach,
}

/// The processes of a client: it is gone when all of them are.
#[derive(Clone, Copy, Debug)]
pub(super) struct ClientProcesses {
    pub(super) process: Identity,
    pub(super) guard: Option<Identity>,
}

/// What to do once the transaction is committed.
#[derive(Default)]
pub(super) struct Effects {
    /// The messages, and the clients that they are for.
    pub(super) said: Vec<(Process, Message)>,
    /// Clients to watch from now on.
    pub(super) watch: Vec<(Process, OwnedFd)>,
    /// Clients that have ended.
    pub(super) removed: Vec<Process>,
    /// The names in whose lines a waiter was passed over, once for each.
    pub(super) passed_over: Vec<Name>,
    /// A once was started or settled, or someone is about to be told that it was. This must be on the disk before
    /// anyone acts on it, or after a power cut it would be done twice.
    pub(super) must_last: bool,
}

type Say<'a> = &'a mut dyn FnMut(&Entry, Word) -> bool;
type FileLedger<'l, 'a> = Ledger<'l, Rows<'a>, Say<'l>>;

/// How often the file is swept.
pub(super) const SWEEP_EVERY: Duration = Duration::from_secs(60);
/// The largest number of rows that one sweep looks at.
const SWEPT: u32 = 1000;

/// Removes the claims of an ended client from a line. Those that it made for others stay, without a process: a
/// place is set aside until another one asks for it.
pub(super) fn remove_ended(
    rows: &mut Rows<'_>,
    gone: Process,
    effects: &mut Effects,
) -> SqlResult<()> {
    for id in rows.claims_of(gone)? {
        let found = rows.find(&id)?;
        if let Some(entry) = found.filter(|entry| entry.on_behalf) {
            let held = matches!(entry.state, State::Held { .. });
            let state = if held { entry.state } else { State::Aside };
            rows.change(Entry { process: 0, state, ..entry })?;
            continue;
        }
        if found.is_some_and(|entry| !matches!(entry.state, State::Held { .. })) {
            effects.passed_over.push(rows.name.clone());
        }
        rows.remove(&id)?;
    }
    Ok(())
}

impl Transaction<'_> {
    /// Makes one step on a name, without the claims of a client that is gone. Returns what the caller wants to
    /// see after it.
    fn step<A, T>(
        &mut self,
        name: &Name,
        gone: Option<Process>,
        act: impl FnOnce(&mut FileLedger<'_, '_>) -> SqlResult<A>,
        see: impl FnOnce(A, &Rows<'_>) -> SqlResult<T>,
    ) -> SqlResult<T> {
        let Transaction { db, sockets, numbers, now, own, effects, reach, .. } = self;
        let mut rows = Rows::load(db, numbers, name)?;
        if let Some(gone) = gone {
            remove_ended(&mut rows, gone, effects)?;
        }
        let first = effects.said.len();
        let mut granted = None;
        let mut settled = false;
        let mut say = |entry: &Entry, word: Word| {
            settled |= matches!(word, Word::Settled(_));
            let reached =
                entry.process == *own || entry.process != 0 && reach.of(entry.process, sockets);
            if reached && word != Word::AreYouThere {
                if matches!(word, Word::Granted { .. }) {
                    granted = Some((entry.process, entry.weight));
                }
                let said = Message { name: name.clone(), id: entry.id, word, holder: 0 };
                effects.said.push((entry.process, said));
            } else if matches!(word, Word::Granted { .. }) {
                effects.passed_over.push(name.clone());
            }
            reached
        };
        let mut ledger = Ledger::new(&mut rows, *now, &mut say as Say<'_>);
        let answer = act(&mut ledger)?;
        let mut more = ledger.more();
        while more {
            let mut ledger = Ledger::new(&mut rows, *now, &mut say as Say<'_>);
            ledger.tick()?;
            more = ledger.more();
        }
        // The claim behind a place that was given up must now watch those before it.
        let mut apart = 0;
        if let Some(gap) = rows.gap
            && let Some(next) = rows.after(gap)?
            && let Some(end) = rows.next_end()?
            && say(&next, Word::LookAt(end))
        {
            apart = 1;
        }
        let seen = see(answer, &rows)?;
        if let Some((holder, weight)) = granted
            && weight == rows.totals()?.held
        {
            // Not for the claim behind the gap: it has more to watch than the holder.
            let last = effects.said.len() - apart;
            effects.said[first..last].iter_mut().for_each(|(_, said)| said.holder = holder);
        }
        effects.must_last |= settled || rows.changes_record();
        rows.save(*now)?;
        Ok(seen)
    }

    pub(super) fn claim(&mut self, claim: &Claim, in_hand: bool) -> SqlResult<Result<Verdict>> {
        self.ask(claim, in_hand, |answer, claim, now, first| {
            verdict(answer, Limits::of(claim), now, || first)
        })
    }

    fn renew_place(&mut self, claim: &Claim) -> SqlResult<Renewed> {
        self.ask(claim, false, |answer, _, now, first| renewed(answer, now, || first))
    }

    /// Makes a claim, and repeats it for as long as a client in its way turns out to be gone.
    fn ask<T>(
        &mut self,
        claim: &Claim,
        in_hand: bool,
        say: impl Fn(Answer, &Claim, Moment, Option<crate::model::claim::Holder>) -> T,
    ) -> SqlResult<T> {
        let (own, now) = (self.own, self.now);
        loop {
            let act = |ledger: &mut FileLedger<'_, '_>| ledger.claim(claim, own, in_hand);
            let mut tells = false;
            let (said, in_the_way) = self.step(&claim.name, None, act, |answer, rows| {
                tells = match answer {
                    Answer::Settled(_) | Answer::Unsettled => true,
                    Answer::Granted { .. } => claim.once.is_some(),
                    _ => false,
                };
                let in_the_way = match answer {
                    Answer::Waiting { .. } | Answer::Busy => rows.in_the_way_of(own)?,
                    Answer::Conflict { .. } | Answer::Full => rows.clients()?,
                    _ => return Ok((say(answer, claim, now, None), Vec::new())),
                };
                let first = rows.first_to_end()?.map(|found| holder(found, now));
                Ok((say(answer, claim, now, first), in_the_way))
            })?;
            // The process that wrote it may still be syncing, or was killed before it did.
            self.effects.must_last |= tells;
            if !self.remove_ended(in_the_way, true)? {
                return Ok(said);
            }
        }
    }

    pub(super) fn renew(&mut self, renewal: &Renewal) -> SqlResult<Renewed> {
        let now = self.now;
        match renewal {
            Renewal::Place(claim) => self.renew_place(claim),
            Renewal::Hold { name, id, fence, ttl } => {
                let act = |ledger: &mut FileLedger<'_, '_>| ledger.renew(id, *fence, *ttl);
                self.step(name, None, act, |answer, _| Ok(renewed(answer, now, || None)))
            }
        }
    }

    /// Renews a hold that its process hands over. Fences are bounded by the wall clock, at which the numbers begin
    /// again if a power cut takes them back.
    pub(super) fn keep(&mut self, keep: &Keep) -> SqlResult<Kept> {
        let now = self.now;
        let (carrier, fence, ttl, details) = (keep.id, keep.fence, keep.ttl, &keep.details);
        let keeper = Keeper { carrier, fence, ttl, fences: (keep.fences, wall_micros()), details };
        let act = |ledger: &mut FileLedger<'_, '_>| ledger.keep(&keeper);
        self.step(&keep.name, None, act, |answer, _| Ok(kept(answer, fence, now)))
    }

    pub(super) fn leave(&mut self, leave: &Leave) -> SqlResult<Left> {
        let own = self.own;
        self.step(&leave.name, None, |ledger| ledger.leave(leave, own), |left, _| Ok(left))
    }

    pub(super) fn resize(&mut self, name: &Name, capacity: u32) -> SqlResult<Result<()>> {
        let done = self.step(name, None, |ledger| ledger.resize(capacity), |done, _| Ok(done))?;
        Ok(if done { Ok(()) } else { Err(Claim::capacity_is_fixed()) })
    }

    pub(super) fn break_hold(
        &mut self,
        name: &Name,
        fence: Fence,
        note: &Note,
    ) -> SqlResult<Broken> {
        self.step(name, None, |ledger| ledger.break_hold(fence, note), |done, _| Ok(done))
    }

    pub(super) fn forget(&mut self, name: &Name, seen: &OnceRecord) -> SqlResult<Forgotten> {
        let settled = seen.outcome.is_some();
        self.step(name, None, |ledger| ledger.forget(seen.fence, settled), |done, _| Ok(done))
    }

    /// The hold continues without this client.
    pub(super) fn detach(&mut self, id: &ClaimId) -> SqlResult<()> {
        self.db.prepare_cached(sql::DETACH_CLAIM)?.execute(params![id.to_bytes()]).map(drop)
    }

    /// The clients in the way of one of this client's places, and those that share its holds.
    pub(super) fn in_the_way(&mut self) -> SqlResult<BTreeSet<Process>> {
        let mut all = BTreeSet::new();
        for name in self.names_of(self.own)? {
            let rows = Rows::load(self.db, &mut self.numbers, &name)?;
            all.extend(rows.in_the_way_of(self.own)?);
        }
        Ok(all)
    }

    /// Checks again which clients are in the way of this client's foremost place.
    pub(super) fn look_around(&mut self, name: &Name) -> SqlResult<()> {
        let in_the_way = Rows::load(self.db, &mut self.numbers, name)?.in_the_way_of(self.own)?;
        self.remove_ended(in_the_way, true).map(drop)
    }

    /// Removes clients that are gone, and returns whether there were any. Watches the others.
    fn remove_ended(&mut self, clients: Vec<Process>, watch: bool) -> SqlResult<bool> {
        let mut any = false;
        for number in clients {
            let is_watched = |number| {
                let watch = &self.effects.watch;
                (self.watched)(number) || watch.iter().any(|(known, _)| *known == number)
            };
            if number == 0 || number == self.own || watch && is_watched(number) {
                continue;
            }
            match self.life_of(number)? {
                Some(Life::Ended) => {
                    self.end_claims_of(number)?;
                    any = true;
                }
                Some(Life::Lives(descriptor)) if watch => {
                    self.effects.watch.push((number, descriptor));
                }
                Some(Life::Lives(_) | Life::Unseen) | None => {}
            }
        }
        Ok(any)
    }

    fn client(&self, number: Process) -> SqlResult<Option<ClientProcesses>> {
        let mut select = self.db.prepare_cached(sql::PROCESS)?;
        let found = select.query_row([number as i64], |row| {
            let space = row.get(2)?;
            let process = Identity { pid: row.get(0)?, start: row.get(1)?, space };
            let guard: (Option<i32>, Option<i64>) = (row.get(3)?, row.get(4)?);
            let guard = guard.0.zip(guard.1).map(|(pid, start)| Identity { pid, start, space });
            Ok(ClientProcesses { process, guard })
        });
        found.optional()
    }

    /// Whether a client is alive; `None` if it is not known.
    pub(super) fn life_of(&self, number: Process) -> SqlResult<Option<Life>> {
        let client = self.client(number)?;
        Ok(client.map(|client| client.look(self.processes.process.space)))
    }

    /// A process of a client has ended, and with it the client, unless it has another process.
    ///
    /// It may have been killed after a step that gave this client a turn, and before it sent the message. So claims
    /// that could have missed their turn ask.
    pub(super) fn look_after(&mut self, number: Process) -> SqlResult<()> {
        self.remove_ended(vec![number], true)?;
        let since = moment(self.now - FIRST_LIFE);
        let granted = self.claims(sql::OWN_GRANTS_SINCE, params![self.own as i64, since])?;
        for (name, id) in granted {
            let said = Message { name, id, word: Word::LookAgain, holder: 0 };
            self.effects.said.push((self.own, said));
        }
        Ok(())
    }

    /// Ends all claims of a client whose process is gone, and serves the next ones.
    fn end_claims_of(&mut self, number: Process) -> SqlResult<()> {
        for name in self.names_of(number)? {
            self.step(&name, Some(number), |ledger| ledger.tick(), |(), _| Ok(()))?;
        }
        self.db.prepare_cached(sql::REMOVE_PROCESS)?.execute([number as i64])?;
        self.effects.removed.push(number);
        Ok(())
    }

    fn names_of(&self, number: Process) -> SqlResult<Vec<Name>> {
        let mut select = self.db.prepare_cached(sql::NAMES_OF_PROCESS)?;
        let found = select.query_map([number as i64], |row| {
            let (space, text): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok(Name::unchecked(space_of(space), &text))
        })?;
        found.collect()
    }

    /// Removes what nobody asks for any more: claims that have ended, traces, names, clients. Done once a minute
    /// by any client.
    pub(super) fn sweep_now_and_then(&mut self) -> SqlResult<()> {
        let now = moment(self.now);
        let since = now - SWEEP_EVERY.as_nanos() as i64 + 1;
        if self.db.prepare_cached(sql::SWEEP)?.execute([now, since])? == 0 {
            return Ok(());
        }
        let clients: Vec<i64> = {
            let mut select = self.db.prepare_cached(sql::PROCESSES)?;
            select.query_map([], |row| row.get(0))?.collect::<SqlResult<_>>()?
        };
        self.remove_ended(clients.into_iter().map(|number| number as Process).collect(), false)?;
        let names: Vec<(i64, String)> = {
            let mut select = self.db.prepare_cached(sql::NAMES_WITH_ENDED_CLAIMS)?;
            let found = select.query_map(params![now, SWEPT], |row| Ok((row.get(0)?, row.get(1)?)));
            found?.collect::<SqlResult<_>>()?
        };
        for (space, text) in names {
            let name = Name::unchecked(space_of(space), &text);
            self.step(&name, None, |ledger| ledger.tick(), |(), _| Ok(()))?;
        }
        self.sockets.clean();
        self.db.prepare_cached(sql::REMOVE_OLD_TRACES)?.execute([now])?;
        self.db.prepare_cached(sql::REMOVE_FORGOTTEN_NAMES)?.execute([now]).map(drop)
    }

    pub(super) fn inspect(&mut self, scope: &Scope) -> SqlResult<Page> {
        match scope {
            Scope::Name(name) => {
                let view = self.view(name)?;
                // A caller that learns the outcome of a once acts on it.
                self.effects.must_last |= view.as_ref().is_some_and(|view| view.record.is_some());
                Ok(Page { views: view.into_iter().collect(), more: false })
            }
            Scope::Prefix { space, prefix, after, limit } => {
                let after = after.as_ref().map_or("", Name::as_str);
                let names: Vec<String> = {
                    let mut select = self.db.prepare_cached(sql::USED_NAMES)?;
                    let (space, room) = (space_number(*space), *limit as i64 + 1);
                    let values = params![space, prefix, after, text_after(prefix), room];
                    select.query_map(values, |row| row.get(0))?.collect::<SqlResult<_>>()?
                };
                let more = names.len() > *limit;
                let mut views = Vec::new();
                for text in names.iter().take(*limit) {
                    let view = self.view(&Name::unchecked(*space, text))?;
                    let used = view.filter(View::is_used);
                    views.extend(used.map(|view| View { record: None, ..view }));
                }
                Ok(Page { views, more })
            }
        }
    }

    fn view(&mut self, name: &Name) -> SqlResult<Option<View>> {
        loop {
            let now = self.now;
            let rows = Rows::load(self.db, &mut self.numbers, name)?;
            let (Some(id), capacity) = (rows.id, rows.totals()?.capacity) else { return Ok(None) };
            let record = rows.record(now)?.map(|known| record_of(known, now));
            let mut select = self.db.prepare_cached(sql::SHOWN)?;
            let shown = select.query_map([id], read_shown)?.collect::<SqlResult<Vec<_>>>()?;
            let clients = rows.clients()?;
            // Clients that are gone are removed here, rather than shown.
            if self.remove_ended(clients, false)? {
                continue;
            }
            let live = shown.into_iter().filter(|(entry, _)| entry.until > now);
            let held = |(entry, _): &(Entry, _)| matches!(entry.state, State::Held { .. });
            let (holders, waiters): (Vec<_>, Vec<_>) = live.partition(held);
            let holders = holders.into_iter().map(|found| holder(found, now)).collect();
            let waiters = waiters.into_iter().map(|found| waiter(found, now)).collect();
            let view = View { name: name.clone(), capacity, holders, waiters, record };
            return Ok((view.is_used() || view.record.is_some()).then_some(view));
        }
    }

    /// Registers this client, so that others can tell whether it is alive.
    pub(super) fn register(&mut self) -> SqlResult<()> {
        let ClientProcesses { process: Identity { pid, start, space }, guard } = self.processes;
        let mut insert = self.db.prepare_cached(sql::ADD_PROCESS)?;
        let (guard_pid, guard_start) =
            (guard.map(|guard| guard.pid), guard.map(|guard| guard.start));
        let values = params![self.own as i64, pid, start, space, guard_pid, guard_start];
        insert.execute(values).map(drop)
    }

    /// Removes this client from the list, unless it leaves something behind that must end with it.
    pub(super) fn sign_off(&mut self) -> SqlResult<()> {
        let mut select = self.db.prepare_cached(sql::PROCESS_HAS_CLAIMS)?;
        if !select.exists([self.own as i64])? {
            self.db.prepare_cached(sql::REMOVE_PROCESS)?.execute([self.own as i64])?;
        }
        Ok(())
    }

    /// The claims of this client, for the case that the file is gone.
    pub(super) fn own_claims(&self) -> SqlResult<Vec<(Name, ClaimId)>> {
        self.claims(sql::OWN_CLAIMS, [self.own as i64])
    }

    fn claims(&self, of: &str, values: impl rusqlite::Params) -> SqlResult<Vec<(Name, ClaimId)>> {
        let mut select = self.db.prepare_cached(of)?;
        let found = select.query_map(values, |row| {
            let (space, text): (i64, String) = (row.get(0)?, row.get(1)?);
            Ok((Name::unchecked(space_of(space), &text), read_id(row, 2)?))
        });
        found?.collect()
    }
}

impl ClientProcesses {
    fn look(&self, own_space: i64) -> Life {
        match (self.process.look(own_space), self.guard) {
            (Life::Ended, Some(guard)) => guard.look(own_space),
            (life, _) => life,
        }
    }
}

/// The first text, in byte order, after all texts that begin with `prefix`.
fn text_after(prefix: &str) -> Option<String> {
    let mut chars: Vec<char> = prefix.chars().collect();
    while let Some(last) = chars.pop() {
        // The next scalar value, which skips the surrogates.
        let next =
            if last == '\u{D7FF}' { Some('\u{E000}') } else { char::from_u32(last as u32 + 1) };
        if let Some(next) = next {
            chars.push(next);
            return Some(chars.into_iter().collect());
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::text_after;

    #[test]
    fn a_prefix_ends_where_the_next_text_begins() {
        assert_eq!(text_after("wallet:"), Some("wallet;".into()));
        assert_eq!(text_after("a\u{D7FF}"), Some("a\u{E000}".into()));
        assert_eq!(text_after("a\u{10FFFF}"), Some("b".into()));
        assert_eq!(text_after("\u{10FFFF}"), None);
        assert_eq!(text_after(""), None);
    }
}
