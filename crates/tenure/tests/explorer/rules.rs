//! What must hold after every step, whatever happened before it.

use tenure::engine::{Broken, Ended, FIRST_LIFE, Fence, Left, Moment};
use tenure::ledger::{Answer, Entry, LOOKERS, LOOKERS_APART, State, Word};

use super::action::Action;
use super::world::{Done, Facts, Reply, Setting, TTL, World, whose};

/// One step: the world before it, what happened, and the world after it.
pub(crate) struct Step<'a> {
    setting: &'a Setting,
    before: &'a World,
    then: &'a Facts,
    action: Action,
    done: &'a Done,
    after: &'a World,
    now: &'a Facts,
    /// Holds that this step granted.
    granted: Vec<Entry>,
    /// The claimant that makes a claim in this step, unless it is one that must do nothing.
    asks: Option<usize>,
    /// The process that makes contact in this step.
    contact: Option<u64>,
}

/// Why a step is wrong.
pub(crate) type Verdict = Result<(), String>;

macro_rules! must {
    ($holds:expr, $($text:tt)*) => {
        if !$holds {
            return Err(format!($($text)*));
        }
    };
}

impl<'a> Step<'a> {
    pub(crate) fn new(
        setting: &'a Setting,
        (before, then): (&'a World, &'a Facts),
        (action, done): (Action, &'a Done),
        (after, now): (&'a World, &'a Facts),
    ) -> Step<'a> {
        let mut granted = now.held.clone();
        granted.retain(|hold| then.holds(&hold.id).is_none_or(|then| then.fence() != hold.fence()));
        let asks = match action {
            Action::Claim(who) | Action::Keep(who) | Action::Try(who) => Some(who),
            _ => None,
        };
        let heard_of = match (action, &done.reply) {
            (Action::Renew(who), Reply::Renewed(Answer::Granted { .. })) => Some(who),
            _ => asks,
        };
        let contact = heard_of.map(|who| setting.processes[who]).filter(|process| *process != 0);
        Step { setting, before, then, action, done, after, now, granted, asks, contact }
    }

    /// Every rule in turn.
    pub(crate) fn judge(&self) -> Verdict {
        self.everything_is_in_one_place()?;
        self.no_more_is_held_than_there_is()?;
        self.nobody_is_overtaken()?;
        self.no_turn_is_lost()?;
        self.only_the_living_hold_up_who_asks()?;
        self.what_is_over_is_gone()?;
        self.fences_rise()?;
        self.then_held()?;
        self.then_waited()?;
        self.contact_brings_back()?;
        self.words_are_true()?;
        self.the_answer_is_true()
    }

    fn everything_is_in_one_place(&self) -> Verdict {
        let totals = (self.now.totals.held, self.now.totals.waiting as usize);
        must!(totals == (self.now.weight_held(), self.now.waiting.len()), "the totals are wrong");
        let mut rest = self.now.held.iter().chain(&self.now.waiting);
        while let Some(entry) = rest.next() {
            for other in rest.clone() {
                must!(entry.id != other.id, "a claim is in two places");
                must!(entry.ticket != other.ticket, "two claims have the same ticket");
            }
            let mine = self.after.actors[whose(&entry.id)].mine;
            must!(mine.is_some_and(|mine| mine.id == entry.id), "a claim that left is still there");
            let asks = self.asks == Some(whose(&entry.id));
            must!(asks || self.then.find(&entry.id).is_some(), "a claim came that nobody made");
        }
        Ok(())
    }

    fn no_more_is_held_than_there_is(&self) -> Verdict {
        let (held, capacity) = (self.now.weight_held(), self.after.capacity);
        // Only an operator can cause this, and then nothing is granted until enough has left.
        let excused = self.after.resized && self.granted.is_empty();
        must!(held <= capacity || excused, "{held} held of {capacity}");
        Ok(())
    }

