//! `tenure acquire`: a hold for a script, which goes on after this process has ended.

use std::io::Write;
use std::time::Duration;

use tenure::engine::Space;
use tenure::{Detached, Tenure};
use tokio::time::Instant;

use crate::args::claim::ClaimArgs;
use crate::claim;
use crate::engine;
use crate::failure::{Exit, Failure, OK, Stop};
use crate::output::json::Object;
use crate::settings::Settings;
use crate::signals;
use crate::waiting::Waiting;
use crate::within;

/// How long the last word to the engine may take: the script waits.
const LEAVING: Duration = Duration::from_secs(1);

/// Acquires, and prints the claim: a secret, by which the hold is renewed and released.
pub(crate) async fn run(
    asked: &ClaimArgs,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect_to_claim(settings).await?;
    let began = Instant::now();
    let interrupted = signals::interrupted()?;
    // In this order: whoever interrupts in the last moment must not leave a hold behind.
    let detached = tokio::select! {
        biased;
        signal = interrupted => {
            // What was dropped leaves the line; this waits until the engine knows.
            tenure.close().await;
            return Ok(Exit(128 + signal));
        }
        detached = acquire(asked, &tenure, settings) => detached?,
    };
    let printed = print(&detached, asked, began, settings, out).and_then(|()| out.flush());
    if let Err(error) = printed {
        // Nobody has the secret, so nobody could ever release it.
        if let Ok(hold) = tenure.attach(&detached).await {
            let _ = hold.release().await;
        }
        return Err(error.into());
    }
    // So that nothing of this process is left at the engine but the hold.
    let _ = tokio::time::timeout(LEAVING, tenure.close()).await;
    Ok(OK)
}

async fn acquire(
    asked: &ClaimArgs,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Detached, Failure> {
    // This process ends at once; the one that the hold is for is the script that started it.
    let script = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let origin = claim::origin(script.unsigned_abs());
    let mut options = asked.options(tenure, &origin);
    if asked.owner.is_none()
        && let [(_, host), (_, pid)] = &*origin
    {
        options.details_mut().owner = format!("{host}:{pid}");
    }
    within::refuse(asked, Space::Lock, options.wait, tenure, settings).await?;
    let me = options.details().clone();
    let waiting = Waiting::new(tenure, settings, &asked.name, Space::Lock, Some(&me));
    let hold = tokio::select! {
        biased;
        hold = asked.join(tenure, settings, options) => hold,
        never = waiting.announce() => match never {},
    };
    let hold = match hold {
        Ok(hold) => hold,
        Err(error) => return Err(asked.refused(&error, tenure, settings).await),
    };
    waiting.got(hold.fence());
    hold.detach().await.map_err(|error| engine::failure(&error, settings))
}

fn print(
    detached: &Detached,
    asked: &ClaimArgs,
    began: Instant,
    settings: &Settings,
    out: &mut dyn Write,
) -> std::io::Result<()> {
    if !settings.json.value {
        return writeln!(out, "{}", detached.secret());
    }
    let object = Object::versioned()
        .text("name", &asked.name)
        .text("claim", &detached.secret())
        .number("fence", detached.fence().get())
        .millis("ttl_ms", detached.ttl())
        .millis("waited_ms", began.elapsed());
    writeln!(out, "{}", object.end())
}
