//! When two states of the exploration are the same.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;

use super::state::{Kepts, Message, Own, Reply, Travels, World};
use crate::core::handover::line::{At, Contact, Stands};
use crate::ledger::State;
use crate::model::claim::{ClaimId, Grant, Ticket};
use crate::model::moment::Moment;

/// The same states have the same digest, no matter what their numbers and moments are.
pub(super) fn digest(world: &World) -> u64 {
    let mut cells = Cells { now: world.now, all: Vec::with_capacity(256) };
    cells.world(world);
    cells.digest()
}

enum Cell {
    Plain(u64),
    Number(u64),
}

struct Cells {
    now: Moment,
    all: Vec<Cell>,
}

impl Cells {
    fn digest(&self) -> u64 {
        let mut numbers: Vec<u64> = Vec::new();
        for cell in &self.all {
            if let Cell::Number(number) = cell {
                numbers.push(*number);
            }
        }
        numbers.sort_unstable();
        numbers.dedup();
        let mut hasher = DefaultHasher::new();
        for cell in &self.all {
            match cell {
                Cell::Plain(plain) => plain.hash(&mut hasher),
                Cell::Number(number) => {
                    // Neighbours stay neighbours: a block of numbers may begin between them.
                    let rank = numbers.binary_search(number).unwrap_or_default();
                    let gap = rank > 0 && numbers[rank - 1] + 1 < *number;
                    (rank, gap).hash(&mut hasher);
                }
            }
        }
        hasher.finish()
    }

    fn plain(&mut self, plain: impl Into<u64>) {
        self.all.push(Cell::Plain(plain.into()));
    }

    fn number(&mut self, number: u64) {
        self.all.push(Cell::Number(number));
    }

    fn time(&mut self, at: Moment) {
        let ahead = self.now.until(at).as_millis().min(20_000) as u64;
        let behind = at.until(self.now).as_millis().min(1000) as u64;
        self.plain(ahead << 32 | behind);
    }

