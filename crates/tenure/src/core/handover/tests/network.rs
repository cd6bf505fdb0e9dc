//! Requests, their answers and what is pushed, on their ways between the process and the engine.

use std::time::Duration;

use super::state::{
    Asking, Event, Kepts, Message, NUMBERS, OWN, Own, Reply, Travels, World, name, own_id,
    stranger_id,
};
use crate::core::handover::line::{Answered, Contact, Effect, Heard};
use crate::ledger::{self, Answer, Entry, KeepAnswer, Keeper, Ledger, State, Storage, Word};
use crate::model::claim::{ClaimId, Ended, Fence, Grant, Kept, Leave, Left, Note};
use crate::model::moment::Moment;

impl World {
    pub(super) fn carry_out(&mut self) {
        while let Some(effect) = self.line.outbox.pop_front() {
            match effect {
                Effect::Give(id, grant) => {
                    let now = self.now;
                    let broken = self.judge.is_broken(&self.line);
                    self.judge.gives(grant.fence, now, broken);
                    let arrivals = self.own.iter().map(|own| match own {
                        Own::Asking(Asking { arrival, turn: None, excused: false, .. }) => *arrival,
                        _ => u64::MAX,
                    });
                    let first = arrivals.min().unwrap_or(u64::MAX);
                    match self.who(&id) {
                        Some(who) if matches!(self.own[who], Own::Asking(_)) => {
                            if let Own::Asking(asking) = &mut self.own[who] {
                                self.judge.in_order(asking.arrival, first);
                                asking.excused = true;
                            }
                            self.gets_turn(who, grant);
                        }
                        _ => self.line.refused(&id, grant.fence, self.now),
                    }
                }
                Effect::Tell(id, _) => {
                    if let Some(who) = self.who(&id) {
                        let held = matches!(&self.own[who], Own::Inside(_));
                        if held {
                            self.judge.told(&self.line, &self.storage, self.now);
                            self.is_lost(who);
                        } else if let Own::Asking(asking) = &mut self.own[who] {
                            (asking.turn, asking.excused) = (None, true);
                            self.looks(who);
                        }
                    }
                }
                Effect::Contact(contact) => self.send(1, Message::Contact(contact, None)),
                Effect::Leave(leave) => self.send(0, Message::Leave(leave)),
                Effect::Claim(claims) => {
                    for claim in claims {
                        self.send(0, Message::Claim { claim, place: true });
                    }
                }
            }
        }
    }

