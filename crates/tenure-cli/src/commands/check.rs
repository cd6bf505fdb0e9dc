//! `tenure check`: whether a lock that a script acquired is still held.

use std::io::Write;

use tenure::ErrorKind;

use crate::detached_claim::DetachedClaim;
use crate::engine;
use crate::failure::{Exit, NO, OK, Stop};
use crate::output::json::Object;
use crate::output::{quoted, span};
use crate::settings::Settings;

/// Prints for how long it is certainly held; exit code 1 if it is not.
pub(crate) async fn run(
    asked: &DetachedClaim,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let claim = asked.read(settings)?;
    let tenure = engine::connect(settings).await?;
    let object = Object::versioned().text("name", &asked.name);
    let (name, json) = (quoted(&asked.name), settings.json.value);
    let fence = claim.fence();
    match tenure.check(&claim).await {
        Ok(left) if json => {
            let object = object.flag("held", true).number("fence", fence.get());
            writeln!(out, "{}", object.millis("left_ms", left).end())?;
            Ok(OK)
        }
        Ok(left) => {
            writeln!(out, "{name} is held, {} left, fence {fence}", span(left))?;
            Ok(OK)
        }
        Err(error) if error.kind() != ErrorKind::Lost => {
            Err(engine::failure(&error, settings).into())
        }
        Err(_) if json => {
            writeln!(out, "{}", object.flag("held", false).number("fence", fence.get()).end())?;
            Ok(Exit(NO))
        }
        Err(error) => {
            writeln!(out, "{name}: {}", engine::reason(&error))?;
            Ok(Exit(NO))
        }
    }
}
