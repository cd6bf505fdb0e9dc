//! The steps of `run`, `elect` and `once`, for `-v`.

use rustix::process::Pid;
use tenure::{Options, Released};
use tracing::info;

use super::command::Ending;
use super::supervisor::word;
use crate::args::Run;
use crate::settings::Settings;

/// It is about to wait in line.
pub(super) fn asked(run: &Run, options: &Options, settings: &Settings) {
    let (name, kind) = (&*run.claim.name, word(run));
    let (engine, owner) = (settings.address.shown(), &*options.details().owner);
    let ttl_ms = options.ttl.as_millis() as u64;
    let wait_ms = options.wait.map(|wait| wait.as_millis() as u64);
    info!(event = "run.asked", name, kind, engine, owner, ttl_ms, wait_ms);
}

/// It holds the lock.
pub(super) fn granted(run: &Run, fence: u64) {
    info!(event = "run.granted", name = run.claim.name, fence);
}

/// The command was started.
pub(super) fn started(run: &Run, pid: Pid) {
    info!(event = "run.started", name = run.claim.name, pid = pid.as_raw_nonzero().get());
}

/// The command ended.
pub(super) fn ended(run: &Run, ending: Ending) {
    let (code, signal) = match ending {
        Ending::Code(code) => (Some(code), None),
        Ending::Signal(signal) => (None, Some(signal)),
    };
    info!(event = "run.ended", name = run.claim.name, code, signal);
}

/// The lock was released, or that is not known.
pub(super) fn released(run: &Run, released: Option<&Released>) {
    let in_time = matches!(released, Some(Released::InTime));
    info!(event = "run.released", name = run.claim.name, in_time);
}
