//! `POST /v1/tethers`: a claim with a stream that brings its turn, and its loss.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use tenure::engine::{Fence, Renewal, Renewed, SystemWorld, Turn, World};

use crate::acquire::{Asking, Outcomes, renew};
use crate::app::{App, InUse, Told};
use crate::problem::{Problem, ended_fields};
use crate::sse::{self, PING_EVERY, Sender};
use crate::waiting::Listener;
use crate::wire::{self, Acquire, Kind};

const DEFAULT_TTL: Duration = Duration::from_secs(6);

/// `POST /v1/tethers`.
pub(crate) async fn tether(
    State(app): State<Arc<App>>,
    told: Told<Acquire>,
) -> Result<Response, Problem> {
    let Told { asked, body, bytes } = told;
    if body.claim.is_none() {
        return Err(Problem::invalid(
            "claim is missing: a tether needs one that the client has made",
        ));
    }
    if body.kind == Kind::Once {
        return Err(Problem::once_elsewhere());
    }
    if body.confirm.is_some() {
        return Err(Problem::invalid(
            "confirm is for holds: a tether is always confirmed by its client",
        ));
    }
    let asking = Asking::new(&app, &asked, body, DEFAULT_TTL, None, &bytes)?;
    let place = app.clients.enter(&asked.caller.name, app.config.max_waiting)?;
    let (sender, response) = sse::stream(sse::MOST_UNREAD);
    sender.send("hello", None, &json!({ "engine": app.engine_id }).to_string());
    tokio::spawn(run(app, asking, sender, place));
    Ok(response)
}

async fn run(app: Arc<App>, mut asking: Asking, sender: Sender, _place: InUse) {
    let mut stopping = app.stopping.clone();
    let over = tokio::select! {
        over = follow(&app, &mut asking, &sender) => over,
        () = sender.closed() => return,
        _ = stopping.wait_for(|stopping| *stopping) => Some(("moving", json!({}))),
    };
    if let Some((event, data)) = over {
        sender.send(event, None, &data.to_string());
    }
}

/// Follows a claim until it ends. Returns the last event, if there is one to send.
async fn follow(
    app: &Arc<App>,
    asking: &mut Asking,
    sender: &Sender,
) -> Option<(&'static str, Value)> {
    // It gets every turn in the life of the claim, also between two polls.
    let listener = app.waiting.listen(&asking.claim.name, asking.claim.id);
    // The first place is reported at once.
    let mut poll_until = SystemWorld.now();
    let fence = loop {
        let asked = asking.ask(app, poll_until).await;
        poll_until = SystemWorld.now() + PING_EVERY;
        match asked {
            Ok(Outcomes::Waits(place)) => {
                let waited = asking.arrival.until(SystemWorld.now());
                let place = wire::place(&asking.claim, asking.kind, &place, &app.key, waited);
                if !sender.send("place", None, &place.to_string()) || !sender.ping() {
                    return None;
                }
            }
            Ok(Outcomes::Granted(grant, _)) => {
                let now = SystemWorld.now();
                app.events.add(
                    "granted",
                    &asking.claim.name,
                    &asking.claim.details.owner,
                    Some(grant.fence),
                    None,
                );
                crate::meters::acquired(asking.kind, "granted");
                let mut body =
                    wire::granted(&asking.claim, asking.kind, &grant, asking.arrival, now);
                body.insert("confirm".to_owned(), json!(true));
                if !sender.send("granted", None, &Value::Object(body).to_string()) {
                    return None;
                }
                break grant.fence;
            }
            Ok(Outcomes::Settled(outcome)) => {
                let mut body = serde_json::Map::new();
                wire::outcome(&outcome, &mut body);
                return Some(("refused", Value::Object(body)));
            }
            Ok(no) => return Some(("refused", asking.refusal(no).to_json())),
            Err(problem) => return Some(("refused", problem.to_json())),
        }
    };
    hold_on(app, asking, listener, fence, sender).await
}

/// Follows a hold until it ends.
async fn hold_on(
    app: &App,
    asking: &Asking,
    mut listener: Listener,
    fence: Fence,
    sender: &Sender,
) -> Option<(&'static str, Value)> {
    loop {
        tokio::select! {
            turn = listener.turn() => match turn {
                Turn::Ended(ended) => {
                    listener.over();
                    return Some(("lost", Value::Object(ended_fields(&ended))));
                }
                // The engine was restarted, or reconnected to: is the hold still there?
                Turn::LookAgain if is_gone(app, asking, fence).await => {
                    listener.over();
                    return Some(("lost", json!({ "ended": "expired" })));
                }
                _ => {}
            },
            () = tokio::time::sleep(PING_EVERY) => {
                if !sender.ping() {
                    return None;
                }
            }
        }
    }
}

/// Whether the engine says that the hold has ended.
async fn is_gone(app: &App, asking: &Asking, fence: Fence) -> bool {
    let (name, id) = (asking.claim.name.clone(), asking.claim.id);
    let renewal = Renewal::Hold { name, id, fence, ttl: Duration::ZERO };
    matches!(renew(&*app.lifeline, renewal).await, Ok(Renewed::Gone(_)))
}
