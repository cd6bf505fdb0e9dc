//! Where a waiting claim stands.

use std::time::Duration;

use super::{FIRST_LIFE, Fence, Holder, Ticket};
use crate::model::moment::Moment;

/// Where a waiting claim stands, in the caller's time.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its arrival number.
    pub ticket: Ticket,
    /// How many wait before it.
    pub ahead: u32,
    /// No fence up to this one can be its turn: a turn that says so is an old one.
    pub floor: Fence,
    /// When what the engine answered was asked.
    pub asked_at: Moment,
    /// When to ask again if no turn was pushed by then.
    pub look_again: Moment,
    /// Who holds it now, or the one that ends first of those.
    pub holder: Option<Holder>,
}

impl Place {
    /// The same for one for which there are units enough, while one before it waits for more of them. Should
    /// that one die or give up, nobody hears of it: those right behind find out.
    pub(crate) fn held_up(mut self) -> Place {
        let look = self.asked_at + FIRST_LIFE * self.ahead.min(10);
        self.look_again = self.look_again.min(look);
        self
    }
}

/// When a waiter with `ahead` others before it should look, if the next hold ends at `next_end`.
///
/// Staggered, because the moment is the same for all processes that wait.
pub fn look_again(next_end: Moment, ahead: u32) -> Moment {
    next_end + Duration::from_millis(1) + Duration::from_millis(5) * ahead.min(40)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looking_is_staggered_up_to_a_fifth_of_a_second() {
        let end = Moment::from_nanos(0);
        assert_eq!(look_again(end, 0), end + Duration::from_millis(1));
        assert_eq!(look_again(end, 3), end + Duration::from_millis(16));
        assert_eq!(look_again(end, 9000), end + Duration::from_millis(201));
        assert_eq!(look_again(Moment::FAR, 9000), Moment::FAR);
    }
}
