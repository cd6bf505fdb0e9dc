//! Where a name is: locks, elections and onces have spaces of their own, and commands take any name.

use tenure::engine::Space;
use tenure::{Broken, Fence, Tenure, View};

use crate::args::Named;
use crate::engine;
use crate::failure::{Failure, USAGE};
use crate::output::quoted;
use crate::settings::Settings;

const SPACES: [Space; 3] = [Space::Lock, Space::Election, Space::Once];

/// What a space is called, where only that is known.
pub(crate) fn word(space: Space) -> &'static str {
    match space {
        Space::Election => "leader",
        Space::Once => "once",
        _ => "lock",
    }
}

/// What is seen of a name, which is as the engine knows it.
pub(crate) async fn look(
    tenure: &Tenure,
    space: Space,
    name: &str,
) -> tenure::Result<Option<View>> {
    match space {
        Space::Election => tenure.election(name).inspect().await,
        Space::Once => tenure.once(name).inspect().await,
        _ => tenure.inspect(name).await,
    }
}

/// Ends a hold, a term or a run by force.
pub(crate) async fn break_at(
    tenure: &Tenure,
    space: Space,
    name: &str,
    fence: Fence,
    reason: &str,
) -> tenure::Result<Broken> {
    match space {
        Space::Election => tenure.election(name).break_term(fence, reason).await,
        Space::Once => tenure.once(name).break_run(fence, reason).await,
        _ => tenure.break_hold(name, fence, reason).await,
    }
}

/// Finds a name that somebody uses, wherever it is, unless it was said where. Refused if there are several
/// of that name.
pub(crate) async fn find(
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    find_if(View::is_used, named, tenure, settings).await
}

/// The same for a name of which anything is known.
pub(crate) async fn find_known(
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    find_if(|_| true, named, tenure, settings).await
}

async fn find_if(
    wanted: fn(&View) -> bool,
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    let full = settings.full_name(&named.name);
    let mut found = Vec::new();
    for space in SPACES.into_iter().filter(|space| named.space.is_none_or(|said| said == *space)) {
        let seen = look(tenure, space, &full).await;
        let seen = seen.map_err(|error| engine::failure(&error, settings))?;
        found.extend(seen.filter(wanted));
    }
    if found.len() > 1 {
        return Err(several(&named.name, &found));
    }
    Ok(found.pop())
}

fn several(name: &str, found: &[View]) -> Failure {
    let kinds: Vec<_> = found.iter().map(|view| word(view.name.space())).collect();
    let flags: Vec<_> = kinds.iter().map(|kind| format!("`--kind {kind}`")).collect();
    Failure::new(
        USAGE,
        format!("{} is the name of several things: {}", quoted(name), kinds.join(", ")),
        "a lock, an election and a once may have the same name",
        format!("choose one: {}", flags.join(" or ")),
    )
}