    /// The walk goes by ticket and ends with the first that does not fit. So nobody who still waits
    /// after a grant, and was not passed over because it could not be reached, has a lower ticket.
    fn nobody_is_overtaken(&self) -> Verdict {
        for hold in &self.granted {
            let mut passed = self.now.in_line().filter(|place| place.ticket < hold.ticket);
            must!(passed.next().is_none(), "{} overtook one who waits", self.named(hold));
        }
        Ok(())
    }

    fn no_turn_is_lost(&self) -> Verdict {
        let free = self.after.capacity.saturating_sub(self.now.weight_held());
        let head = self.now.in_line().min_by_key(|place| place.ticket);
        must!(head.is_none_or(|head| head.weight > free), "the head of the line fits and waits");
        Ok(())
    }

    fn only_the_living_hold_up_who_asks(&self) -> Verdict {
        let Reply::Claimed(Answer::Waiting { .. } | Answer::Busy) = &self.done.reply else {
            return Ok(());
        };
        let free = self.after.capacity.saturating_sub(self.now.weight_held());
        let head = self.now.in_line().min_by_key(|place| place.ticket).map(|head| whose(&head.id));
        if let Some(head) = head.filter(|head| free > 0 && self.asks != Some(*head)) {
            let deaf = self.before.actors[head].deaf;
            must!(!deaf, "who asks is held up by one who cannot be reached");
        }
        Ok(())
    }

    fn what_is_over_is_gone(&self) -> Verdict {
        let mut all = self.now.held.iter().chain(&self.now.waiting);
        let gone = !self.swept() || all.all(|entry| entry.until > self.after.now);
        must!(gone, "something is over and still there");
        Ok(())
    }

    fn fences_rise(&self) -> Verdict {
        if self.granted.is_empty() && self.done.said.is_empty() {
            return Ok(());
        }
        let missed = self.done.said.iter().filter_map(|(_, word, heard)| match word {
            Word::Granted { fence, .. } if !heard => Some(*fence),
            _ => None,
        });
        let mut fences: Vec<Fence> = self.granted.iter().map(Entry::fence).chain(missed).collect();
        fences.sort();
        let mut highest = self.before.highest;
        for fence in fences {
            must!(fence > highest, "fence {fence} does not rise above {highest}");
            highest = fence;
        }
        Ok(())
    }

    /// A hold stays as it is until it leaves, is broken or ends.
    fn then_held(&self) -> Verdict {
        for hold in &self.then.held {
            let own = self.action.who() == Some(whose(&hold.id));
            let over = hold.until <= self.after.now;
            let ends = matches!(
                self.action,
                Action::Leave(_) | Action::LeaveInDoubt(_) | Action::Break(_)
            );
            let Some(held) = self.now.holds(&hold.id) else {
                must!(over || own && ends, "{} lost its hold", self.named(hold));
                continue;
            };
            if held.fence() != hold.fence() {
                must!(over && self.asks.is_some() && own, "the fence of a hold changed");
            } else if own && !over && matches!(self.action, Action::Renew(_)) {
                let until = hold.until.max(self.after.now + TTL);
                let state = State::Held { fence: hold.fence(), first_life: false };
                must!(
                    *held == Entry { until, state, ..*hold },
                    "a renewal does not make it the ttl"
                );
            } else {
                must!(held == hold, "the hold of {} changed by itself", self.named(hold));
            }
        }
        Ok(())
    }

