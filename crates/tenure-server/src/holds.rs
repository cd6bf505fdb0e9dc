//! `/v1/holds`: acquire, renew, read and release; `/v1/once`.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::response::Response;
use hyper::StatusCode;
use ring::digest::{SHA256, digest};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tenure::engine::{
    ClaimId, Fence, Leave, Left, Moment, Name, OnceTerms, Outcome, Renewal, Renewed, Settle,
};

use crate::acquire::Asking;
use crate::app::{App, Asked, Told, json, no_content};
use crate::problem::Problem;
use crate::wire::{self, Acquire, Begin, Held, Kind, Release, Secret, SettleOnce, Span};

const DEFAULT_TTL: Duration = Duration::from_secs(30);
const DEFAULT_KEEP: Duration = Duration::from_secs(24 * 60 * 60);
/// The most renewals in one request.
const MOST_RENEWALS: usize = 256;
/// The longest outcome of a once.
const LONGEST_OUTCOME: usize = 32 << 10;

/// `POST /v1/holds`.
pub(crate) async fn acquire(
    State(app): State<Arc<App>>,
    told: Told<Acquire>,
) -> Result<Response, Problem> {
    let Told { asked, body, bytes } = told;
    if body.kind == Kind::Once {
        return Err(Problem::once_elsewhere());
    }
    let asking = Asking::new(&app, &asked, body, DEFAULT_TTL, Some(Duration::ZERO), &bytes)?;
    finish(&app, &asked, asking).await
}

async fn finish(app: &Arc<App>, asked: &Asked, mut asking: Asking) -> Result<Response, Problem> {
    // Requests that do not wait take no place from those that do.
    let _place = match asking.claim.may_wait {
        true => Some(app.clients.enter(&asked.caller.name, app.config.max_waiting)?),
        false => None,
    };
    let poll_until = asked.arrival + app.config.longest_poll;
    let outcome = asking.ask(app, poll_until).await?;
    asking.answer(app, outcome).await
}

/// `POST /v1/once`.
pub(crate) async fn once(
    State(app): State<Arc<App>>,
    told: Told<Begin>,
) -> Result<Response, Problem> {
    let Told { asked, mut body, bytes } = told;
    let (keep, rerun, content) = (body.keep, body.rerun, body.content.take());
    let mut asking =
        Asking::new(&app, &asked, body.acquire(), DEFAULT_TTL, Some(Duration::ZERO), &bytes)?;
    let keep = keep.map_or(DEFAULT_KEEP, |span| span.0);
    let content = content.map_or(0, |content| fingerprint(content.as_bytes()));
    asking.claim.once = Some(OnceTerms { keep, rerun, content });
    finish(&app, &asked, asking).await
}

/// The fingerprint of a once's content, as the library computes it; 0 would match any.
fn fingerprint(content: &[u8]) -> u128 {
    let mut half = [0; 16];
    half.copy_from_slice(digest(&SHA256, content).as_ref().get(..16).unwrap_or_default());
    u128::from_be_bytes(half).max(1)
}

/// The hold that a request is about, and whether it is identified by an `Idempotency-Key`.
fn held(
    app: &App,
    asked: &Asked,
    name: &str,
    kind: Kind,
    claim: Option<Secret>,
) -> Result<(Name, ClaimId, bool), Problem> {
    asked.caller.may_lock(name)?;
    let name = Name::new(kind.space(), name)?;
    let found = asked.claim(app, &name, claim)?;
    let (id, is_from_key) = found.ok_or_else(|| Problem::invalid("claim is missing"))?;
    Ok((name, id, is_from_key))
}

/// The body of a renewal: one, or many.
#[derive(Deserialize)]
#[serde(try_from = "OneOrMany")]
pub(crate) enum Renew {
    Many(Vec<Held>),
    One(Held),
}

/// The fields of both: an untagged enum could not say what is wrong.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OneOrMany {
    holds: Option<Vec<Held>>,
    name: Option<String>,
    kind: Option<Kind>,
    claim: Option<Secret>,
    fence: Option<u64>,
    ttl: Option<Span>,
}

impl TryFrom<OneOrMany> for Renew {
    type Error = &'static str;

    fn try_from(body: OneOrMany) -> Result<Renew, &'static str> {
        match body {
            OneOrMany { holds: None, name: Some(name), kind, claim, fence, ttl } => {
                Ok(Renew::One(Held { name, kind: kind.unwrap_or_default(), claim, fence, ttl }))
            }
            OneOrMany {
                holds: Some(holds),
                name: None,
                kind: None,
                claim: None,
                fence: None,
                ttl: None,
            } => Ok(Renew::Many(holds)),
            OneOrMany { holds: Some(_), .. } => Err("beside holds there are no other fields"),
            OneOrMany { holds: None, .. } => Err("missing field `name`, or `holds`"),
        }
    }
}

