//! Reports that are not about a claim of this process: engines, connections, and the writes and requests that
//! fences and onces guard.

use std::time::Duration;

#[cfg(any(feature = "file", feature = "postgres", feature = "redis"))]
use tracing::debug;
use tracing::{error, info, warn};

#[cfg(feature = "metrics")]
use super::meters;
use super::{TARGET, group_of, measure, millis, queue};
use crate::model::claim::Fence;
use crate::model::error::Error;

/// No engine was configured. Reported once.
pub(crate) fn no_url() {
    static SAID: std::sync::Once = std::sync::Once::new();
    SAID.call_once(|| {
        warn!(
            target: TARGET, event = "engine.memory",
            "TENURE_URL is not set: locks are kept in memory and protect this process only; set it to \
             redis://HOST or file:PATH, or to memory: if there is only one process"
        );
    });
}

/// The engine cannot be reached.
pub(crate) fn engine_down(engine: &str, why: &Error) {
    let (engine, why) = (engine.to_owned(), why.to_string());
    queue::say(move || {
        error!(target: TARGET, event = "engine.down", engine, reason = why);
        measure!(engine_up(&engine, false));
    });
}

/// The engine can be reached again.
pub(crate) fn engine_up(engine: &str, down_for: Duration) {
    let engine = engine.to_owned();
    queue::say(move || {
        info!(target: TARGET, event = "engine.up", engine, down_ms = millis(down_for));
        measure!(engine_up(&engine, true));
    });
}

/// A stream of turns was opened, and nothing came.
#[cfg(feature = "http")]
pub(crate) fn silent_stream(engine: &str) {
    let engine = engine.to_owned();
    queue::say(move || {
        let event = "engine.silent_stream";
        warn!(
            target: TARGET, event, engine,
            "no turns are pushed: a proxy before the server seems to buffer its answers, so that those who wait ask once a second"
        );
    });
}

/// A connection broke or could not be made.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn connection_lost(engine: &str, error: &Error) {
    let (engine, error) = (engine.to_owned(), error.to_string());
    queue::say(move || debug!(target: TARGET, event = "connection.lost", engine, reason = error));
}

/// The server pushed something that is not ours.
#[cfg(any(feature = "postgres", feature = "redis"))]
pub(crate) fn strange_push(engine: &str) {
    let engine = engine.to_owned();
    queue::say(move || debug!(target: TARGET, event = "push.strange", engine));
}

/// The server may evict locks.
#[cfg(feature = "redis")]
pub(crate) fn may_evict(engine: &str, policy: &str) {
    let (engine, policy) = (engine.to_owned(), policy.to_owned());
    queue::say(move || {
        let event = "engine.may_evict";
        warn!(target: TARGET, event, engine, policy, "the server may evict locks when full");
    });
}

/// The server's clock was set forward.
#[cfg(feature = "redis")]
pub(crate) fn clock_stepped(engine: &str, step: Duration) {
    let (engine, step_ms) = (engine.to_owned(), millis(step));
    queue::say(move || {
        let event = "engine.clock_stepped";
        warn!(target: TARGET, event, engine, step_ms, "holds may have ended early");
    });
}

/// The watchdog panicked, which only an engine can cause, and continues.
pub(crate) fn watchdog_panicked(reason: &str) {
    let reason = reason.to_owned();
    queue::say(move || error!(target: TARGET, event = "watchdog.panicked", reason));
}

/// A guarded resource has refused a write. Everything that enforces fences reports it here.
pub(crate) fn stale_write(name: &str, offered: Fence, seen: Option<Fence>) {
    let (group, seen) = (group_of(name), seen.map(Fence::get));
    warn!(
        target: TARGET, event = "fence.stale", name, group, offered = offered.get(), seen,
        "a write came after its hold had ended, and was refused"
    );
    measure!(stale_write(group));
}

/// It cannot be determined whether a request comes too late, so it is refused.
#[cfg(feature = "fence-http")]
pub(crate) fn fence_unknown(name: &str, offered: Fence, why: &dyn std::fmt::Display) {
    let group = group_of(name);
    error!(target: TARGET, event = "fence.unknown", name, group, offered = offered.get(), reason = %why);
}

/// It cannot be determined whether a request was done, or its answer could not be kept.
#[cfg(feature = "idempotency")]
pub(crate) fn unsettled(why: &dyn std::fmt::Display) {
    error!(target: TARGET, event = "once.unsettled", reason = %why);
}

/// A waiter was passed over, because its process is gone or cannot be reached.
#[cfg(feature = "file")]
pub(crate) fn passed_over(name: &crate::model::name::Name) {
    let name = name.clone();
    queue::say(move || {
        debug!(target: TARGET, event = "lock.passed_over", %name, group = super::group(&name));
        measure!(passed_over(&name));
    });
}
