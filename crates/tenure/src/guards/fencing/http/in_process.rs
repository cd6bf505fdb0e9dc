//! A memory that lasts as long as the process.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::{Failure, Remember};
use crate::guards::fencing::{GuardError, check};
use crate::model::claim::Fence;

/// Remembers fences in this process.
///
/// It forgets none, because a name that is forgotten would let late requests pass: when it has reached its limit,
/// requests for other names are refused with 503. The memory ends with the process: after a restart, a late
/// request passes if it arrives before the next one of the current holder.
#[derive(Debug)]
pub struct InProcess {
    most: usize,
    names: Mutex<HashMap<String, Fence>>,
}

impl InProcess {
    /// Remembers at most `most` names. Each takes about 100 bytes plus its text.
    #[must_use]
    pub fn new(most: usize) -> InProcess {
        InProcess { most, names: Mutex::default() }
    }

    fn raise(&self, name: &str, fence: Fence) -> Result<(), GuardError<Failure>> {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        let full = names.len() >= self.most;
        let seen = match names.get_mut(name) {
            Some(seen) => std::mem::replace(seen, fence.max(*seen)),
            None if full => {
                let what = format!("{} names are remembered, which is the limit", self.most);
                return Err(GuardError::Failed(what.into()));
            }
            None => names.insert(name.to_owned(), fence).unwrap_or_default(),
        };
        drop(names);
        check(name, fence, seen).map_err(GuardError::Stale)
    }
}

impl Remember for InProcess {
    /// # Cancel safety
    /// It is complete when it is first polled.
    async fn guard(&self, name: &str, fence: Fence) -> Result<(), GuardError<Failure>> {
        self.raise(name, fence)
    }
}
