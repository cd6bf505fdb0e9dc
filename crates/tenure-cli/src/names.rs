//! Finds names: locks, elections and onces have separate spaces, and commands take any name.

use tenure::engine::Space;
use tenure::{Broken, Fence, Tenure, View};

use crate::args::Named;
use crate::engine;
use crate::failure::{Failure, USAGE};
use crate::output::quoted;
use crate::settings::Settings;

const SPACES: [Space; 3] = [Space::Lock, Space::Election, Space::Once];

/// The word for a space.
pub(crate) fn word(space: Space) -> &'static str {
    match space {
        Space::Election => "leader",
        Space::Once => "once",
        _ => "lock",
    }
}

/// The view of a name, which is given as the engine knows it.
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

/// Finds a name that is in use, in any space unless one is given. Fails if several spaces have it.
pub(crate) async fn find(
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    let found = all(named, tenure, settings).await;
    only(&named.name, found.map_err(|error| engine::failure(&error, settings))?)
}

/// All names in use that it can be.
pub(crate) async fn all(
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> tenure::Result<Vec<View>> {
    all_if(View::is_used, named, tenure, settings).await
}

/// The same for a name of which anything is known.
pub(crate) async fn find_known(
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<Option<View>, Failure> {
    let found = all_if(|_| true, named, tenure, settings).await;
    only(&named.name, found.map_err(|error| engine::failure(&error, settings))?)
}

async fn all_if(
    wanted: fn(&View) -> bool,
    named: &Named,
    tenure: &Tenure,
    settings: &Settings,
) -> tenure::Result<Vec<View>> {
    let full = settings.full_name(&named.name);
    let mut found = Vec::new();
    for space in SPACES.into_iter().filter(|space| named.space.is_none_or(|said| said == *space)) {
        found.extend(look(tenure, space, &full).await?.filter(wanted));
    }
    Ok(found)
}

/// The only one of these. Fails if there are several.
pub(crate) fn only(name: &str, mut found: Vec<View>) -> Result<Option<View>, Failure> {
    if found.len() > 1 {
        return Err(several(name, &found));
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