    /// One step of the engine.
    pub(super) fn step<T>(
        &mut self,
        act: impl FnOnce(&mut Ledger<'_, ledger::Line<u64>, &mut Say<'_>>) -> T,
    ) -> T {
        let (now, mut pushed) = (self.now, Vec::new());
        let held = self.holders();
        let runs_out = |(entry, _): &(Entry, _)| entry.process == OWN && entry.until <= now;
        if self.storage.holders().iter().any(runs_out) {
            self.judge.ended_early = Some(now);
        }
        let mut say = |entry: &Entry, word: Word| {
            if entry.process == OWN {
                let (id, fence) = (entry.id, entry.fence());
                match word {
                    Word::Granted { fence, life, first_life } => {
                        pushed.push(Reply::Granted(id, Grant::new(fence, now, life, first_life)));
                    }
                    Word::Ended(_) if fence != Fence::default() => pushed.push(Reply::Ended(id)),
                    _ => {}
                }
            }
            true
        };
        let mut ledger = Ledger::new(&mut self.storage, now, &mut say as &mut Say<'_>);
        let done = act(&mut ledger);
        for reply in pushed {
            self.back[0].push_back(Travels::Back { reply, seen: now });
        }
        self.begun = self.holders();
        self.begun.retain(|id| !held.contains(id));
        self.are_in_order(false);
        done
    }

    fn holders(&self) -> Vec<ClaimId> {
        self.storage.holders().iter().map(|(entry, _)| entry.id).collect()
    }

    /// Nobody has been granted now who came in a later second than an own claim which stands at the engine, nor, if a
    /// hold of the process was left for it, than one that stands in the process.
    fn are_in_order(&mut self, was_left: bool) {
        for id in self.begun.clone() {
            let own = self.who(&id);
            let stranger = (0..self.strangers.len()).find(|who| stranger_id(*who) == id);
            let came = match (own, stranger) {
                (Some(who), _) => match &self.own[who] {
                    Own::Asking(asking) => Some(asking.asked),
                    _ => None,
                },
                (None, Some(who)) => self.strangers[who],
                (None, None) => None,
            };
            let Some(came) = came else { continue };
            if let Some(Own::Asking(asking)) = own.map(|who| &mut self.own[who]) {
                // If it does not take its turn, it is passed over.
                asking.excused = true;
            }
            for other in (0..self.own.len()).filter(|other| Some(*other) != own) {
                let Own::Asking(asking) = &self.own[other] else { continue };
                let Ok(place) = self.storage.find(&self.id(other));
                let is_there = matches!(place, Some(Entry { state: State::Waiting, .. }));
                let is_before = asking.stood.is_some_and(|stood| stood < came);
                // One that lost its turn returns to its place, if it had a ticket.
                let knows = self.judge.ended_early.is_none_or(|at| Some(at) < asking.stood);
                let is_passed = is_there || was_left && place.is_none() && knows;
                let is_passed = is_passed && !asking.excused;
                if is_before && is_passed {
                    self.judge.passes(own.is_some(), is_there);
                }
            }
        }
    }

    pub(super) fn arrives(&mut self, connection: usize, travels: Option<Travels>) {
        let Some(Travels::There { message, sent, given_up }) = travels else { return };
        let reply = match message {
            Message::Claim { claim, place } => {
                let id = claim.id;
                let Ok(answer) = self.step(|ledger| ledger.claim(&claim, OWN, !place));
                if let Some(who) = self.who(&id) {
                    self.has_stood(who);
                }
                let carries = self.line.tenancy().is_some_and(|tenancy| tenancy.carrier == id);
                if !carries {
                    self.judge.arrived(&self.gone, &id, &self.storage, &self.there[0]);
                }
                let answered = match answer {
                    Answer::Granted { fence, remaining, first_life } => {
                        Answered::Granted(Grant::new(fence, sent, remaining, first_life))
                    }
                    Answer::Waiting { ticket, .. } => Answered::Waiting(ticket),
                    _ => Answered::Refused,
                };
                Reply::Claim(id, answered)
            }
            Message::Leave(leave) => {
                let left = self.step(|ledger| ledger.leave(&leave, OWN));
                if left == Ok(Left::Released) {
                    self.are_in_order(true);
                }
                Reply::Left(leave.id)
            }
            Message::Contact(contact, asker) => {
                let keep = &contact.keep;
                let Ok(last) = self.storage.last_number();
                let keeper = Keeper {
                    carrier: keep.id,
                    fence: keep.fence,
                    ttl: keep.ttl,
                    fences: (2, last + NUMBERS),
                    details: &keep.details,
                };
                let Ok(answer) = self.step(|ledger| ledger.keep(&keeper));
                let others = !self.strangers_waiting().is_empty();
                let kept = match answer {
                    KeepAnswer::Held { remaining, waiting, fences, .. } => {
                        let fence = keep.fence;
                        let (next, last) = (fences.next, fences.last);
                        Kepts::Held { fence, remaining, waiting, next, last }
                    }
                    KeepAnswer::Gone(ended) => Kepts::Gone(matches!(ended, Ended::Broken(_))),
                };
                Reply::Contact { contact, kept: Some(kept), asker, others }
            }
        };
        if !given_up {
            self.back[connection].push_back(Travels::Back { reply, seen: self.now });
        }
    }

    pub(super) fn times_out(&mut self, which: usize) {
        let (connection, at) = (usize::from(which > 0), usize::from(which > 1));
        self.left.time_outs -= 1;
        let found = self.there[connection].get_mut(at);
        let Some(Travels::There { message, given_up, .. }) = found else { return };
        *given_up = true;
        let reply = match message {
            Message::Claim { claim, .. } => {
                let id = claim.id;
                let who = (0..self.own.len()).find(|who| own_id(*who, self.rounds[*who]) == id);
                if let Some(Own::Asking(asking)) = who.map(|who| &mut self.own[who]) {
                    asking.excused = true;
                }
                Reply::Claim(id, Answered::Unknown)
            }
            // It is sent again, and arrives twice.
            Message::Leave(leave) => {
                let leave = leave.clone();
                return self.send(0, Message::Leave(leave));
            }
            Message::Contact(contact, asker) => Reply::Contact {
                contact: contact.clone(),
                kept: None,
                asker: *asker,
                others: false,
            },
        };
        // The connection is another one from now on: what comes later may arrive before it.
        let late = self.there[connection].remove(at);
        self.late.extend(late);
        self.back[connection].push_back(Travels::Back { reply, seen: self.now });
    }

    pub(super) fn heard(&mut self, which: usize) {
        let (connection, at) = (usize::from(which > 0), usize::from(which > 1));
        let Some(Travels::Back { reply, seen }) = self.back[connection].remove(at) else { return };
        self.judge.answer_of = Some(seen);
        self.hear(reply);
        self.carry_out();
        self.judge.answer_of = None;
    }

    pub(super) fn hear(&mut self, reply: Reply) {
        let now = self.now;
        match reply {
            Reply::Left(id) => self.line.left(&id),
            Reply::Ended(id) => {
                self.line.ended(&id, Ended::Broken(note()), now);
                self.carry_out();
                self.judge.was_told(&self.own);
            }
            Reply::Granted(id, grant) => {
                self.line.granted(&id, grant, false, now);
                self.carry_out();
                self.granted(id, grant);
            }
            Reply::Claim(id, answered) => {
                self.line.answered(&id, answered, now);
                self.carry_out();
                let Some(who) = self.who(&id) else { return };
                if let Own::Asking(asking) = &mut self.own[who] {
                    match answered {
                        Answered::Unknown => asking.excused = true,
                        _ => asking.open = asking.open.saturating_sub(1),
                    }
                    match answered {
                        Answered::Granted(grant) => asking.turn = Some(grant),
                        Answered::Waiting(ticket) => asking.ticket = Some(ticket),
                        // It asks again.
                        Answered::Unknown if self.there[0].len() < 3 => {
                            self.looks(who);
                        }
                        _ => {}
                    }
                }
            }
            Reply::Contact { contact, kept, asker, others } => {
                let is_news = self.line.news.is_none_or(|news| news.sent <= contact.sent);
                let kept = kept.map(|kept| kept.told(contact.sent));
                let gone = matches!(kept, Some(Kept::Gone(_)));
                let answered = kept.is_some();
                if let Some(Kept::Held { waiting, .. }) = kept {
                    self.judge.own_waited = waiting > 0;
                    if is_news {
                        self.judge.others_waited = others;
                    }
                }
                self.line.heard(&contact, kept.map_or(Heard::Nothing, Heard::Kept), now);
                self.carry_out();
                if let Some(who) = asker {
                    self.renewed(who, &contact, answered, gone);
                }
            }
        }
    }

    /// The claim whose renewal that was.
    pub(super) fn renewed(&mut self, who: usize, contact: &Contact, answered: bool, gone: bool) {
        let id = self.id(who);
        let good_until = self.line.tenancy().filter(|tenancy| tenancy.is_inside(&id));
        let good_until =
            good_until.and_then(|tenancy| tenancy.inside.as_ref().map(|inside| inside.until));
        match &mut self.own[who] {
            Own::Inside(inside) if inside.fence == contact.keep.fence => {
                inside.renewing = false;
                if let Some(good_until) = good_until.filter(|_| answered && !gone) {
                    inside.good_until = inside.good_until.max(good_until);
                }
            }
            // It asked because its turn was old.
            Own::Asking(asking) if asking.turn.is_none() => match good_until {
                Some(good_until) if answered && !gone && self.now < good_until => {
                    let fence = contact.keep.fence;
                    let remaining = self.now.until(good_until);
                    let grant = Grant::new(fence, self.now, remaining, false);
                    self.begins(who, Grant { good_until, ..grant });
                }
                _ => self.looks(who),
            },
            _ => {}
        }
    }

    /// The engine has pushed a turn.
    pub(super) fn granted(&mut self, id: ClaimId, grant: Grant) {
        match self.who(&id).map(|who| (who, &self.own[who])) {
            Some((who, Own::Asking(_))) => self.gets_turn(who, grant),
            Some(_) => {}
            None => {
                // As in every engine.
                let only = Some(grant.fence);
                let leave = Leave { only, unbegun: true, ..Leave::new(name(), id) };
                self.send(0, Message::Leave(leave));
            }
        }
    }

    pub(super) fn breaks(&mut self) {
        self.left.breaks -= 1;
        let holders = self.storage.holders();
        let Some((entry, _)) = holders.first() else { return };
        let (fence, carrier, is_own) = (entry.fence(), entry.id, entry.process == OWN);
        if let Some(who) = (0..self.strangers.len()).find(|who| stranger_id(*who) == carrier) {
            self.strangers[who] = None;
        }
        let _ = self.step(|ledger| ledger.break_hold(fence, &note()));
        if is_own {
            self.judge.broken = Some((carrier, self.now));
            self.judge.ended_early = Some(self.now);
            for own in &mut self.own {
                if let Own::Inside(inside) = own {
                    inside.broken = true;
                }
            }
        }
    }

    pub(super) fn second(&mut self) {
        self.seconds = self.seconds.saturating_sub(1);
        self.now = self.now + Duration::from_secs(1);
        for who in 0..self.own.len() {
            if matches!(&self.own[who], Own::Inside(inside) if self.now >= inside.good_until) {
                self.is_lost(who);
            }
        }
    }

    /// Time passes for those who wait for a push that may have been lost.
    pub(super) fn look_around(&mut self) {
        for who in 0..self.own.len() {
            if matches!(&self.own[who], Own::Asking(asking) if asking.turn.is_none()) {
                self.happen(Event::Look(who));
            }
        }
        for (id, fence) in std::mem::take(&mut self.lost) {
            self.tell_leave(Leave { held: Some(fence), ..Leave::new(name(), id) });
            self.carry_out();
        }
        let _ = self.step(|ledger| ledger.tick());
    }
}

impl Kepts {
    pub(super) fn told(&self, sent: Moment) -> Kept {
        match *self {
            Kepts::Held { fence, remaining, waiting, next, last } => Kept::Held {
                grant: Grant::new(fence, sent, remaining, false),
                waiting,
                fences: crate::model::claim::Fences { next, last },
            },
            Kepts::Gone(true) => Kept::Gone(Ended::Broken(note())),
            Kepts::Gone(false) => Kept::Gone(Ended::Expired),
        }
    }
}

pub(super) type Say<'a> = dyn FnMut(&Entry, Word) -> bool + 'a;

pub(super) fn note() -> Note {
    Note { by: "op".into(), reason: "test".into() }
}
