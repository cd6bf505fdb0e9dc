//! `tenure acquire`: a lock for a script, which lasts after this process has exited.

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

/// How long closing the connection may take: the script waits.
const LEAVING: Duration = Duration::from_secs(1);

/// Acquires, and prints the claim: a secret that is needed to renew and release the lock.
pub(crate) async fn run(
    asked: &ClaimArgs,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect_to_claim(settings).await?;
    let began = Instant::now();
    let interrupted = signals::interrupted()?;
    // In this order: an interrupt at the last moment must not leave a hold behind.
    let detached = tokio::select! {
        biased;
        signal = interrupted => {
            // Dropping the claim leaves the line; this waits until the engine knows.
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
    // So that this process leaves nothing at the engine except the hold.
    let _ = tokio::time::timeout(LEAVING, tenure.close()).await;
    Ok(OK)
}

async fn acquire(
    asked: &ClaimArgs,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Detached, Failure> {
    // This process exits at once; the hold is for the script that started it.
    let script = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get());
    let origin = claim::origin(script.unsigned_abs());
    let mut options = asked.options(tenure, &origin);
    if asked.owner.is_none()
        && let [(_, host), (_, pid)] = &*origin
    {
        options.details_mut().owner = format!("{host}:{pid}");
    }
    within::refuse(asked, Space::Lock, options.wait, tenure, settings).await?;
    let me = options.details();
    let waiting = Waiting::new(tenure, settings, &asked.name, Space::Lock, Some(me));
    let hold = tokio::select! {
        biased;
        hold = asked.join(tenure, settings, options.clone()) => hold,
        stuck = within::watch(asked, Space::Lock, &options, tenure, settings) => {
            // Dropping the claim has left the line; this waits until the engine knows.
            let _ = tokio::time::timeout(LEAVING, tenure.close()).await;
            return Err(stuck);
        }
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