/// `POST /v1/holds/renew`.
pub(crate) async fn renew(
    State(app): State<Arc<App>>,
    told: Told<Renew>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    match body {
        Renew::One(hold) => {
            let body = prolong(&app, &asked, hold, DEFAULT_TTL).await?;
            Ok(json(StatusCode::OK, &Value::Object(body)))
        }
        Renew::Many(holds) => {
            if holds.len() > MOST_RENEWALS {
                return Err(Problem::invalid(format!("at most {MOST_RENEWALS} holds at once")));
            }
            let mut all = Vec::with_capacity(holds.len());
            // All are sent before the first is awaited.
            let mut sent = Vec::with_capacity(holds.len());
            for hold in holds {
                sent.push(send(&app, &asked, hold, DEFAULT_TTL));
            }
            for one in sent {
                all.push(match receive(asked.arrival, one).await {
                    Ok(mut body) => {
                        body.insert("status".to_owned(), json!(200));
                        Value::Object(body)
                    }
                    Err(problem) => problem.to_json(),
                });
            }
            Ok(json(StatusCode::OK, &json!({ "holds": all })))
        }
    }
}

/// `POST /v1/holds/read`.
pub(crate) async fn read(
    State(app): State<Arc<App>>,
    told: Told<Held>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    if body.ttl.is_some() {
        return Err(Problem::invalid("ttl is for renew"));
    }
    let body = prolong(&app, &asked, body, Duration::ZERO).await?;
    Ok(json(StatusCode::OK, &Value::Object(body)))
}

type Sent = Result<(Name, Duration, tenure::engine::Step<Vec<Renewed>>), Problem>;

fn send(app: &App, asked: &Asked, hold: Held, ttl: Duration) -> Sent {
    let (name, id, _) = held(app, asked, &hold.name, hold.kind, hold.claim)?;
    let fence = wire::fence(hold.fence)?;
    let ttl = hold.ttl.map_or(ttl, |span| span.0);
    let longest = app.profile.longest_ttl;
    if ttl > longest {
        return Err(Problem::invalid(format!("the ttl is at most {longest:?}")));
    }
    let renewal = Renewal::Hold { name: name.clone(), id, fence, ttl };
    let step = app.lifeline.renew(app.lifeline.shard(&name), &[renewal]);
    Ok((name, ttl, step))
}

async fn receive(arrival: Moment, sent: Sent) -> Result<Map<String, Value>, Problem> {
    let (name, ttl, step) = sent?;
    let renewed = step.await?.pop();
    match renewed {
        Some(Renewed::Held(grant)) => {
            let mut body = Map::new();
            body.insert("name".to_owned(), json!(name.as_str()));
            body.insert("fence".to_owned(), json!(grant.fence.get()));
            body.insert("left_ms".to_owned(), json!(wire::left_ms(arrival, &grant)));
            if !ttl.is_zero() {
                body.insert("renew_ms".to_owned(), json!(wire::renew_ms(ttl)));
            }
            Ok(body)
        }
        Some(Renewed::Gone(ended)) => Err(Problem::gone(&ended).with("name", name.as_str())),
        Some(Renewed::Unknown(error)) => Err(error.into()),
        Some(Renewed::Waiting(_)) | None => Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "internal",
            "a renewal was not answered",
        )),
    }
}

async fn prolong(
    app: &App,
    asked: &Asked,
    hold: Held,
    ttl: Duration,
) -> Result<Map<String, Value>, Problem> {
    let renewed = receive(asked.arrival, send(app, asked, hold, ttl)).await;
    crate::meters::renewed(renewed.is_ok());
    renewed
}

/// `POST /v1/holds/release`.
pub(crate) async fn release(
    State(app): State<Arc<App>>,
    told: Told<Release>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    let (name, id, is_from_key) = held(&app, &asked, &body.name, body.kind, body.claim)?;
    let mut leave = Leave::new(name, id);
    // A repeated key must not bring back the claim that was released with it.
    leave.in_doubt = body.in_doubt || is_from_key;
    leave.only = body.fence.map(Fence::new);
    ended(&app, &asked, &leave).await
}

async fn ended(app: &App, asked: &Asked, leave: &Leave) -> Result<Response, Problem> {
    let what = match app.lifeline.leave(leave).await? {
        Left::Released if leave.settle.is_some() => "settled",
        Left::Released => "released",
        Left::Quit => "quit",
        Left::Gone(ended) => {
            let problem = Problem::gone(&ended).with("name", leave.name.as_str());
            app.events.add("gone", &leave.name, &asked.owner(), None, None);
            return Err(problem);
        }
    };
    app.events.add(what, &leave.name, &asked.owner(), leave.only, None);
    Ok(no_content())
}

/// `POST /v1/once/settle`.
pub(crate) async fn settle(
    State(app): State<Arc<App>>,
    told: Told<SettleOnce>,
) -> Result<Response, Problem> {
    let Told { asked, body, .. } = told;
    let (name, id, is_from_key) = held(&app, &asked, &body.name, Kind::Once, body.claim)?;
    let outcome = match &body.outcome {
        Some(raw) if raw.get().len() > LONGEST_OUTCOME => {
            return Err(Problem::invalid(format!(
                "an outcome has at most {LONGEST_OUTCOME} bytes"
            )));
        }
        raw => raw.as_ref().map(|raw| Outcome::from(raw.get().as_bytes())),
    };
    let mut leave = Leave::new(name, id);
    leave.in_doubt = is_from_key;
    let fence = Fence::new(body.fence);
    // The fence is no secret: only the claim that holds with it may say how the once ended.
    leave.only = Some(fence);
    leave.settle = Some(Settle { fence, outcome });
    ended(&app, &asked, &leave).await
}
