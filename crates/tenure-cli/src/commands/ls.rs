//! `tenure ls`: who holds what.

use std::io::Write;

use crate::engine;
use crate::failure::{Exit, OK, Stop};
use crate::output::clean;
use crate::settings::Settings;

/// Lists the names that are in use.
pub(crate) async fn run(
    prefix: &str,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let views = tenure.list(settings.full_name(prefix)).await;
    for view in views.map_err(|error| engine::failure(&error, settings))? {
        writeln!(out, "{}", clean(settings.short_name(view.name.as_str())))?;
    }
    Ok(OK)
}
