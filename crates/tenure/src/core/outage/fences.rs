//! The fences of holds that the engine did not grant.

use std::collections::HashMap;
use std::fmt;

use crate::model::claim::Fence;
use crate::model::name::Name;

/// How many names are remembered, at least.
const REMEMBERED: usize = 8192;

/// The last fence that the engine gave this process for each name that it recently held.
///
/// A hold without the engine has that fence again, because a higher one could win over a hold that the engine has
/// granted to someone else in the meantime. A resource that checks fences then accepts its writes until someone
/// with a newer grant has written. For a name that is not known here the fence is 0, which such a resource refuses
/// as soon as anyone has written at all.
#[derive(Default)]
pub(super) struct LastFences {
    new: HashMap<Name, Fence>,
    /// The previous generation, dropped when the new one is as large.
    old: HashMap<Name, Fence>,
}

impl LastFences {
    pub(super) fn granted(&mut self, name: &Name, fence: Fence) {
        if let Some(known) = self.new.get_mut(name) {
            *known = fence.max(*known);
            return;
        }
        if self.new.len() >= REMEMBERED {
            self.old = std::mem::take(&mut self.new);
        }
        let fence = self.old.remove(name).unwrap_or_default().max(fence);
        self.new.insert(name.clone(), fence);
    }

    pub(super) fn last(&self, name: &Name) -> Fence {
        self.new.get(name).or_else(|| self.old.get(name)).copied().unwrap_or_default()
    }
}

impl fmt::Debug for LastFences {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "LastFences(of {} names)", self.new.len() + self.old.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::name::Space;

    fn name(number: usize) -> Name {
        Name::new(Space::Lock, &format!("n{number}")).unwrap()
    }

    #[test]
    fn the_last_number_of_each_name_is_remembered_and_there_is_a_limit() {
        let mut fences = LastFences::default();
        assert_eq!(fences.last(&name(0)), Fence::default());
        fences.granted(&name(0), Fence::new(7));
        fences.granted(&name(0), Fence::new(9));
        fences.granted(&name(0), Fence::new(8));
        assert_eq!(fences.last(&name(0)), Fence::new(9));
        for number in 1..REMEMBERED + 1 {
            fences.granted(&name(number), Fence::new(1000 + number as u64));
        }
        assert_eq!(fences.last(&name(0)), Fence::new(9), "of the names before");
        fences.granted(&name(0), Fence::new(5));
        assert_eq!(fences.last(&name(0)), Fence::new(9), "it does not fall");
        for number in 0..REMEMBERED * 4 {
            fences.granted(&name(10_000_000 + number), Fence::new(1));
        }
        assert_eq!(fences.last(&name(0)), Fence::default());
        assert!(fences.new.len() + fences.old.len() <= 2 * REMEMBERED);
    }
}
