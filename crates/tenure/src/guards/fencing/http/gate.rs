//! Which requests are being served, by name: those with one fence, while higher ones wait and lower ones are
//! refused.
//!
//! A check alone is not enough: a request that has passed it can be slower than one with a higher fence
//! that passed it later. Only names that are being served take memory.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::guards::fencing::{Stale, check};
use crate::model::claim::Fence;

#[derive(Default)]
pub(super) struct Gate {
    names: Mutex<HashMap<String, Served>>,
}

/// The requests for one name, inside the gate or in front of it.
#[derive(Default)]
struct Served {
    /// The highest fence of any of them.
    highest: Fence,
    /// The fence of those inside, and their number.
    inside: (Fence, usize),
    /// The number of all of them.
    present: usize,
    /// Someone has left, or the highest fence has risen.
    news: Arc<Notify>,
}

impl Gate {
    /// Waits until all requests with a lower fence have been answered.
    pub(super) async fn enter(self: &Arc<Gate>, name: &str, fence: Fence) -> Result<Pass, Stale> {
        let mut pass = self.arrive(name, fence);
        loop {
            // Created before checking, so that no notification is missed.
            let news = pass.news.clone();
            let news = news.notified();
            if pass.try_enter()? {
                return Ok(pass);
            }
            news.await;
        }
    }

    fn arrive(self: &Arc<Gate>, name: &str, fence: Fence) -> Pass {
        let mut names = self.names();
        let served = names.entry(name.to_owned()).or_default();
        served.present += 1;
        if fence > served.highest {
            served.highest = fence;
            served.news.notify_waiters();
        }
        let news = served.news.clone();
        Pass { gate: self.clone(), name: name.to_owned(), fence, inside: false, news }
    }

    fn names(&self) -> MutexGuard<'_, HashMap<String, Served>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request, from its arrival until this is dropped.
pub(super) struct Pass {
    gate: Arc<Gate>,
    name: String,
    fence: Fence,
    inside: bool,
    news: Arc<Notify>,
}

impl Pass {
    fn try_enter(&mut self) -> Result<bool, Stale> {
        let mut names = self.gate.names();
        let Some(served) = names.get_mut(&self.name) else { return Ok(false) };
        let highest = served.highest;
        let (fence, count) = &mut served.inside;
        self.inside = self.fence >= highest && (*count == 0 || *fence == self.fence);
        if self.inside {
            (*fence, *count) = (self.fence, *count + 1);
        }
        drop(names);
        check(&self.name, self.fence, highest).map(|()| self.inside)
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        let mut names = self.gate.names();
        let Some(served) = names.get_mut(&self.name) else { return };
        served.present -= 1;
        served.inside.1 -= usize::from(self.inside);
        if served.present == 0 {
            names.remove(&self.name);
        } else if served.inside.1 == 0 {
            served.news.notify_waiters();
        }
    }
}
