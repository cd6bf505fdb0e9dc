//! What must never happen.

use std::collections::VecDeque;
use std::time::Duration;

use super::state::{Inside, Message, Own, Travels, World, stranger_id};
use crate::core::handover::line::{At, Line};
use crate::ledger::{self, Entry, State, Storage};
use crate::model::claim::{ClaimId, Fence};
use crate::model::moment::Moment;

#[derive(Clone, Debug, Default)]
pub(super) struct Judge {
    /// What was wrong first.
    pub(super) wrong: Option<String>,
    pub(super) arrivals: u64,
    /// The highest fence with which anyone was inside.
    pub(super) highest: Fence,
    /// The carrier whose hold was broken last, and when.
    pub(super) broken: Option<(ClaimId, Moment)>,
    /// When a hold of the process was broken, or ran out: those who stand in the process learn that later.
    pub(super) ended_early: Option<Moment>,
    /// An answer is being heard that the engine gave at that time.
    pub(super) answer_of: Option<Moment>,
    /// The claim that leaves had extended its hold.
    pub(super) extended: bool,
    /// The last turn that was given here, while it is not known to be taken.
    pub(super) untaken: bool,
    /// Others waited when the engine answered the last renewal.
    pub(super) others_waited: bool,
    /// Somebody waited, as far as the process has heard.
    pub(super) own_waited: bool,
    /// Counts, which are not part of the state.
    pub(super) handed_over: u32,
    pub(super) here_behind_own: u32,
}

impl Judge {
    fn say(&mut self, what: impl Into<String>) {
        self.wrong.get_or_insert(what.into());
    }

    /// What must be true in every state.
    pub(super) fn look(&mut self, world: &World) {
        let own = world.own.iter().filter(|own| {
            matches!(own, Own::Inside(inside) if world.now < inside.good_until && !inside.broken)
        });
        let holds = |who: usize| {
            let Ok(found) = world.storage.find(&stranger_id(who));
            matches!(found, Some(Entry { state: State::Held { .. }, until, .. }) if until > world.now)
        };
        let strangers = (0..world.strangers.len()).filter(|who| holds(*who)).count();
        let inside = own.count() + strangers;
        if inside > 1 {
            self.say(format!("{inside} are inside"));
        }
        for who in 0..world.strangers.len() {
            let Ok(found) = world.storage.find(&stranger_id(who));
            if let Some(Entry { state: State::Held { fence, .. }, .. }) = found {
                self.highest = self.highest.max(fence);
            }
        }
        let here = world.line.waiters.iter().filter(|waiter| waiter.at == At::Here);
        let tickets: Vec<_> = here.map(|waiter| waiter.ticket).collect();
        if !tickets.is_sorted_by(|one, next| one < next) {
            self.say("the tickets of those who stand here do not rise");
        }
        let Some(tenancy) = world.line.tenancy() else { return };
        let Ok(held) = world.storage.find(&tenancy.carrier);
        let is_broken = self.broken.is_some_and(|(carrier, _)| carrier == tenancy.carrier);
        if world.now < tenancy.good_until && !is_broken {
            match held {
                Some(Entry { state: State::Held { .. }, until, .. }) => {
                    if until < tenancy.good_until {
                        self.say("it believes in a hold for longer than the engine");
                    }
                }
                _ => self.say("it believes in a hold that is over"),
            }
        }
        let waits_here = world.own.iter().any(|own| matches!(own, Own::Asking(_)));
        if tenancy.inside.is_none() && !waits_here {
            self.say("a hold that nobody wants is kept");
        }
    }

    /// A claim stands in the process, with a ticket above those of all that stood in line a second before.
    pub(super) fn stands_behind(&mut self, is_above: bool) {
        if !is_above {
            self.say("a newcomer has a lower ticket than one before it");
        }
    }

    /// The engine served one who came later first. `is_there`: the claim stands at the engine.
    pub(super) fn passes(&mut self, is_own: bool, is_there: bool) {
        let who = if is_own { "one of the same process" } else { "one of another process" };
        let place = if is_there { "the engine" } else { "the process" };
        self.say(format!("{who} overtook a claim that stood at {place} before"));
    }

    pub(super) fn is_broken(&self, line: &Line) -> bool {
        let carrier = line.tenancy().map(|tenancy| tenancy.carrier);
        self.broken.is_some_and(|(broken, _)| carrier == Some(broken))
    }

    pub(super) fn begins(&mut self, fence: Fence, asked: Moment, waiting: &[Moment], broken: bool) {
        // When a hold is broken, its process learns that later than the next holder.
        if fence <= self.highest && !broken {
            self.say("the fence does not rise");
        }
        self.highest = self.highest.max(fence);
        // What is in the same second may be in any order.
        if waiting.iter().any(|joined| *joined + Duration::from_millis(1) < asked) {
            self.say("one who came later overtook one of another process");
        }
        self.untaken = false;
    }

    pub(super) fn gives(&mut self, fence: Fence, now: Moment, broken: bool) {
        self.handed_over += 1;
        if fence <= self.highest && !broken {
            self.say("the fence of a turn does not rise");
        }
        if self.extended {
            self.say("a hold that was extended is handed over");
        }
        if let Some((_, at)) = self.broken
            && broken
            && now > at
            && self.answer_of.is_none_or(|seen| seen > at)
        {
            self.say("a hold that was broken long before is handed over");
        }
        if self.untaken && self.others_waited {
            self.say("two turns in a row were not taken while others waited");
        }
        self.untaken = true;
    }

    pub(super) fn in_order(&mut self, arrival: u64, first: u64) {
        if first < arrival {
            self.say("a claim of the same process was overtaken");
        }
    }

    /// A claim that has the hold was told that it has ended.
    pub(super) fn told(&mut self, _line: &Line, storage: &ledger::Line<u64>, now: Moment) {
        let holders = storage.holders();
        let still = holders.iter().any(|(entry, _)| entry.process == 1 && entry.until > now);
        if still && self.broken.is_none() {
            self.say("it was told of an end that is not");
        }
    }

    /// The end of the broken hold was heard.
    pub(super) fn was_told(&mut self, own: &[Own]) {
        if own.iter().any(|own| matches!(own, Own::Inside(Inside { broken: true, .. }))) {
            self.say("the claim that has the hold was not told of its end");
        }
    }

    /// A request to hold has reached the engine.
    pub(super) fn arrived(
        &mut self,
        gone: &[ClaimId],
        id: &ClaimId,
        storage: &ledger::Line<u64>,
        there: &VecDeque<Travels>,
    ) {
        let Ok(found) = storage.find(id);
        let leaves = |travels: &Travels| matches!(travels, Travels::There { message: Message::Leave(leave), .. } if leave.id == *id);
        if gone.contains(id) && found.is_some() && !there.iter().any(leaves) {
            self.say("a claim that has left is back");
        }
    }
}
