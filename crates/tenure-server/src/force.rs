//! What operators do by force: `/v1/break` and `/v1/resize`.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use serde_json::json;
use tenure::engine::{Broken, Fence, Name, Note, Space};

use crate::access::Role;
use crate::app::{App, Asked, Told, json, no_content};
use crate::problem::Problem;
use crate::wire::{Break, Kind, Resize};

/// The most holds that one request breaks.
const MOST: usize = 1000;
/// The longest reason.
const LONGEST_REASON: usize = 256;

/// `POST /v1/break`.
pub(crate) async fn break_holds(
    State(app): State<Arc<App>>,
    told: Told<Break>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    asked.caller.must(Role::Admin)?;
    let Break { kind, name, fence, holds, reason } = body;
    if reason.is_empty() || reason.len() > LONGEST_REASON || reason.chars().any(char::is_control) {
        return Err(Problem::invalid("the reason has 1 to 256 bytes without control characters"));
    }
    let note = Note { by: asked.owner(), reason };
    match (name, fence, holds) {
        (Some(name), Some(fence), None) => {
            break_one(&app, &asked, kind, &name, fence, &note).await?;
            Ok(json(StatusCode::OK, &json!({ "name": name, "fence": fence, "broken": true })))
        }
        (None, None, Some(holds)) if holds.len() <= MOST => {
            let mut all = Vec::with_capacity(holds.len());
            for hold in holds {
                let done = break_one(&app, &asked, kind, &hold.name, hold.fence, &note).await;
                let (status, code) =
                    done.map_or_else(|no| (no.status.as_u16(), Some(no.code)), |()| (200, None));
                all.push(json!({ "name": hold.name, "fence": hold.fence, "status": status, "code": code }));
            }
            Ok(json(StatusCode::OK, &json!({ "holds": all })))
        }
        _ => Err(Problem::invalid("name and fence, or a list of at most 1000 holds")),
    }
}

async fn break_one(
    app: &App,
    asked: &Asked,
    kind: Kind,
    name: &str,
    fence: u64,
    note: &Note,
) -> Result<(), Problem> {
    let (name, fence) = (Name::new(kind.space(), name)?, Fence::new(fence));
    match app.lifeline.break_hold(&name, fence, note).await? {
        Broken::Done => {
            note_break(app, &name, fence, note, &asked.owner());
            Ok(())
        }
        Broken::MovedOn => {
            let detail = "no hold has that fence any more, so nothing was broken";
            Err(Problem::new(StatusCode::CONFLICT, "moved_on", detail).with("name", name.as_str()))
        }
    }
}

/// `POST /v1/resize`.
pub(crate) async fn resize(
    State(app): State<Arc<App>>,
    told: Told<Resize>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    asked.caller.must(Role::Admin)?;
    let name = Name::new(Space::Lock, &body.name)?;
    if body.permits == 0 || body.permits > 1 << 20 {
        return Err(Problem::invalid("permits is 1 to 1048576"));
    }
    app.lifeline.resize(&name, body.permits).await?;
    note_resize(&name, body.permits, &asked.owner());
    Ok(no_content())
}

/// A hold was broken. `client` asked for it; `note` has the name that this client gave itself.
pub(crate) fn note_break(app: &App, name: &Name, fence: Fence, note: &Note, client: &str) {
    let (by, reason) = (&note.by, &note.reason);
    let (at, number) = (name.as_str(), fence.get());
    tracing::warn!(event = "server.break", name = at, fence = number, by, reason, from = client);
    app.events.add("broken", name, by, Some(fence), Some(reason));
}

/// The size of a name was changed.
pub(crate) fn note_resize(name: &Name, permits: u32, client: &str) {
    tracing::warn!(event = "server.resize", name = name.as_str(), permits, from = client);
}