    fn maybe<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Cells, T)) {
        self.plain(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    fn id(&mut self, id: &ClaimId) {
        self.plain(id.to_bytes()[0]);
    }

    fn ticket(&mut self, ticket: Option<Ticket>) {
        match ticket {
            Some(ticket) => {
                self.plain(1_u64);
                self.number(ticket.get());
            }
            None => self.plain(0_u64),
        }
    }

    fn grant(&mut self, grant: &Grant) {
        self.number(grant.fence.get());
        self.time(grant.good_until);
        self.time(grant.start_by);
    }

    fn world(&mut self, world: &World) {
        for (own, round) in world.own.iter().zip(&world.rounds) {
            self.plain(*round);
            match own {
                Own::Idle => self.plain(0_u64),
                Own::Asking(asking) => {
                    self.plain(1_u64);
                    self.time(asking.asked);
                    self.maybe(asking.turn, |cells, grant| cells.grant(&grant));
                    self.plain(asking.open);
                    self.ticket(asking.ticket);
                    self.maybe(asking.stood, |cells, at| cells.time(at));
                    self.plain(asking.excused);
                    let before = world.own.iter().filter(|other| {
                        matches!(other, Own::Asking(other) if other.arrival < asking.arrival)
                    });
                    self.plain(before.count() as u64);
                }
                Own::Inside(inside) => {
                    self.plain(2_u64);
                    self.number(inside.fence.get());
                    self.time(inside.good_until);
                    self.plain(inside.open);
                    let flags = [inside.extended, inside.broken, inside.renewing];
                    flags.into_iter().for_each(|flag| self.plain(flag));
                }
            }
        }
        for (joined, done) in world.strangers.iter().zip(&world.strangers_done) {
            self.maybe(*joined, |cells, at| cells.time(at));
            self.plain(*done);
        }
        self.storage(world);
        self.line(world);
        for way in world.there.iter().chain(&world.back).chain([&world.late]) {
            self.plain(way.len() as u64);
            way.iter().for_each(|travels| self.travels(world, travels));
        }
        let left = &world.left;
        for budget in [
            left.time_outs,
            left.lost_pushes,
            left.breaks,
            left.extends,
            left.again,
            left.renews,
            left.quits,
        ] {
            self.plain(budget);
        }
        self.plain(world.seconds);
        let judge = &world.judge;
        self.number(judge.highest.get());
        self.maybe(judge.broken, |cells, (id, at)| {
            cells.id(&id);
            cells.time(at);
        });
        self.maybe(judge.ended_early, |cells, at| cells.time(at));
        self.plain(judge.untaken);
        self.plain(judge.others_waited);
        self.plain(judge.own_waited);
        if left.again > 0 {
            for (id, fence) in &world.again {
                self.id(id);
                self.number(fence.get());
            }
        }
    }

    fn storage(&mut self, world: &World) {
        use crate::ledger::Storage;
        let Ok(last) = world.storage.last_number();
        self.number(last);
        for (entry, _) in world.storage.holders().iter().chain(&world.storage.waiters()) {
            self.id(&entry.id);
            self.number(entry.ticket.get());
            self.time(entry.until);
            match entry.state {
                State::Waiting => self.plain(0_u64),
                State::Aside => self.plain(1_u64),
                State::Held { fence, first_life } => {
                    self.plain(2_u64 + u64::from(first_life));
                    self.number(fence.get());
                }
            }
        }
        for id in &world.gone {
            let Ok(traced) = world.storage.traced(id, world.now);
            self.plain(traced.is_some());
        }
    }

    fn line(&mut self, world: &World) {
        let line = &world.line;
        self.plain(line.waiters.len() as u64);
        for waiter in &line.waiters {
            self.id(&waiter.claim.id);
            self.ticket(waiter.ticket);
            match waiter.at {
                At::Here => self.plain(0_u64),
                At::Engine { open, stands } => {
                    self.plain(1_u64 + u64::from(open));
                    self.plain(match stands {
                        Stands::Unknown => 0_u64,
                        Stands::SinceTicket => 1,
                        Stands::SinceContact(sent) => 2 + (line.contacts - sent).min(3),
                    });
                }
            }
        }
        self.plain(line.numbers.is_empty());
        if !line.numbers.is_empty() {
            self.number(line.numbers.next);
            self.number(line.numbers.last);
        }
        self.plain(line.few_numbers_left());
        self.number(line.highest);
        self.maybe(line.tenancy.as_ref(), |cells, tenancy| {
            cells.id(&tenancy.carrier);
            cells.time(tenancy.good_until);
            cells.maybe(tenancy.contact_at, |cells, at| cells.time(at));
            cells.plain(tenancy.open);
            for flag in [
                tenancy.in_doubt,
                tenancy.taken,
                tenancy.shut,
                tenancy.active,
                tenancy.untaken_before,
            ] {
                cells.plain(flag);
            }
            cells.time(tenancy.empty_since);
            cells.number(tenancy.last.get());
            cells.maybe(tenancy.inside.as_ref(), |cells, inside| {
                cells.id(&inside.id);
                cells.grant(&inside.grant);
                cells.plain(inside.begun);
                cells.time(inside.until);
            });
        });
        self.maybe(line.news, |cells, news| {
            cells.time(news.sent);
            cells.plain(news.alone);
        });
        self.maybe(line.under_way, |cells, (number, until)| {
            cells.plain(line.contacts - number);
            cells.time(until);
        });
        self.time(line.last_sent);
        line.served.iter().for_each(|ticket| self.number(ticket.get()));
        self.plain(line.pause.min(Duration::from_secs(3)).as_millis() as u64);
        for former in &line.former {
            self.id(&former.id);
            self.id(&former.carrier);
            self.plain(former.in_doubt);
            self.time(former.until);
        }
        for owed in &line.owed {
            self.id(&owed.leave.id);
            self.plain(owed.leave.in_doubt);
            self.time(owed.next_try);
            self.time(owed.until);
        }
    }

    fn contact(&mut self, world: &World, contact: &Contact) {
        let line = &world.line;
        self.id(&contact.keep.id);
        self.number(contact.keep.fence.get());
        self.plain(contact.keep.ttl.as_millis() as u64);
        self.plain((line.contacts - contact.number).min(3));
        self.time(contact.sent);
        let is_current = line.tenancy.as_ref().is_some_and(|now| now.number == contact.tenancy);
        self.plain(is_current);
        self.plain(contact.asked_for);
    }

    fn travels(&mut self, world: &World, travels: &Travels) {
        match travels {
            Travels::There { message, sent, given_up } => {
                self.time(*sent);
                self.plain(*given_up);
                match message {
                    Message::Claim { claim, place } => {
                        self.id(&claim.id);
                        self.ticket(claim.ticket);
                        self.plain(2_u64 + u64::from(*place));
                    }
                    Message::Leave(leave) => {
                        self.id(&leave.id);
                        self.plain(4_u64 + u64::from(leave.in_doubt));
                        self.maybe(leave.only, |cells, fence| cells.number(fence.get()));
                    }
                    Message::Contact(contact, asker) => {
                        self.contact(world, contact);
                        self.maybe(*asker, |cells, who| cells.plain(who as u64));
                    }
                }
            }
            Travels::Back { reply, seen } => {
                self.time(*seen);
                match reply {
                    Reply::Claim(id, answered) => {
                        use crate::core::handover::line::Answered;
                        self.id(id);
                        match answered {
                            Answered::Granted(grant) => self.grant(grant),
                            Answered::Waiting(ticket) => self.ticket(Some(*ticket)),
                            Answered::Refused => self.plain(8_u64),
                            Answered::Unknown => self.plain(9_u64),
                        }
                    }
                    Reply::Left(id) => {
                        self.plain(10_u64);
                        self.id(id);
                    }
                    Reply::Ended(id) => {
                        self.plain(11_u64);
                        self.id(id);
                    }
                    Reply::Granted(id, grant) => {
                        self.plain(12_u64);
                        self.id(id);
                        self.grant(grant);
                    }
                    Reply::Contact { contact, kept, asker, others } => {
                        self.plain(*others);
                        self.contact(world, contact);
                        self.maybe(*asker, |cells, who| cells.plain(who as u64));
                        self.maybe(kept.as_ref(), |cells, kept| match kept {
                            Kepts::Held { fence, remaining, waiting, next, last } => {
                                cells.number(fence.get());
                                cells.plain(remaining.as_millis() as u64);
                                cells.plain(*waiting);
                                cells.number(*next);
                                cells.number(*last);
                            }
                            Kepts::Gone(broken) => cells.plain(20_u64 + u64::from(*broken)),
                        });
                    }
                }
            }
        }
    }
}
