//! The holds of the runs around this process, from `TENURE_WITHIN`. Waiting for one of these never ends, because its
//! holder waits for us; nor does waiting behind somebody who waits for one.
//!
//! One word for each hold, the outermost first: the kind, the fence, the name as the engine knows it.

use std::time::Duration;

use tenure::engine::Space;
use tenure::{Details, Options, Tenure};
use tokio::time::sleep;

use crate::args::claim::{ClaimArgs, Kind};
use crate::failure::{Failure, USAGE};
use crate::names;
use crate::output::{clean, quoted};
use crate::settings::Settings;

/// When to look at the line for the first time after joining it, and how long to wait before each later look.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const NEXT_PAUSE: Duration = Duration::from_secs(30);

/// The variable that commands read.
pub(crate) const VARIABLE: &str = "TENURE_WITHIN";

/// The variable's value for a command that runs within this hold as well.
pub(crate) fn with(space: Space, name: &str, fence: u64) -> String {
    let mut all = std::env::var(VARIABLE).unwrap_or_default();
    if !all.is_empty() {
        all.push(' ');
    }
    let name = name.replace('%', "%25").replace(' ', "%20");
    all.push_str(&format!("{}:{fence}:{name}", names::word(space)));
    all
}

/// The fences of the holds of a name around this process.
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

/// Refuses a wait that cannot end, because a run around this process holds the name.
pub(crate) async fn refuse(
    claim: &ClaimArgs,
    space: Space,
    wait: Option<Duration>,
    tenure: &Tenure,
    settings: &Settings,
) -> Result<(), Failure> {
    if wait == Some(Duration::ZERO) {
        return Ok(());
    }
    never_ends(claim, space, None, tenure, settings).await.map_or(Ok(()), Err)
}

/// Looks again while the claim waits, because others may have joined the line between the first look and the claim, or
/// the engine may not have answered then. Ends only if the wait cannot.
pub(crate) async fn watch(
    claim: &ClaimArgs,
    space: Space,
    options: &Options,
    tenure: &Tenure,
    settings: &Settings,
) -> Failure {
    if fences(space, &settings.full_name(&claim.name)).is_empty() {
        return std::future::pending().await;
    }
    let mut pause = FIRST_PAUSE;
    loop {
        sleep(pause).await;
        pause = NEXT_PAUSE;
        let me = Some(options.details());
        if let Some(failure) = never_ends(claim, space, me, tenure, settings).await {
            return failure;
        }
    }
}

/// Why the claim would wait for ever. `me` are the details by which it is found in the line; without them, it would join
/// the line now.
async fn never_ends(
    claim: &ClaimArgs,
    space: Space,
    me: Option<&Details>,
    tenure: &Tenure,
    settings: &Settings,
) -> Option<Failure> {
    let name = settings.full_name(&claim.name);
    let fences = fences(space, &name);
    if fences.is_empty() {
        return None;
    }
    // If the engine does not answer, the next request will report that.
    let view = names::look(tenure, space, &name).await.ok()??;
    let own: Vec<_> =
        view.holders.iter().filter(|holder| fences.contains(&holder.fence.get())).collect();
    let holder = own.last()?;
    let taken = own.iter().map(|holder| holder.weight).fold(0, u32::saturating_add);
    let room = view.capacity.saturating_sub(taken);
    let weight = match claim.kind {
        Kind::Exclusive => view.capacity,
        Kind::Lock | Kind::Shared | Kind::Slots(_) => 1,
    };
    if weight > room {
        return Some(already_held(&claim.name, &holder.details.owner));
    }
    // The line is served in order: whoever waits for what is held around us keeps those behind it waiting.
    let ahead = match me {
        None => view.waiters.len(),
        Some(me) => view.waiters.iter().position(|waiter| *waiter.details == *me)?,
    };
    let stuck = view.waiters.iter().take(ahead).find(|waiter| waiter.weight > room)?;
    Some(behind(&claim.name, &stuck.details.owner, &holder.details.owner))
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

fn behind(name: &str, waiter: &str, owner: &str) -> Failure {
    let (name, waiter, owner) = (quoted(name), clean(waiter), clean(owner));
    Failure::new(
        USAGE,
        format!("you already hold {name}, and {waiter} waits for that to end"),
        format!(
            "the line is served in order: this would wait behind {waiter}, which waits for {owner}, which holds \
             {name} until this ends"
        ),
        "remove the inner one, or use another name",
    )
    .code("T011")
}
