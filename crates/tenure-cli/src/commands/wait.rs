//! `tenure wait`: until a name is free. It takes nothing, so someone else may be quicker.

use std::io::Write;
use std::time::Duration;

use tenure::engine::Space;
use tenure::{Tenure, View};
use tokio::time::{Instant, sleep};

use crate::args::Named;
use crate::args::claim::Wait;
use crate::claim;
use crate::engine;
use crate::facts;
use crate::failure::{Exit, Failure, OK, Stop};
use crate::names;
use crate::output::json::Object;
use crate::settings::Settings;
use crate::waiting::Waiting;

/// How long between two looks, at first and at most.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);

/// Waits until one more could have the name at once.
pub(crate) async fn run(
    named: &Named,
    wait: Wait,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect(settings).await?;
    let name = &*named.name;
    // Where it is now is where it is waited for.
    let found = names::find(named, &tenure, settings).await?;
    let space = found.map_or(Space::Lock, |view| view.name.space());
    let waiting = Waiting::new(&tenure, settings, name, space, None);
    let began = Instant::now();
    let limit = match wait {
        Wait::No => Some(Duration::ZERO),
        Wait::Limit(limit) => Some(limit),
        Wait::Unsaid => tenure.defaults().wait,
        Wait::Forever => None,
    };
    let busy = tokio::select! {
        biased;
        busy = until_free(name, space, limit, &tenure, settings) => busy?,
        never = waiting.announce() => match never {},
    };
    if let Some(view) = busy {
        let others = "others wait for it".to_owned();
        return Err(claim::busy(name, wait, others, Some(&view)).into());
    }
    if settings.json.value {
        let object = Object::versioned().text("name", name).text("state", "free");
        writeln!(out, "{}", object.millis("waited_ms", began.elapsed()).end())?;
    }
    Ok(OK)
}

/// `None` when it is free, or how it was when the wait was over.
async fn until_free(
    name: &str,
    space: Space,
    limit: Option<Duration>,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    let over = limit.map(|limit| Instant::now() + limit);
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = names::look(tenure, space, &settings.full_name(name)).await;
        let seen = seen.map_err(|error| engine::failure(&error, settings))?;
        let Some(view) = seen.filter(|view| !facts::is_free(view)) else { return Ok(None) };
        let left = over.map_or(pause, |over| over.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(Some(view));
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}
