//! What is to be done when the mutex of a stake is free.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use crate::core::local_line;
use crate::model::claim::{Ended, Leave};
use crate::model::moment::Moment;
use crate::observe::Holding;

/// What a look or a message leaves to be done, once the mutex is free.
#[derive(Debug, Default)]
pub(crate) struct Todo {
    /// The asking future.
    pub(crate) wake: Option<Waker>,
    /// Those who watch.
    pub(crate) wake_observers: Vec<Waker>,
    /// It is to be renewed, and an answer is needed by then.
    pub(crate) renew: Option<Moment>,
    pub(crate) leave: Option<Leave>,
    pub(crate) lost: Option<Ended>,
    pub(crate) at_risk: Option<Arc<str>>,
    /// A renewal of a hold was answered, or was not.
    pub(crate) heard: Option<Heard>,
    /// What lasted as long as the hold, which has ended.
    pub(crate) holding: Option<Arc<Holding>>,
    /// The release was never answered, and by now need not be.
    pub(crate) unanswered: bool,
    /// The release was not answered for as long as anyone waits for that.
    pub(crate) unheard: bool,
    /// The stake has ended and can be forgotten.
    pub(crate) over: bool,
    /// Its place in this process's own line, to be left when every mutex is free.
    pub(crate) frees: Option<Box<local_line::Place>>,
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Heard {
    /// So much was left, of a first life or of a whole ttl.
    Renewed {
        left: Duration,
        first_life: bool,
    },
    Unanswered,
    Gone,
}

impl Todo {
    /// Those who watch are to be woken.
    pub(super) fn call(&mut self, observers: &mut Vec<(u64, Waker)>) {
        self.wake_observers.extend(observers.drain(..).map(|(_, waker)| waker));
    }

    pub(crate) fn is_empty(&self) -> bool {
        let quiet = self.lost.is_none()
            && self.at_risk.is_none()
            && self.wake.is_none()
            && self.heard.is_none()
            && self.wake_observers.is_empty();
        let idle = self.renew.is_none() && self.leave.is_none() && self.frees.is_none();
        quiet && idle && !self.over && !self.unheard
    }
}
