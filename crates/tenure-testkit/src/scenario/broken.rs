//! Holds that were broken, which their process may have handed over a moment before it learns of that.

use std::sync::Arc;
use std::time::Duration;

use tenure::Tenure;
use tenure::engine::{Engine, Moment, Name, Space};

use super::Play;

impl Play {
    /// A hold began. It counts as broken with the one before it if it was handed over right after that was broken: its
    /// process could not know yet. A turn that was given before may be taken until half of its first life is over.
    pub(super) fn excuse(&self, name: &str, fence: u64) {
        let scenario = &self.scenario;
        let trip = Duration::from_micros(scenario.faults.latency.1 * 4);
        let turn = scenario.ttl.min(Duration::from_secs(2)) / 2;
        let unknown = scenario.passes_within() + trip + turn;
        let mut seen = self.seen();
        let now = self.truth.now();
        let is_it = |(broken, first, at): &(String, u64, Moment)| {
            broken == name && fence > *first && now <= *at + unknown
        };
        // The engine's next grant is above all fences that the process had, and is no excuse for more.
        if seen.broken_at.iter().any(is_it) && self.is_unknown(name, fence) {
            seen.broken.insert((name.to_owned(), fence));
        }
    }

    /// Whether the engine knows another holder, or none.
    fn is_unknown(&self, name: &str, fence: u64) -> bool {
        let name = Name::new(Space::Lock, name).ok();
        let view = name.and_then(|name| self.engine.glance(&name));
        let holders = view.map(|view| view.holders).unwrap_or_default();
        !holders.iter().any(|holder| holder.fence.get() == fence)
    }

    /// An operator breaks what was seen, which may have been handed over since, a moment ago.
    pub(super) fn breaks(&self, name: &str, fence: u64) {
        let now = self.truth.now();
        let mut seen = self.seen();
        seen.broken.insert((name.to_owned(), fence));
        if self.scenario.hands_over {
            let live = seen.live.get(name).into_iter().flatten();
            let later: Vec<_> = live.map(|inside| inside.fence).filter(|it| *it > fence).collect();
            seen.broken.extend(later.into_iter().map(|it| (name.to_owned(), it)));
            seen.broken_at.push((name.to_owned(), fence, now));
        }
    }

    pub(super) fn break_one(self: &Arc<Self>) {
        let play = self.clone();
        self.truth.start(Box::pin(async move {
            let operator = Tenure::in_world(play.engine.clone(), play.truth.world());
            for view in operator.list("").await.unwrap_or_default() {
                if let Some(holder) = view.holders.first() {
                    let name = view.name.as_str().to_owned();
                    play.breaks(&name, holder.fence.get());
                    let _ = operator.break_hold(view.name.as_str(), holder.fence, "drill").await;
                }
            }
        }));
    }

    pub(super) fn view(&self, number: u64) -> Option<tenure::View> {
        let name = Name::new(Space::Lock, &format!("n{number}")).ok()?;
        self.engine.glance(&name)
    }
}
