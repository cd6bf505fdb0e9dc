//! Whether the engine answers, and whether it is fit for locks: `/readyz`, `/v1/doctor`.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::response::Response;
use hyper::StatusCode;
use hyper::http::request::Parts;
use serde_json::{Map, Value, json};
use tenure::engine::{Finding, Mark, Moment, SystemWorld, World};

use crate::access::Role;
use crate::app::{App, Asked, json};
use crate::problem::Problem;

/// How long the engine may take to answer for `/readyz`.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);
/// How old the findings that are shown may be: a check is work for the engine.
const FINDINGS_LAST: Duration = Duration::from_secs(10);

/// What is known of the engine.
pub(crate) struct Fitness {
    /// How long it must be silent before this server reports that it is not ready.
    unready_after: Duration,
    /// Since when it has not answered. Before its first answer, that is for ever.
    silent_since: Mutex<Option<Moment>>,
    findings: tokio::sync::Mutex<Option<(Moment, Vec<Finding>)>>,
}

impl Fitness {
    /// Becomes unready after `span` to twice `span`, at a different time on each server.
    pub(crate) fn new(span: Duration) -> Fitness {
        let part = SystemWorld.now().as_nanos() % 1000;
        Fitness {
            unready_after: span + span * part as u32 / 1000,
            silent_since: Mutex::new(Some(Moment::ORIGIN)),
            findings: tokio::sync::Mutex::default(),
        }
    }

    /// Whether the server is ready, given whether the engine has answered now. If all servers lose the engine, none
    /// of them becomes unready for a while: a load balancer that removed them all at once would cut every stream.
    fn is_ready(&self, answers: bool, now: Moment) -> bool {
        let mut since = self.silent_since.lock().unwrap_or_else(PoisonError::into_inner);
        if answers {
            *since = None;
            return true;
        }
        now < *since.get_or_insert(now) + self.unready_after
    }
}

/// Whether the caller may see where the engine is. Others are only told whether the server is ready.
pub(crate) struct MayLook(bool);

impl FromRequestParts<Arc<App>> for MayLook {
    type Rejection = std::convert::Infallible;

    async fn from_request_parts(
        parts: &mut Parts,
        app: &Arc<App>,
    ) -> Result<MayLook, Self::Rejection> {
        let caller = app.credentials.caller(&parts.headers, &Arc::from(""));
        Ok(MayLook(caller.is_some_and(|caller| caller.has(Role::Read))))
    }
}

/// `GET /readyz`.
pub(crate) async fn ready(State(app): State<Arc<App>>, MayLook(may_look): MayLook) -> Response {
    // Asked now, not taken from memory: the caller wants the present state.
    let health = tokio::time::timeout(HEALTH_WITHIN, app.lifeline.health()).await;
    let answers = matches!(health, Ok(Ok(())));
    let is_ready = app.fitness.is_ready(answers, SystemWorld.now());
    let is_ready = is_ready && !*app.stopping.borrow();
    let status = if is_ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    let mut body = json!({ "ready": is_ready });
    if may_look {
        body["engine"] = json!(app.profile.label);
    }
    json(status, &body)
}

/// `GET /v1/doctor`.
pub(crate) async fn doctor(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    asked.query.only(&[])?;
    // One check at a time; requests that waited for it share what it found.
    let mut last = app.fitness.findings.lock().await;
    let is_fresh = |at: Moment| SystemWorld.now() < at + FINDINGS_LAST;
    if !last.as_ref().is_some_and(|(at, _)| is_fresh(*at)) {
        let at = SystemWorld.now();
        *last = Some((at, app.lifeline.examine().await?));
    }
    let Some((at, findings)) = &*last else { return Err(Problem::unavailable("not found yet", 1)) };
    let many = |mark| findings.iter().filter(|finding| finding.mark == mark).count();
    let problems = many(Mark::Problem);
    let age_ms = at.until(SystemWorld.now()).as_millis() as u64;
    let body = json!({
        "engine": app.profile.label, "fit": problems == 0, "ok": many(Mark::Good),
        "warnings": many(Mark::Warning), "problems": problems, "age_ms": age_ms,
        "findings": findings.iter().map(shown).collect::<Value>(),
    });
    Ok(json(StatusCode::OK, &body))
}

fn shown(finding: &Finding) -> Value {
    let Finding { check, mark, what, why, fix, code, .. } = finding;
    let mark = match mark {
        Mark::Good => "good",
        Mark::Warning => "warning",
        Mark::Problem => "problem",
    };
    let mut fields = Map::new();
    for (field, text) in [
        ("check", Some(*check)),
        ("mark", Some(mark)),
        ("what", Some(what.as_str())),
        ("why", why.as_deref()),
        ("fix", fix.as_deref()),
        ("code", *code),
    ] {
        if let Some(text) = text {
            fields.insert(field.to_owned(), json!(text));
        }
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_is_unready_only_after_the_engine_was_silent_for_a_while() {
        let (fitness, now) = (Fitness::new(Duration::from_secs(10)), SystemWorld.now());
        let (second, delay) = (Duration::from_secs(1), fitness.unready_after);
        assert!(delay >= second * 10 && delay <= second * 20);
        assert!(!fitness.is_ready(false, now), "it has never answered");
        assert!(fitness.is_ready(true, now));
        assert!(fitness.is_ready(false, now + second));
        assert!(fitness.is_ready(false, now + delay));
        assert!(!fitness.is_ready(false, now + delay + second));
        assert!(fitness.is_ready(true, now + delay + second * 2), "at once when it is back");
        assert!(fitness.is_ready(false, now + delay + second * 3));
    }
}
