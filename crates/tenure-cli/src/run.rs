//! `tenure run`: not built yet.

use crate::args::Run;
use crate::failure::{Exit, Failure, INTERNAL, Stop};
use crate::settings::Settings;

/// Runs a command while holding a name. Called before this process has a thread or a runtime.
pub(crate) fn run(run: &Run, settings: &Settings) -> Result<Exit, Stop> {
    let _ = (run, settings);
    Err(Failure::new(INTERNAL, "not built yet", "`run` is on its way", "use the library").into())
}
