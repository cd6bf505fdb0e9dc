//! One name with a few claimants, everything that can happen to it, and when two such are the same.

use std::time::Duration;

use tenure::engine::{
    Broken, Claim, ClaimId, Ended, Fence, Leave, Left, Moment, Name, Note, PLACE_LIFE, Space,
    Ticket,
};
use tenure::ledger::{Answer, Entry, LEFT_LIFE, Ledger, Process, State, Storage, Totals, Word};

use super::action::Action;
use super::faulty_storage::{Fault, FaultyStorage};

/// Time passes in whole seconds, so a first life has two of them and a ttl three.
pub(crate) const SECOND: Duration = Duration::from_secs(1);
pub(crate) const TTL: Duration = Duration::from_secs(3);
const MOST: usize = 4;

/// The setting to explore.
#[derive(Clone, Copy)]
pub(crate) struct Setting {
    pub(crate) name: &'static str,
    /// The capacity that every claim states.
    pub(crate) capacity: u32,
    /// Units that each claimant asks for.
    pub(crate) weights: &'static [u32],
    /// The process of each claimant.
    pub(crate) processes: [Process; MOST],
    /// Capacities that an operator may set.
    pub(crate) resizes: &'static [u32],
    /// Whether claimants can become unreachable.
    pub(crate) deaf: bool,
    /// Whether claimants leave in doubt, and their late duplicates arrive.
    pub(crate) doubt: bool,
    /// Whether an operator breaks holds.
    pub(crate) breaks: bool,
}

/// The answer of a step, if it was one.
#[derive(Clone, PartialEq, Debug)]
pub(crate) enum Reply {
    Nothing,
    Looked,
    Claimed(Answer),
    Renewed(Answer),
    Left(Left),
    Broken(Broken),
}

/// The result of an action.
pub(crate) struct Done {
    pub(crate) reply: Reply,
    /// Whom the step told what, and whether that was heard.
    pub(crate) said: Vec<(Entry, Word, bool)>,
}

/// A claimant, and what the explorer knows of it.
#[derive(Clone, Copy, Default)]
pub(crate) struct Actor {
    ids: u32,
    /// The claim that it has made and not left.
    pub(crate) mine: Option<Mine>,
    pub(crate) deaf: bool,
}

#[derive(Clone, Copy)]
pub(crate) struct Mine {
    pub(crate) id: ClaimId,
    ticket: Option<Ticket>,
    /// Until when it must be told that it was broken.
    pub(crate) broken_until: Moment,
}

#[derive(Clone, Copy)]
struct LeftClaim {
    id: ClaimId,
    until: Moment,
    was_broken: bool,
}

/// The name and its claimants.
#[derive(Clone)]
pub(crate) struct World {
    pub(crate) storage: FaultyStorage,
    pub(crate) now: Moment,
    pub(crate) actors: [Actor; MOST],
    pub(crate) capacity: u32,
    pub(crate) resized: bool,
    /// The highest fence that was ever granted.
    pub(crate) highest: Fence,
    /// The last claim that left in doubt. The line still remembers earlier ones, but claims that left do not affect
    /// each other, so it is enough to look at one.
    left: Option<LeftClaim>,
}

/// What the line really holds, not what the storage reports.
pub(crate) struct Facts {
    pub(crate) held: Vec<Entry>,
    pub(crate) waiting: Vec<Entry>,
    pub(crate) totals: Totals,
}

impl World {
    pub(crate) fn new(setting: &Setting, fault: Option<Fault>) -> World {
        World {
            storage: FaultyStorage::new(fault),
            now: Moment::ORIGIN + LEFT_LIFE,
            actors: Default::default(),
            capacity: setting.capacity,
            resized: false,
            highest: Fence::default(),
            left: None,
        }
    }

    pub(crate) fn facts(&self) -> Facts {
        let line = &self.storage.line;
        let bare = |all: Vec<(Entry, _)>| all.into_iter().map(|(entry, _)| entry).collect();
        let Ok(totals) = line.totals();
        Facts { held: bare(line.holders()), waiting: bare(line.waiters()), totals }
    }

