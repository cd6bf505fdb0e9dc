//! Interim.
use std::sync::Arc;
use std::time::Duration;

use tenure::{Hold, Options, Tenure};

use crate::args::claim::{Asking, Kind, Wait};

pub(super) fn options(asking: &Asking, tenure: &Tenure) -> Options {
    let mut options = tenure.defaults();
    if let Some(ttl) = asking.ttl {
        options.ttl = ttl;
    }
    match asking.wait {
        Wait::Unsaid => {}
        Wait::No => options.wait = Some(Duration::ZERO),
        Wait::Limit(limit) => options.wait = Some(limit),
        Wait::Forever => options.wait = None,
    }
    if asking.max_hold.is_some() {
        options.max_hold = asking.max_hold;
    }
    if let Some(hold_for) = asking.hold_for {
        options.hold_for = hold_for;
    }
    let details = Arc::make_mut(&mut options.details);
    if let Some(owner) = &asking.owner {
        details.owner.clone_from(owner);
    }
    details.reason.clone_from(&asking.reason);
    details.meta.extend(asking.meta.iter().cloned());
    options
}

pub(super) async fn acquire(
    tenure: &Tenure,
    name: &str,
    kind: Kind,
    options: Options,
) -> tenure::Result<Hold> {
    match kind {
        Kind::Lock => tenure.mutex(name).options(options).acquire().await,
        Kind::Shared => tenure.rwlock(name).options(options).read().await,
        Kind::Exclusive => tenure.rwlock(name).options(options).write().await,
        Kind::Slots(slots) => tenure.semaphore(name, slots).options(options).acquire().await,
    }
}
