//! `tenure renew`: extends a lock that a script acquired.

use std::io::Write;
use std::time::Duration;

use tenure::Error;

use crate::detached_claim::DetachedClaim;
use crate::engine;
use crate::failure::{Exit, OK, Stop};
use crate::output::json::Object;
use crate::settings::Settings;

/// Extends it to its ttl from now, or to `ttl` if that is longer.
pub(crate) async fn run(
    asked: &DetachedClaim,
    ttl: Option<Duration>,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let claim = asked.read(settings)?;
    let tenure = engine::connect(settings).await?;
    let failed = |error: Error| asked.ended(&error, settings);
    let hold = tenure.attach(&claim).await.map_err(failed)?;
    let extended = match ttl {
        Some(ttl) => hold.extend(ttl).await,
        None => Ok(()),
    };
    // Even if that failed, the hold stays the script's: dropping it here would release it.
    hold.detach().await.map_err(failed)?;
    extended.map_err(failed)?;
    if settings.json.value {
        let left = tenure.check(&claim).await.map_err(failed)?;
        let object = Object::versioned()
            .text("name", &asked.name)
            .flag("held", true)
            .number("fence", claim.fence().get())
            .millis("left_ms", left);
        writeln!(out, "{}", object.end())?;
    }
    Ok(OK)
}