    /// Everything that can happen next.
    pub(crate) fn actions(&self, setting: &Setting, facts: &Facts) -> Vec<Action> {
        let live = |entry: &Entry| entry.until > self.now;
        let all_live = facts.waiting.iter().all(live);
        let mut all = vec![Action::Minute];
        // Actions that would change nothing are left out.
        if facts.held.iter().any(live) {
            all.push(Action::Second);
        }
        if !all_live || !facts.held.iter().all(live) {
            all.push(Action::Look);
        }
        all.extend(self.left.map(|left| Action::Duplicate(whose(&left.id))));
        all.extend(setting.resizes.iter().map(|capacity| Action::Resize(*capacity)));
        for (who, actor) in self.actors[..setting.weights.len()].iter().enumerate() {
            all.push(Action::Claim(who));
            let Some(Mine { id, .. }) = actor.mine else {
                all.push(Action::Try(who));
                continue;
            };
            all.push(Action::Leave(who));
            all.extend(setting.doubt.then_some(Action::LeaveInDoubt(who)));
            let entry = facts.find(&id);
            match entry.map(|entry| entry.state) {
                None => all.extend([Action::Keep(who), Action::Renew(who)]),
                Some(State::Held { .. }) => {
                    all.push(Action::Renew(who));
                    all.extend(setting.breaks.then_some(Action::Break(who)));
                }
                Some(State::Waiting | State::Aside) => {
                    all.push(Action::Keep(who));
                    // One at a time: `Minute` covers several that end together.
                    all.extend(all_live.then_some(Action::PlaceEnds(who)));
                    let turns = if actor.deaf { Action::Hear(who) } else { Action::Deafen(who) };
                    all.extend(setting.deaf.then_some(turns));
                }
            }
        }
        all
    }

    /// Carries out an action.
    pub(crate) fn act(
        &mut self,
        action: Action,
        setting: &Setting,
        words: &Words,
    ) -> (Done, Facts) {
        let mut said = Vec::new();
        let reply = self.step(action, setting, words, &mut said);
        let facts = self.facts();
        self.learn(action, &reply, &facts, &said);
        (Done { reply, said }, facts)
    }

    fn step(
        &mut self,
        action: Action,
        setting: &Setting,
        words: &Words,
        said: &mut Vec<(Entry, Word, bool)>,
    ) -> Reply {
        match action {
            Action::Second => self.pass_a_second(),
            Action::Minute => self.now = self.now + PLACE_LIFE,
            Action::Deafen(who) => self.actors[who].deaf = true,
            Action::Hear(who) => self.actors[who].deaf = false,
            Action::PlaceEnds(who) => self.end_place(who),
            _ => return self.ask(action, setting, words, said),
        }
        Reply::Nothing
    }

    fn ask(
        &mut self,
        action: Action,
        setting: &Setting,
        words: &Words,
        said: &mut Vec<(Entry, Word, bool)>,
    ) -> Reply {
        let claim = self.claim(action, words);
        let leave =
            Leave { in_doubt: matches!(action, Action::LeaveInDoubt(_)), ..words.leave(claim.id) };
        let fence = match self.storage.line.find(&claim.id) {
            Ok(Some(entry)) if matches!(entry.state, State::Held { .. }) => entry.fence(),
            _ => self.highest,
        };
        let actors = self.actors;
        let say = |entry: &Entry, word: Word| {
            let heard = !actors[whose(&entry.id)].deaf;
            said.push((*entry, word, heard));
            heard
        };
        let mut ledger = Ledger::new(&mut self.storage, self.now, say);
        let reply = match action {
            Action::Claim(who) | Action::Try(who) | Action::Duplicate(who) => {
                ledger.claim(&claim, setting.processes[who], true).map(Reply::Claimed)
            }
            Action::Keep(who) => {
                ledger.claim(&claim, setting.processes[who], false).map(Reply::Claimed)
            }
            Action::Renew(_) => ledger.renew(&claim.id, fence, TTL).map(Reply::Renewed),
            Action::Leave(who) | Action::LeaveInDoubt(who) => {
                ledger.leave(&leave, setting.processes[who]).map(Reply::Left)
            }
            Action::Break(_) => ledger.break_hold(fence, &words.note).map(Reply::Broken),
            Action::Resize(capacity) => ledger.resize(capacity).map(|_| Reply::Looked),
            _ => ledger.tick().map(|()| Reply::Looked),
        };
        let Ok(reply) = reply;
        reply
    }

