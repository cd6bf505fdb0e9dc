//! `tenure release`: ends a hold that a script acquired.

use std::io::Write;

use tenure::{Error, Released};

use crate::detached_claim::DetachedClaim;
use crate::engine;
use crate::failure::{Exit, Failure, NO, OK, Stop, UNREACHABLE};
use crate::output::json::Object;
use crate::output::quoted;
use crate::settings::Settings;

/// Releases. If the hold had ended before, the exit code is 1.
pub(crate) async fn run(
    asked: &DetachedClaim,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let claim = asked.read(settings)?;
    let tenure = engine::connect(settings).await?;
    let failed = |error: Error| asked.ended(&error, settings);
    let hold = tenure.attach(&claim).await.map_err(failed)?;
    match hold.release().await.map_err(failed)? {
        Released::InTime => {
            if settings.json.value {
                let object = Object::versioned().text("name", &asked.name).flag("released", true);
                writeln!(out, "{}", object.end())?;
            }
            Ok(OK)
        }
        Released::Unknown => {
            let what = format!("the release of {} was not confirmed", quoted(&asked.name));
            let why = "the engine did not answer within a second";
            let help = "release it again; it expires with its ttl at the latest";
            Err(Failure::new(UNREACHABLE, what, why, help).code("T003").into())
        }
        Released::Late => Err(Failure::new(
            NO,
            format!("released late: {} had already expired", quoted(&asked.name)),
            "its ttl ran out before the release reached the engine",
            "use a longer --ttl, or renew in time; what was done after it expired was not protected",
        )
        .code("T013")
        .into()),
    }
}
