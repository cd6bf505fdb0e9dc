//! What a claim needs whose engine may be out of reach: a place in this process's own line, and a way
//! not to have been sent.

use super::phase::Phase;
use super::{Stake, Todo};
use crate::core::local_line;
use crate::model::claim::{Claim, Fence};

impl Stake {
    /// It is there, and the engine was not asked yet: whoever drops it now leaves nothing.
    pub(crate) fn not_sent(&self) {
        self.state().unsent = true;
    }

    /// The claim to send first, with what was seen since it was made.
    pub(crate) fn first(&self, seen: Fence) -> Claim {
        let mut state = self.state();
        state.unsent = false;
        state.again(&self.claim, seen)
    }

    /// It has its turn in this process's own line, and keeps it as long as it lasts.
    pub(crate) fn accompany(&self, place: Box<local_line::Place>) {
        let before = self.state().companion.replace(place);
        drop(before);
    }

    /// What it has in this process's own line, to be passed on or left.
    pub(crate) fn part(&self) -> Option<Box<local_line::Place>> {
        self.state().companion.take()
    }

    /// Whether it has ended for good.
    pub(crate) fn is_over(&self) -> bool {
        matches!(self.state().phase, Phase::Over(_))
    }

    /// Wakes the asking future: the engine cannot be reached.
    pub(crate) fn ring(&self, todo: &mut Todo) {
        let mut state = self.state();
        if let Phase::Asking(asking) = &mut state.phase {
            asking.rung = true;
            todo.wake = state.waker.take();
        }
    }
}