    /// The claim that the claimant makes, with a new id if it has none.
    fn claim(&mut self, action: Action, words: &Words) -> Claim {
        let Some(who) = action.who() else { return words.claims[0].clone() };
        let mut claim = words.claims[who].clone();
        let actor = &mut self.actors[who];
        if let (Action::Duplicate(_), Some(left)) = (action, self.left) {
            claim.id = left.id;
            return claim;
        }
        let mine = actor.mine.get_or_insert_with(|| {
            actor.ids += 1;
            Mine { id: id(who, actor.ids), ticket: None, broken_until: Moment::ORIGIN }
        });
        claim.id = mine.id;
        claim.ticket = mine.ticket;
        claim.may_wait = !matches!(action, Action::Try(_));
        claim
    }

    fn learn(
        &mut self,
        action: Action,
        reply: &Reply,
        facts: &Facts,
        said: &[(Entry, Word, bool)],
    ) {
        if let Action::Resize(capacity) = action {
            (self.capacity, self.resized) = (capacity, true);
        }
        for (entry, word, _) in said {
            match word {
                Word::Granted { fence, .. } => self.highest = self.highest.max(*fence),
                Word::Ended(Ended::Conflict { .. }) => self.actors[whose(&entry.id)].mine = None,
                _ => {}
            }
        }
        self.highest = facts.held.iter().map(Entry::fence).fold(self.highest, Fence::max);
        if let Some(who) = action.who() {
            self.learn_of(who, action, reply, facts);
        }
        self.left = self.left.filter(|left| left.until > self.now);
        for actor in &mut self.actors {
            // Whether one that does not wait can be reached makes no difference: this saves states.
            let waits = |mine: Mine| facts.waiting.iter().any(|place| place.id == mine.id);
            actor.deaf &= actor.mine.is_some_and(waits);
        }
    }

    fn learn_of(&mut self, who: usize, action: Action, reply: &Reply, facts: &Facts) {
        let now = self.now;
        let actor = &mut self.actors[who];
        let Some(mine) = &mut actor.mine else { return };
        match (action, reply) {
            (Action::Leave(_), _) => actor.mine = None,
            (Action::LeaveInDoubt(_), _) => {
                let was_broken = mine.broken_until > now;
                self.left = Some(LeftClaim { id: mine.id, until: now + LEFT_LIFE, was_broken });
                actor.mine = None;
            }
            (Action::Duplicate(_), _) => {}
            (Action::Break(_), Reply::Broken(Broken::Done)) => mine.broken_until = now + TTL,
            (_, Reply::Claimed(Answer::Busy | Answer::Conflict { .. })) => actor.mine = None,
            _ => {
                let id = mine.id;
                let mut all = facts.held.iter().chain(&facts.waiting);
                let place = all.find(|entry| entry.id == id).map(|entry| entry.ticket);
                mine.ticket = place.or(mine.ticket);
            }
        }
    }

    /// Claimants that are alive renew their places all the time, so that places never age here: this keeps the number
    /// of states finite. `PlaceEnds` is for the others.
    fn pass_a_second(&mut self) {
        let before = self.now;
        self.now = before + SECOND;
        for (place, _) in self.storage.line.waiters() {
            if place.until > before {
                let Ok(()) =
                    self.storage.line.change(Entry { until: place.until + SECOND, ..place });
            }
        }
    }

