//! One state of the exploration, and what can happen in it.

use std::collections::VecDeque;
use std::time::Duration;

use super::judge::Judge;
use super::walk::Setting;
use crate::core::handover::line::{Answered, Asked, Contact, Leaves, Line, Renews};
use crate::core::handover::wrong::Wrong;
use crate::ledger::{self, Entry, State, Storage};
use crate::model::claim::{Claim, ClaimId, Fence, Grant, Leave, Ticket};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};

pub(super) const TTL: Duration = Duration::from_secs(4);
/// The engine's clock, in numbers: this far ahead of the counter.
pub(super) const NUMBERS: u64 = 2;
pub(super) const OWN: ledger::Process = 1;

/// Something that happens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    Claim(usize),
    Quit(usize),
    /// The task sees its turn.
    Take(usize),
    Leave(usize),
    /// It says again that it has left.
    Again(usize),
    Renew(usize),
    Extend(usize),
    /// It asks again for a place at the engine.
    Look(usize),
    /// The first request on this connection arrives.
    Arrives(usize),
    /// A request whose caller has given up arrives after all.
    Late(usize),
    /// Its answer, or the push, is heard.
    Heard(usize),
    /// The caller stops waiting for the answer; the request may still arrive.
    TimesOut(usize),
    LosesPush(usize),
    Joins(usize),
    Left(usize),
    Breaks,
    /// The watchdog runs.
    Watchdog,
    Second,
}

