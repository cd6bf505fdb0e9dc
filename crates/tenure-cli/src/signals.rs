//! Signals that ask this process to end.

use tokio::signal::unix::{SignalKind, signal};

use crate::failure::{Failure, INTERNAL};

/// Resolves to the number of the first signal that asks this process to end.
pub(crate) fn interrupted() -> Result<impl Future<Output = u8>, Failure> {
    let heard = |kind: SignalKind| {
        signal(kind).map_err(|error| {
            let help = "check the limits of this process (`ulimit -a`)";
            Failure::new(INTERNAL, "cannot listen for signals", error.to_string(), help)
        })
    };
    let (mut int, mut term) = (heard(SignalKind::interrupt())?, heard(SignalKind::terminate())?);
    let (mut hup, mut quit) = (heard(SignalKind::hangup())?, heard(SignalKind::quit())?);
    Ok(async move {
        let kind = tokio::select! {
            _ = int.recv() => SignalKind::interrupt(),
            _ = term.recv() => SignalKind::terminate(),
            _ = hup.recv() => SignalKind::hangup(),
            _ = quit.recv() => SignalKind::quit(),
        };
        u8::try_from(kind.as_raw_value()).unwrap_or_default()
    })
}