    fn end_place(&mut self, who: usize) {
        let Some(Mine { id, .. }) = self.actors[who].mine else { return };
        if let Ok(Some(place)) = self.storage.line.find(&id) {
            let Ok(()) = self.storage.line.change(Entry { until: self.now, ..place });
        }
    }

    /// Two worlds with the same key have the same future: of numbers only the order counts, of moments only the
    /// distance. How long ago a claim left, and for how long a break is remembered, make no difference as long as
    /// they are there.
    pub(crate) fn key(&self, facts: &Facts) -> u128 {
        let mut key = Packed(u128::from(self.resized));
        key.push(8, self.capacity % 256);
        key.push(
            4,
            self.left
                .map_or(0, |left| 1 + whose(&left.id) as u32 + if left.was_broken { 8 } else { 0 }),
        );
        let tickets = self.actors.map(|actor| actor.mine.and_then(|mine| mine.ticket));
        for (actor, ticket) in self.actors.iter().zip(tickets) {
            key.push(1, u32::from(actor.deaf));
            let mut older = 0;
            for other in tickets {
                older += u32::from(other.is_some() && other < ticket);
            }
            key.push(2, older);
            let entry = actor.mine.map(|mine| (mine, facts.find(&mine.id)));
            let (state, left) = match entry {
                None => (0, 0),
                Some((mine, None)) => (1, u32::from(mine.broken_until > self.now)),
                Some((_, Some(entry))) => {
                    let over = u32::from(entry.until <= self.now);
                    match entry.state {
                        State::Waiting => (2, over),
                        State::Aside => (3, over),
                        State::Held { first_life, .. } => (
                            4 + u32::from(first_life),
                            self.now.until(entry.until).as_secs() as u32,
                        ),
                    }
                }
            };
            key.push(3, state);
            key.push(2, left);
        }
        key.0
    }
}

impl Facts {
    pub(crate) fn find(&self, id: &ClaimId) -> Option<&Entry> {
        self.held.iter().chain(&self.waiting).find(|entry| entry.id == *id)
    }

    pub(crate) fn holds(&self, id: &ClaimId) -> Option<&Entry> {
        self.held.iter().find(|entry| entry.id == *id)
    }

    pub(crate) fn weight_held(&self) -> u32 {
        self.held.iter().map(|entry| entry.weight).sum()
    }

    /// The waiting claims that are not set aside.
    pub(crate) fn in_line(&self) -> impl Iterator<Item = &Entry> {
        self.waiting.iter().filter(|entry| entry.state == State::Waiting)
    }
}

/// Packs small numbers one after another.
struct Packed(u128);

impl Packed {
    fn push(&mut self, bits: u32, number: u32) {
        debug_assert!(number < 1 << bits);
        self.0 = self.0 << bits | u128::from(number);
    }
}

/// Values that are the same in every world, made once.
pub(crate) struct Words {
    claims: Vec<Claim>,
    pub(crate) note: Note,
}

impl Words {
    pub(crate) fn new(setting: &Setting) -> Words {
        let name = Name::new(Space::Lock, "explored").expect("a good name");
        let claim = |weight: &u32| {
            let mut claim = Claim::new(name.clone(), id(0, 0));
            (claim.weight, claim.capacity, claim.ttl) = (*weight, setting.capacity, TTL);
            claim.fixed = false;
            claim
        };
        let note = Note { by: "ops".to_owned(), reason: "stuck".to_owned() };
        Words { claims: setting.weights.iter().map(claim).collect(), note }
    }

    fn leave(&self, id: ClaimId) -> Leave {
        Leave::new(self.claims[0].name.clone(), id)
    }
}

fn id(who: usize, serial: u32) -> ClaimId {
    ClaimId::from_bytes((u128::from(serial) << 8 | who as u128).to_le_bytes())
}

/// Whose claim it is.
pub(crate) fn whose(id: &ClaimId) -> usize {
    usize::from(id.to_bytes()[0])
}
