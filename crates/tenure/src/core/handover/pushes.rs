//! What the engine pushes, on its way to the claims.

use std::fmt;
use std::sync::Weak;

use super::Shared;
use crate::engine::Turns;
use crate::model::claim::{ClaimId, Turn};
use crate::model::name::Name;

pub(super) struct Pushes {
    shared: Weak<Shared>,
}

impl Pushes {
    pub(super) fn new(shared: Weak<Shared>) -> Pushes {
        Pushes { shared }
    }
}

impl Turns for Pushes {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let Some(shared) = self.shared.upgrade() else { return false };
        let now = shared.world.now();
        match &turn {
            Turn::Granted(grant) => {
                let told = |line: &mut super::Line| {
                    line.granted(id, *grant, false, now);
                    line.has_handed_over(id)
                };
                // A late message: the carrier has left, but its hold is alive.
                if shared.tell(name, told) == Some(true) {
                    return true;
                }
                let taken = shared.deliver(name, id, turn.clone());
                if !taken {
                    shared.not_taken(name, id, grant.fence);
                }
                taken
            }
            Turn::Ended(ended) => {
                let told = |line: &mut super::Line| line.ended(id, ended.clone(), now);
                shared.tell(name, told) == Some(true) || shared.deliver(name, id, turn)
            }
            _ => shared.deliver(name, id, turn),
        }
    }

    fn look_again(&self, shard: u32) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.forget_news(&[shard]);
        if let Some(turns) = shared.turns.get().and_then(Weak::upgrade) {
            turns.look_again(shard);
        }
    }

    fn check_holds(&self, shards: &[u32]) {
        let Some(shared) = self.shared.upgrade() else { return };
        shared.forget_news(shards);
        if let Some(turns) = shared.turns.get().and_then(Weak::upgrade) {
            turns.check_holds(shards);
        }
    }
}

impl Shared {
    pub(super) fn weak(&self) -> Weak<Shared> {
        self.pushes.get().map_or_else(Weak::new, |pushes| pushes.shared.clone())
    }

    /// The engine may have missed something, or is another one.
    fn forget_news(&self, shards: &[u32]) {
        for name in self.lines.names(|name| shards.contains(&self.engine.shard(name))) {
            self.tell(&name, |line| line.forget_news());
        }
    }
}

impl fmt::Debug for Pushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pushes")
    }
}
