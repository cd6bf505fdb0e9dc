//! The place of a waiting claim.

use std::time::Duration;

use super::{FIRST_LIFE, Fence, Holder, Ticket};
use crate::model::moment::Moment;

/// The place of a waiting claim, in the caller's time.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its arrival number.
    pub ticket: Ticket,
    /// How many wait before it.
    pub ahead: u32,
    /// A turn with a fence up to this one is stale.
    pub floor: Fence,
    /// When the request that was answered was sent.
    pub asked_at: Moment,
    /// When to ask again if no turn has been pushed by then.
    pub look_again: Moment,
    /// The holder, or the one whose hold ends first.
    pub holder: Option<Holder>,
}

impl Place {
    /// The same place for a claim for which enough units are free, while a claim before it waits for more of
    /// them. If that one dies or gives up, nobody is told, so the claims right behind it must find out.
    pub(crate) fn held_up(mut self) -> Place {
        let look = self.asked_at + FIRST_LIFE * self.ahead.min(10);
        self.look_again = self.look_again.min(look);
        self
    }
}

/// When a waiter with `ahead` others before it should look, if the next hold ends at `next_end`.
///
/// Staggered, because `next_end` is the same for all processes that wait.
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