/// A claimant of the process that shares.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Own {
    Idle,
    Asking(Asking),
    Inside(Inside),
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Asking {
    pub(super) asked: Moment,
    pub(super) arrival: u64,
    pub(super) turn: Option<Grant>,
    /// Requests that were never answered, as its own core counts them.
    pub(super) open: u32,
    /// Its ticket, as far as it knows.
    pub(super) ticket: Option<Ticket>,
    /// Since when it stands in the process or at the engine.
    pub(super) stood: Option<Moment>,
    /// It lost its turn, or a request of it was lost.
    pub(super) excused: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Inside {
    pub(super) fence: Fence,
    pub(super) good_until: Moment,
    pub(super) open: u32,
    pub(super) extended: bool,
    /// Broken by an operator, and not told yet.
    pub(super) broken: bool,
    pub(super) renewing: bool,
}

#[derive(Clone, Debug)]
pub(super) enum Message {
    Claim { claim: Claim, place: bool },
    Leave(Leave),
    Contact(Contact, Option<usize>),
}

#[derive(Clone, Debug)]
pub(super) enum Reply {
    Claim(ClaimId, Answered),
    Left(ClaimId),
    Contact { contact: Contact, kept: Option<Kepts>, asker: Option<usize>, others: bool },
    Granted(ClaimId, Grant),
    Ended(ClaimId),
}

/// [`Kept`], which cannot be cloned.
#[derive(Clone, Debug)]
pub(super) enum Kepts {
    Held { fence: Fence, remaining: Duration, waiting: u32, next: u64, last: u64 },
    Gone(bool),
}

/// A request on its way, or its answer on its way back. Connections: 0 keeps the order of claims, leaves and pushes; 1
/// is that of contacts.
#[derive(Clone, Debug)]
pub(super) enum Travels {
    There { message: Message, sent: Moment, given_up: bool },
    Back { reply: Reply, seen: Moment },
}

#[derive(Clone, Debug)]
pub(super) struct World {
    pub(super) now: Moment,
    pub(super) line: Line,
    pub(super) storage: ledger::Line<u64>,
    pub(super) own: Vec<Own>,
    pub(super) rounds: Vec<u8>,
    pub(super) strangers: Vec<Option<Moment>>,
    pub(super) strangers_done: Vec<bool>,
    /// Who was granted in the last step of the engine.
    pub(super) begun: Vec<ClaimId>,
    pub(super) there: [VecDeque<Travels>; 2],
    pub(super) back: [VecDeque<Travels>; 2],
    /// Requests whose callers have given up.
    pub(super) late: VecDeque<Travels>,
    pub(super) left: Setting,
    pub(super) again: Vec<(ClaimId, Fence)>,
    /// Claims whose time was over, and which leave later, to be sure.
    pub(super) lost: Vec<(ClaimId, Fence)>,
    pub(super) gone: Vec<ClaimId>,
    pub(super) seconds: u64,
    pub(super) judge: Judge,
}

pub(super) fn name() -> Name {
    Name::new(Space::Lock, "x").unwrap()
}

/// The id of a claimant's claim in this round.
pub(super) fn own_id(who: usize, round: u8) -> ClaimId {
    ClaimId::from_bytes([(who as u8) * 16 + round + 1; 16])
}

pub(super) fn stranger_id(who: usize) -> ClaimId {
    ClaimId::from_bytes([200 + who as u8; 16])
}

impl World {
    pub(super) fn new(setting: &Setting, wrong: Option<Wrong>) -> World {
        let mut line = Line::new(TTL);
        line.wrong = wrong;
        World {
            now: Moment::from_nanos(1_000_000_000_000),
            line,
            storage: ledger::Line::new(0),
            own: vec![Own::Idle; setting.rounds.len()],
            rounds: setting.rounds.to_vec(),
            strangers: vec![None; setting.strangers],
            strangers_done: vec![false; setting.strangers],
            begun: Vec::new(),
            there: Default::default(),
            back: Default::default(),
            late: VecDeque::new(),
            left: *setting,
            again: Vec::new(),
            lost: Vec::new(),
            gone: Vec::new(),
            seconds: setting.seconds,
            judge: Judge::default(),
        }
    }

    pub(super) fn id(&self, who: usize) -> ClaimId {
        own_id(who, self.rounds[who])
    }

    pub(super) fn claim_of(&self, who: usize, ticket: Option<Ticket>) -> Claim {
        let mut claim = Claim::new(name(), self.id(who));
        (claim.ttl, claim.ticket) = (TTL, ticket);
        claim
    }

    pub(super) fn who(&self, id: &ClaimId) -> Option<usize> {
        (0..self.own.len()).find(|who| self.id(*who) == *id && self.own[*who] != Own::Idle)
    }

    /// The events that are possible, without those that only a fault brings if `fair`.
    pub(super) fn events(&self, fair: bool) -> Vec<Event> {
        let mut events = Vec::new();
        let left = &self.left;
        // Contacts travel over several connections, so their order may change.
        for which in 0..if fair { 2 } else { 3 } {
            let (connection, at) = (usize::from(which > 0), usize::from(which > 1));
            if let Some(Travels::There { given_up, .. }) = self.there[connection].get(at) {
                events.push(Event::Arrives(which));
                if !fair && !given_up && left.time_outs > 0 {
                    events.push(Event::TimesOut(which));
                }
            }
            if let Some(Travels::Back { reply, .. }) = self.back[connection].get(at) {
                events.push(Event::Heard(which));
                let is_push = matches!(reply, Reply::Granted(..) | Reply::Ended(_));
                if !fair && is_push && which == 0 && left.lost_pushes > 0 {
                    events.push(Event::LosesPush(0));
                }
            }
        }
        events.extend((0..self.late.len()).map(Event::Late));
        for (who, own) in self.own.iter().enumerate() {
            let sleeps = who >= self.own.len() - left.sleepers;
            match own {
                Own::Idle if self.rounds[who] > 0 => {
                    if !fair {
                        events.push(Event::Claim(who));
                    }
                }
                Own::Idle => {}
                Own::Asking(asking) => {
                    if asking.turn.is_some() && !sleeps {
                        events.push(Event::Take(who));
                    }
                    if !fair && left.quits > 0 && !sleeps {
                        events.push(Event::Quit(who));
                    }
                }
                Own::Inside(inside) => {
                    events.push(Event::Leave(who));
                    if !fair && left.renews > 0 && !inside.renewing {
                        events.push(Event::Renew(who));
                    }
                    if !fair && left.extends > 0 && !inside.renewing {
                        events.push(Event::Extend(who));
                    }
                }
            }
        }
        if !fair && left.again > 0 {
            events.extend((0..self.again.len()).map(Event::Again));
        }
        for who in 0..self.strangers.len() {
            let id = stranger_id(who);
            let Ok(found) = self.storage.find(&id);
            match found {
                None if !fair && !self.strangers_done[who] => events.push(Event::Joins(who)),
                Some(Entry { state: State::Held { .. }, .. }) => events.push(Event::Left(who)),
                Some(_) if !fair && left.quits > 0 => events.push(Event::Left(who)),
                _ => {}
            }
        }
        let Ok(held) = self.storage.totals();
        if !fair && left.breaks > 0 && held.held > 0 {
            events.push(Event::Breaks);
        }
        if self.line.due() <= self.now {
            events.push(Event::Watchdog);
        }
        if !fair && self.seconds > 0 {
            events.push(Event::Second);
        }
        events
    }

    pub(super) fn happen(&mut self, event: Event) {
        match event {
            Event::Claim(who) => self.claims(who),
            Event::Quit(who) => {
                self.left.quits -= 1;
                self.leaves(who);
            }
            Event::Take(who) => self.takes(who),
            Event::Leave(who) => self.leaves(who),
            Event::Again(which) => {
                self.left.again -= 1;
                let (id, fence) = self.again[which];
                let held = Some(fence).filter(|fence| *fence != Fence::default());
                self.tell_leave(Leave { held, ..Leave::new(name(), id) });
            }
            Event::Renew(who) => {
                self.left.renews -= 1;
                self.renews(who, TTL);
            }
            Event::Extend(who) => {
                self.left.extends -= 1;
                if let Own::Inside(inside) = &mut self.own[who] {
                    inside.extended = true;
                }
                self.renews(who, TTL * 2);
            }
            Event::Look(who) => self.looks(who),
            Event::Arrives(which) => {
                let (connection, at) = (usize::from(which > 0), usize::from(which > 1));
                let travels = self.there[connection].remove(at);
                self.arrives(connection, travels);
            }
            Event::Late(which) => {
                let travels = self.late.remove(which);
                self.arrives(0, travels);
            }
            Event::Heard(connection) => self.heard(connection),
            Event::TimesOut(connection) => self.times_out(connection),
            Event::LosesPush(connection) => {
                self.left.lost_pushes -= 1;
                self.back[connection].pop_front();
            }
            Event::Joins(who) => {
                self.strangers_done[who] = true;
                self.strangers[who] = Some(self.now);
                let mut claim = Claim::new(name(), stranger_id(who));
                claim.ttl = TTL;
                let _ = self.step(|ledger| ledger.claim(&claim, 10, true));
            }
            Event::Left(who) => {
                let leave = Leave::new(name(), stranger_id(who));
                let _ = self.step(|ledger| ledger.leave(&leave, 10));
                self.strangers[who] = None;
            }
            Event::Breaks => self.breaks(),
            Event::Watchdog => self.line.tick(self.now),
            Event::Second => self.second(),
        }
        self.carry_out();
        let Self { judge, .. } = self;
        let mut judge = std::mem::take(judge);
        judge.look(self);
        self.judge = judge;
    }

    fn claims(&mut self, who: usize) {
        self.judge.arrivals += 1;
        let (ticket, arrival) = (None, self.judge.arrivals);
        let asked = self.now;
        let (turn, stood, excused) = (None, None, false);
        self.own[who] =
            Own::Asking(Asking { asked, arrival, turn, open: 0, ticket, stood, excused });
        let claim = self.claim_of(who, None);
        match self.line.claim(&claim, self.now) {
            Asked::Engine(ticket) => self.send_claim(Claim { ticket, ..claim }, false),
            Asked::Here(place) => {
                self.judge.here_behind_own += u32::from(self.judge.own_waited);
                let before = |own: &Own| {
                    matches!(own, Own::Asking(Asking { stood: Some(stood), ticket: Some(before), .. })
                        if *stood < asked && *before > place.ticket)
                };
                let is_above = !self.own.iter().any(before);
                self.judge.stands_behind(is_above);
                self.stands(who, place.ticket);
                self.has_stood(who);
            }
            Asked::Granted(grant) => self.gets_turn(who, grant),
        }
    }

    pub(super) fn send_claim(&mut self, claim: Claim, place: bool) {
        if let Some(who) = self.who(&claim.id)
            && let Own::Asking(asking) = &mut self.own[who]
        {
            asking.open += 1;
        }
        self.send(0, Message::Claim { claim, place });
    }

    pub(super) fn send(&mut self, connection: usize, message: Message) {
        let there = Travels::There { message, sent: self.now, given_up: false };
        self.there[connection].push_back(there);
    }

    pub(super) fn stands(&mut self, who: usize, at: Ticket) {
        if let Own::Asking(asking) = &mut self.own[who] {
            asking.ticket = Some(at);
        }
    }

    pub(super) fn has_stood(&mut self, who: usize) {
        if let Own::Asking(asking) = &mut self.own[who] {
            asking.stood.get_or_insert(self.now);
        }
    }

    pub(super) fn gets_turn(&mut self, who: usize, grant: Grant) {
        if let Own::Asking(asking) = &mut self.own[who] {
            asking.turn = Some(grant);
        }
    }

    fn takes(&mut self, who: usize) {
        let Own::Asking(asking) = &mut self.own[who] else { return };
        let Some(grant) = asking.turn.take() else { return };
        if self.now <= grant.start_by {
            self.begins(who, grant);
            return;
        }
        asking.excused = true;
        match self.line.renew(&self.id(who), grant.fence, TTL, self.now) {
            Renews::Contact(contact) => self.send(1, Message::Contact(contact, Some(who))),
            Renews::Gone | Renews::Unknown => self.looks(who),
        }
    }

    /// It asks again.
    pub(super) fn looks(&mut self, who: usize) {
        let Own::Asking(asking) = &self.own[who] else { return };
        let claim = self.claim_of(who, asking.ticket);
        match self.line.claim(&claim, self.now) {
            Asked::Engine(ticket) => self.send_claim(Claim { ticket, ..claim }, true),
            Asked::Here(place) => self.stands(who, place.ticket),
            Asked::Granted(grant) => self.gets_turn(who, grant),
        }
    }

    pub(super) fn begins(&mut self, who: usize, grant: Grant) {
        let Own::Asking(asking) = &self.own[who] else { return };
        let (asked, open) = (asking.asked, asking.open);
        let waiting = self.strangers_waiting();
        let broken = self.judge.is_broken(&self.line);
        self.judge.begins(grant.fence, asked, &waiting, broken);
        self.own[who] = Own::Inside(Inside {
            fence: grant.fence,
            good_until: grant.good_until,
            open,
            extended: false,
            broken: self.judge.is_broken(&self.line),
            renewing: false,
        });
    }

    /// When each stranger joined who waits and can be reached.
    pub(super) fn strangers_waiting(&self) -> Vec<Moment> {
        let waits = |who: usize| {
            let Ok(found) = self.storage.find(&stranger_id(who));
            matches!(found, Some(Entry { state: State::Waiting, .. }))
        };
        let joined = self.strangers.iter().enumerate();
        joined.filter(|(who, _)| waits(*who)).filter_map(|(_, joined)| *joined).collect()
    }

    fn leaves(&mut self, who: usize) {
        let id = self.id(who);
        let (held, open) = match &self.own[who] {
            Own::Inside(inside) => (Some(inside.fence), inside.open),
            Own::Asking(asking) => (None, asking.open),
            Own::Idle => return,
        };
        let extended = matches!(&self.own[who], Own::Inside(Inside { extended: true, .. }));
        self.own[who] = Own::Idle;
        self.rounds[who] -= 1;
        self.gone.push(id);
        self.again.push((id, held.unwrap_or_default()));
        self.judge.extended = extended;
        if held.is_none() {
            self.judge.untaken = false;
        }
        self.tell_leave(Leave { held, in_doubt: open > 0, ..Leave::new(name(), id) });
        self.carry_out();
        self.judge.extended = false;
    }

    pub(super) fn tell_leave(&mut self, leave: Leave) {
        let leaves = self.line.leave(&leave, self.now);
        // What the machine wants first is done first.
        self.carry_out();
        if let Leaves::Engine(leave) = leaves {
            self.send(0, Message::Leave(leave));
        }
    }

    fn renews(&mut self, who: usize, ttl: Duration) {
        let Own::Inside(inside) = &mut self.own[who] else { return };
        inside.renewing = true;
        let fence = inside.fence;
        match self.line.renew(&self.id(who), fence, ttl, self.now) {
            Renews::Contact(contact) => self.send(1, Message::Contact(contact, Some(who))),
            Renews::Gone | Renews::Unknown => self.is_lost(who),
        }
    }

    pub(super) fn is_lost(&mut self, who: usize) {
        let id = self.id(who);
        if let Own::Inside(inside) = &self.own[who] {
            self.again.push((id, inside.fence));
            self.lost.push((id, inside.fence));
        }
        let doubt = match &self.own[who] {
            Own::Inside(inside) if inside.open > 0 => Some(inside.fence),
            _ => None,
        };
        self.gone.push(id);
        self.own[who] = Own::Idle;
        self.rounds[who] -= 1;
        if doubt.is_some() {
            self.tell_leave(Leave { held: doubt, in_doubt: true, ..Leave::new(name(), id) });
        }
    }
}
