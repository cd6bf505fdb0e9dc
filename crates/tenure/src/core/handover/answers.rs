//! What the engine answers to claims, on its way to the machine.

use super::Shared;
use super::line::Answered;
use crate::engine::Ack;
use crate::model::claim::{ClaimId, Leave, Renewed, Turn, Verdict};
use crate::model::error::Result;
use crate::model::name::Name;

impl Shared {
    /// The engine has answered a claim that may share a hold.
    pub(super) fn claimed(&self, name: &Name, id: &ClaimId, answer: &Result<Verdict>) {
        let answered = match answer {
            Ok(Verdict::Granted(grant)) => Answered::Granted(*grant),
            Ok(Verdict::Waiting(place)) => Answered::Waiting(place.ticket),
            Ok(_) => Answered::Refused,
            Err(error) if error.may_have_happened() => Answered::Unknown,
            Err(_) => Answered::Refused,
        };
        let now = self.world.now();
        self.tell(name, |line| line.answered(id, answered, now));
    }

    /// The same for a place that was renewed.
    pub(super) fn place_renewed(&self, name: &Name, id: &ClaimId, answer: &Renewed) {
        let answered = match answer {
            Renewed::Held(grant) => Answered::Granted(*grant),
            Renewed::Waiting(place) => Answered::Waiting(place.ticket),
            Renewed::Gone(_) => Answered::Refused,
            Renewed::Unknown(error) if error.may_have_happened() => Answered::Unknown,
            Renewed::Unknown(_) => Answered::Refused,
        };
        let now = self.world.now();
        self.tell(name, |line| line.answered(id, answered, now));
    }

    /// Claims that stood here were sent to the engine: they learn of their turn or ask for their places.
    pub(super) fn claimed_anew(&self, name: &Name, ids: &[ClaimId], answers: Option<Vec<Renewed>>) {
        let mut answers = answers.map(Vec::into_iter);
        let now = self.world.now();
        for id in ids {
            let answer = answers.as_mut().and_then(Iterator::next);
            match &answer {
                Some(answer) => self.place_renewed(name, id, answer),
                None => drop(self.tell(name, |line| line.answered(id, Answered::Unknown, now))),
            }
            if let Some(Renewed::Held(grant)) = answer {
                if !self.deliver(name, id, Turn::Granted(grant)) {
                    self.not_taken(name, id, grant.fence);
                    let only = Some(grant.fence);
                    let leave = Leave { only, unbegun: true, ..Leave::new(name.clone(), *id) };
                    self.engine.leave_soon(leave, Ack::from_fn(|_| {}));
                }
            } else {
                self.deliver(name, id, Turn::LookAgain);
            }
        }
    }
}