    /// A place is kept until it is left, granted or over; a claim that was set aside could not be reached.
    fn then_waited(&self) -> Verdict {
        for place in &self.then.waiting {
            let own = self.action.who() == Some(whose(&place.id));
            let over = place.until <= self.after.now;
            let leaves = matches!(self.action, Action::Leave(_) | Action::LeaveInDoubt(_));
            let refused = place.weight > self.after.capacity;
            let Some(found) = self.now.find(&place.id) else {
                must!(over || own && leaves || refused, "{} lost its place", self.named(place));
                continue;
            };
            must!(found.ticket == place.ticket, "the ticket of a place changed");
            let silent =
                self.a_hold_ran_out_in(place.process) && self.contact != Some(place.process);
            let passed_over = !silent || found.state == State::Aside || !self.swept();
            must!(
                passed_over,
                "{} is served, though its process let a hold run out",
                self.named(place)
            );
            match (place.state, found.state) {
                (State::Waiting, State::Aside) => {
                    let excused = self.missed(found) || self.a_hold_ran_out_in(found.process);
                    must!(excused, "{} was set aside for nothing", self.named(found));
                }
                (State::Aside, State::Waiting | State::Held { .. }) => {
                    let back = own && self.asks.is_some() || self.contact == Some(found.process);
                    must!(back, "{} came back without contact", self.named(found));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn contact_brings_back(&self) -> Verdict {
        for place in self.now.waiting.iter().filter(|place| place.state == State::Aside) {
            let asks = self.asks == Some(whose(&place.id));
            must!(!asks, "{} asks and is set aside", self.named(place));
            let back = self.contact == Some(place.process) && !self.missed(place);
            must!(!back, "{} was not brought back", self.named(place));
        }
        Ok(())
    }

    fn words_are_true(&self) -> Verdict {
        for (to, word, heard) in &self.done.said {
            let held = self.now.holds(&to.id);
            match word {
                Word::Granted { fence, life, first_life } if *heard => {
                    let state = State::Held { fence: *fence, first_life: *first_life };
                    let until = self.after.now + *life;
                    let true_to_it =
                        held.is_some_and(|held| held.state == state && held.until == until);
                    must!(true_to_it, "{} heard of a grant that is none", self.named(to));
                    let short = *life == FIRST_LIFE && *first_life;
                    must!(short, "a pushed turn lasts more than a first life");
                    must!(self.asks != Some(whose(&to.id)), "one who asks was told as well");
                }
                Word::Granted { .. } => must!(held.is_none(), "one who cannot be reached holds"),
                Word::Ended(Ended::Broken(_)) => {
                    must!(matches!(self.action, Action::Break(_)), "broken for nothing")
                }
                Word::Ended(Ended::Conflict { .. }) => {
                    must!(to.weight > self.after.capacity, "refused for nothing")
                }
                Word::LookAt(at) => {
                    let end = self.now.held.iter().map(|hold| hold.until).min();
                    let latest = end.map(|end| end + LOOKERS_APART * LOOKERS as u32);
                    must!(end <= Some(*at) && Some(*at) <= latest, "told to look when nothing ends")
                }
                Word::AreYouThere => {
                    let free = self.after.capacity.saturating_sub(self.now.weight_held());
                    let asks = self.asks.is_some() && self.asks != Some(whose(&to.id));
                    must!(asks && (free > 0 || !heard), "{} was asked for nothing", self.named(to));
                }
                other => return Err(format!("{} heard {other:?}", self.named(to))),
            }
        }
        for hold in self.granted.iter().filter(|hold| self.asks != Some(whose(&hold.id))) {
            let told = self.done.said.iter().any(|(to, _, heard)| to.id == hold.id && *heard);
            must!(told, "{} holds and was not told", self.named(hold));
        }
        Ok(())
    }

    fn the_answer_is_true(&self) -> Verdict {
        let Some(who) = self.action.who() else { return Ok(()) };
        let mine = self.before.actors[who].mine;
        let live = mine.and_then(|mine| self.then.find(&mine.id));
        let live = live.filter(|entry| entry.until > self.after.now);
        let holds = live.filter(|entry| matches!(entry.state, State::Held { .. }));
        let gone = match mine {
            Some(mine) if mine.broken_until > self.after.now => "broken",
            _ => "expired",
        };
        let right = match &self.done.reply {
            Reply::Nothing | Reply::Looked => true,
            Reply::Claimed(answer) => return self.the_claim_is_answered(who, answer),
            Reply::Renewed(Answer::Granted { fence, remaining, first_life: false }) => {
                let until = self.after.now + *remaining;
                let renewed = |held: &Entry| held.fence() == *fence && held.until == until;
                holds.is_some_and(|held| self.now.holds(&held.id).is_some_and(renewed))
            }
            Reply::Renewed(Answer::Gone(why)) => holds.is_none() && named(why) == gone,
            Reply::Renewed(_) => false,
            Reply::Left(Left::Released) => holds.is_some(),
            Reply::Left(Left::Quit) => holds.is_none() && live.is_some(),
            Reply::Left(Left::Gone(why)) => live.is_none() && named(why) == gone,
            Reply::Broken(Broken::Done) => holds.is_some(),
            Reply::Broken(Broken::MovedOn) => holds.is_none(),
        };
        must!(right, "the answer was {:?}", self.done.reply);
        Ok(())
    }

    fn the_claim_is_answered(&self, who: usize, answer: &Answer) -> Verdict {
        if matches!(self.action, Action::Duplicate(_)) {
            must!(*answer == Answer::Left, "a claim that left in doubt was answered {answer:?}");
            return Ok(());
        }
        let mine = self.after.actors[who].mine;
        let entry = mine.and_then(|mine| self.now.find(&mine.id));
        let free = self.after.capacity.saturating_sub(self.now.weight_held());
        let weight = self.setting.weights[who];
        let right = match (answer, entry) {
            (Answer::Granted { fence, remaining, first_life }, Some(held)) => {
                let (fence, first_life) = (*fence, *first_life);
                let new = self.then.holds(&held.id).is_none_or(|then| then.fence() != fence);
                let in_hand = !matches!(self.action, Action::Keep(_));
                let life = if in_hand { TTL } else { FIRST_LIFE.min(TTL) };
                held.state == State::Held { fence, first_life }
                    && held.until == self.after.now + *remaining
                    && (!new || *remaining == life && first_life == (life < TTL))
            }
            (Answer::Waiting { ticket, ahead, floor, next_end, held_up }, Some(place)) => {
                let before = self.now.in_line().filter(|other| other.ticket < place.ticket).count();
                let ends = self.now.held.iter().map(|hold| hold.until).min();
                place.ticket == *ticket
                    && place.state == State::Waiting
                    && before == *ahead as usize
                    && *held_up == (before > 0 && weight <= free)
                    && *floor >= self.after.highest
                    && *next_end == ends.unwrap_or(Moment::FAR)
            }
            // Nothing is free for it, or it would pass someone.
            (Answer::Busy, None) => {
                let waits = self.now.in_line().next().is_some();
                matches!(self.action, Action::Try(_)) && (waits || weight > free)
            }
            (Answer::Conflict { capacity }, None) => {
                *capacity == self.after.capacity && weight > *capacity
            }
            _ => false,
        };
        must!(right, "the answer was {answer:?}");
        Ok(())
    }

    /// Whether the ledger looked at the time; it need not for a late duplicate.
    fn swept(&self) -> bool {
        !matches!(self.done.reply, Reply::Nothing | Reply::Claimed(Answer::Left))
    }

    fn missed(&self, place: &Entry) -> bool {
        self.done.said.iter().any(|(to, _, heard)| to.id == place.id && !heard)
    }

    fn a_hold_ran_out_in(&self, process: u64) -> bool {
        let over = |hold: &Entry| hold.process == process && hold.until <= self.after.now;
        process != 0 && self.then.held.iter().any(over)
    }

    fn named(&self, entry: &Entry) -> &'static str {
        ["a", "b", "c", "d"][whose(&entry.id)]
    }
}

fn named(why: &Ended) -> &'static str {
    match why {
        Ended::Expired => "expired",
        Ended::Broken(_) => "broken",
        _ => "something else",
    }
}
