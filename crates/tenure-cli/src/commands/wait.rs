//! `tenure wait`: waits until a name is free. It acquires nothing, so someone else may be faster.

use std::io::Write;
use std::time::Duration;

use tenure::engine::{Error, Space};
use tenure::{ErrorKind, Tenure, View};
use tokio::time::{Instant, sleep, timeout_at};

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

/// The first and the longest pause between two checks.
const FIRST_PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(250);
/// How long to wait for an engine that does not answer if the caller gave no wait.
const AT_ONCE: Duration = Duration::from_secs(1);

/// Waits until one more claim could be granted at once.
pub(crate) async fn run(
    named: &Named,
    wait: Wait,
    settings: &Settings,
    out: &mut dyn Write,
) -> Result<Exit, Stop> {
    let tenure = engine::connect_to_claim(settings).await?;
    let name = &*named.name;
    let began = Instant::now();
    let limit = match wait {
        Wait::No => Some(Duration::ZERO),
        Wait::Limit(limit) => Some(limit),
        Wait::Unsaid => tenure.defaults().wait,
        Wait::Forever => None,
    };
    let looks = Looks::new(limit, &tenure, settings);
    // It waits for the name in the space where it is now.
    let found = looks.look(async || names::all(named, &tenure, settings).await).await?;
    let found = names::only(&named.name, found)?;
    let space = found.map_or(Space::Lock, |view| view.name.space());
    let waiting = Waiting::new(&tenure, settings, name, space, None);
    let busy = tokio::select! {
        biased;
        busy = until_free(name, space, limit.map(|limit| began + limit), &looks) => busy?,
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

/// `None` when it is free, or its state when the wait was over.
async fn until_free(
    name: &str,
    space: Space,
    over: Option<Instant>,
    looks: &Looks<'_>,
) -> Result<Option<View>, Failure> {
    let (tenure, full) = (looks.tenure, looks.settings.full_name(name));
    let mut pause = FIRST_PAUSE;
    loop {
        let seen = looks.look(async || names::look(tenure, space, &full).await).await?;
        let Some(view) = seen.filter(|view| !facts::is_free(view)) else { return Ok(None) };
        let left = over.map_or(pause, |over| over.saturating_duration_since(Instant::now()));
        if left.is_zero() {
            return Ok(Some(view));
        }
        sleep(pause.min(left)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Checks a name while the engine may be away: a failed check says nothing about the name.
struct Looks<'a> {
    tenure: &'a Tenure,
    settings: &'a Settings,
    /// How long the engine may be away at a time; `None` if the wait itself is the limit.
    patience: Option<Duration>,
    /// When the caller's wait is over.
    over: Option<Instant>,
}

impl<'a> Looks<'a> {
    /// As long as a claim waits for its engine: for the caller's wait, or for the engine's patience.
    fn new(limit: Option<Duration>, tenure: &'a Tenure, settings: &'a Settings) -> Looks<'a> {
        let patience = match limit {
            Some(Duration::ZERO) => Some(AT_ONCE),
            Some(_) => None,
            None => Some(tenure.engine().profile().patience),
        };
        let over = limit.filter(|_| patience.is_none()).map(|limit| Instant::now() + limit);
        Looks { tenure, settings, patience, over }
    }

    async fn look<T>(
        &self,
        mut look: impl AsyncFnMut() -> tenure::Result<T>,
    ) -> Result<T, Failure> {
        let began = Instant::now();
        // At the end of the wait, the last check gets as much time as one without a wait.
        let until = match (self.patience, self.over) {
            (Some(patience), _) => began + patience,
            (None, over) => over.unwrap_or(began).max(began + AT_ONCE),
        };
        let mut pause = FIRST_PAUSE;
        let mut said = None;
        loop {
            match timeout_at(until, look()).await {
                Ok(Ok(seen)) => return Ok(seen),
                Ok(Err(error)) if error.kind() != ErrorKind::Unavailable => {
                    return Err(engine::failure(&error, self.settings));
                }
                Ok(Err(error)) => said = Some(error),
                Err(_) => {}
            }
            if Instant::now() + pause >= until {
                let silent = || Error::new(ErrorKind::Unavailable, "no answer");
                return Err(engine::failure(&said.unwrap_or_else(silent), self.settings));
            }
            sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }
}
