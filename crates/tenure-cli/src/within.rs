//! What the runs around this process hold, as `TENURE_WITHIN` tells it. Waiting for any of that never
//! ends: whoever holds it waits for us.
//!
//! One word for each hold, the outermost first: the kind, the fence, the name as the engine knows it.

use std::time::Duration;

use tenure::Tenure;
use tenure::engine::Space;

use crate::args::claim::{ClaimArgs, Kind};
use crate::failure::{Failure, USAGE};
use crate::names;
use crate::output::{clean, quoted};
use crate::settings::Settings;

/// The variable that commands find it in.
pub(crate) const VARIABLE: &str = "TENURE_WITHIN";

/// What a command is told that runs within this hold as well.
pub(crate) fn with(space: Space, name: &str, fence: u64) -> String {
    let mut all = std::env::var(VARIABLE).unwrap_or_default();
    if !all.is_empty() {
        all.push(' ');
    }
    let name = name.replace('%', "%25").replace(' ', "%20");
    all.push_str(&format!("{}:{fence}:{name}", names::word(space)));
    all
}

/// The fences of the holds of a name that are around this process.
fn fences(space: Space, name: &str) -> Vec<u64> {
    let all = std::env::var(VARIABLE).unwrap_or_default();
    let fence = |word: &str| {
        let mut parts = word.splitn(3, ':');
        let (kind, fence, of) = (parts.next()?, parts.next()?, parts.next()?);
        let of = of.replace("%20", " ").replace("%25", "%");
        (kind == names::word(space) && of == name).then(|| fence.parse().ok()).flatten()
    };
    all.split(' ').filter_map(fence).collect()
}

/// Says no to a wait that cannot end, because a run around this process holds what is asked for.
pub(crate) async fn refuse(
    claim: &ClaimArgs,
    space: Space,
    wait: Option<Duration>,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<(), Failure> {
    let name = settings.full_name(&claim.name);
    let fences = fences(space, &name);
    if fences.is_empty() || wait == Some(Duration::ZERO) {
        return Ok(());
    }
    // An engine that does not answer is for whoever asks next to say.
    let Ok(Some(view)) = names::look(tenure, space, &name).await else { return Ok(()) };
    let own: Vec<_> =
        view.holders.iter().filter(|holder| fences.contains(&holder.fence.get())).collect();
    let taken = own.iter().map(|holder| holder.weight).fold(0, u32::saturating_add);
    let weight = match claim.kind {
        Kind::Exclusive => view.capacity,
        Kind::Lock | Kind::Shared | Kind::Slots(_) => 1,
    };
    match own.last() {
        Some(holder) if weight > view.capacity.saturating_sub(taken) => {
            Err(already_held(&claim.name, &holder.details.owner))
        }
        _ => Ok(()),
    }
}

fn already_held(name: &str, owner: &str) -> Failure {
    Failure::new(
        USAGE,
        format!("you already hold {}: this runs inside a command that holds it", quoted(name)),
        format!("{} holds it until this ends, so waiting for it would never end", clean(owner)),
        "remove the inner one, or use another name",
    )
    .code("T011")
}
