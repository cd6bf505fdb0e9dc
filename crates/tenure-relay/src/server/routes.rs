//! The endpoints. `POST /` is JSON-RPC. `GET /healthz` says that the process is alive, `GET /readyz` whether it can
//! work: a node answers, and the engine does or is not required. `GET /metrics` has the metrics.

use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::{Method, Request, StatusCode};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tenure::OnOutage;
use tenure_http::Hosts;

use super::bodies::Bodies;
use super::credentials::Credentials;
use super::origin::{self, Origins};
use crate::access::Caller;
use crate::envelope::{self, Json};
use crate::meters;
use crate::refusal::Refusal;
use crate::relay::{Answer, Relay, json, with_status};

/// How long the engine and a node may take to answer for `/readyz`.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);

const LOOK: &str = "GET, HEAD";
const NO_WEBSOCKET: &str = "WebSocket is not supported: use HTTP, POST / with application/json. For \
                            subscriptions connect to the node itself; transactions are sent here\n";

/// Which endpoints an address serves.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Endpoints {
    All,
    /// JSON-RPC and `/healthz`.
    Calls,
    /// Health and metrics.
    Admin,
}

/// Answers the requests of one address.
pub(super) struct Routes {
    pub(super) endpoints: Endpoints,
    pub(super) relay: Relay,
    pub(super) metrics: Option<PrometheusHandle>,
    pub(super) credentials: Credentials,
    pub(super) hosts: Hosts,
    pub(super) origins: Origins,
    pub(super) bodies: Bodies,
}

impl Routes {
    /// Answers a request from the client `from`. Reserve connections may only ask for health and metrics.
    pub(super) async fn answer(
        &self,
        request: Request<Incoming>,
        from: &Arc<str>,
        is_in_reserve: bool,
    ) -> Answer {
        if !self.hosts.accept(request.headers()) {
            let why = "this Host is not allowed: see --hosts\n";
            return plain(StatusCode::MISDIRECTED_REQUEST, why);
        }
        let origin = self.origins.known(request.headers());
        let mut answer = match request.uri().path() {
            "/" if self.endpoints != Endpoints::Admin => match is_in_reserve {
                true => too_many(),
                false => self.calls(request, from, origin.is_some()).await,
            },
            path @ ("/healthz" | "/readyz" | "/metrics") => self.look(path, &request, from).await,
            _ => plain(StatusCode::NOT_FOUND, "JSON-RPC is POST /\n"),
        };
        if let Some(origin) = origin {
            origin::allow(origin, answer.headers_mut());
        }
        answer
    }

    async fn calls(&self, request: Request<Incoming>, from: &Arc<str>, may_ask: bool) -> Answer {
        let headers = request.headers();
        match *request.method() {
            Method::POST => match self.credentials.caller(headers, from) {
                Some(caller) => self.rpc(request, &caller).await,
                None => who_are_you(from),
            },
            Method::OPTIONS if may_ask && origin::is_preflight(headers) => {
                let mut answer = plain(StatusCode::NO_CONTENT, "");
                origin::allow_sending(answer.headers_mut());
                answer
            }
            _ if wants_websocket(headers) => plain(StatusCode::NOT_IMPLEMENTED, NO_WEBSOCKET),
            _ => not_allowed(if may_ask { "POST, OPTIONS" } else { "POST" }),
        }
    }

    async fn rpc(&self, request: Request<Incoming>, caller: &Caller) -> Answer {
        // A web page can post other content types to another origin without a CORS preflight.
        if !is_json(request.headers()) {
            let why = "the content type must be application/json\n";
            return plain(StatusCode::UNSUPPORTED_MEDIA_TYPE, why);
        }
        let (head, body) = request.into_parts();
        match self.bodies.read(body).await {
            Ok(body) => {
                let (query, bytes) = (head.uri.query(), body.bytes.clone());
                self.relay.answer(&head.headers, query, caller, bytes).await
            }
            Err(refusal) => json(envelope::refuse(&Json::null(), &refusal)),
        }
    }

    /// Health and metrics. `/healthz` needs no token.
    async fn look(&self, path: &str, request: &Request<Incoming>, from: &Arc<str>) -> Answer {
        if self.endpoints == Endpoints::Calls && path != "/healthz" {
            return plain(
                StatusCode::NOT_FOUND,
                "this is served at the address for health and metrics\n",
            );
        }
        if !matches!(*request.method(), Method::GET | Method::HEAD) {
            return not_allowed(LOOK);
        }
        if path != "/healthz" && self.credentials.caller(request.headers(), from).is_none() {
            return who_are_you(from);
        }
        match path {
            "/healthz" => plain(StatusCode::OK, "ok\n"),
            "/readyz" => self.ready().await,
            _ => self.metrics(),
        }
    }

    async fn ready(&self) -> Answer {
        let lanes = &self.relay.lanes;
        let config = &lanes.config;
        // Asked now, not taken from memory: the caller wants the present state.
        let (engine, node) = tokio::join!(
            tokio::time::timeout(HEALTH_WITHIN, lanes.tenure.health()),
            tokio::time::timeout(HEALTH_WITHIN, lanes.nodes.answer())
        );
        let (is_up, node) = (matches!(engine, Ok(Ok(_))), node == Ok(true));
        let can_do_without = !config.ordering || config.on_outage != OnOutage::Closed;
        let ready = node && (is_up || can_do_without);
        let nodes = lanes.nodes.seen();
        let body = json!({
            "ready": ready,
            "engine": { "up": is_up },
            "ordering": config.ordering,
            "protection": protection(config.ordering, is_up, config.on_outage),
            "nodes": nodes
                .map(|(host, answers)| json!({ "host": host, "answers": answers }))
                .collect::<Vec<_>>(),
        });
        let status = if ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
        with_status(status, "application/json", format!("{body}\n"))
    }

    fn metrics(&self) -> Answer {
        let lanes = &self.relay.lanes;
        lanes.tenure.measure_ages();
        meters::look(lanes.config.rules.chain_id, &lanes.active);
        match &self.metrics {
            Some(metrics) => {
                with_status(StatusCode::OK, "text/plain; version=0.0.4", metrics.render())
            }
            None => plain(StatusCode::NOT_FOUND, "there are none\n"),
        }
    }
}

fn plain(status: StatusCode, text: &'static str) -> Answer {
    with_status(status, "text/plain", text)
}

fn not_allowed(allowed: &'static str) -> Answer {
    let mut answer = plain(StatusCode::METHOD_NOT_ALLOWED, "JSON-RPC is POST /\n");
    answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static(allowed));
    answer
}

fn who_are_you(from: &str) -> Answer {
    meters::unauthorized();
    tracing::debug!(event = "relay.unauthorized", client = from);
    let why = "a token is required, in the header Authorization: Bearer TOKEN\n";
    let mut answer = plain(StatusCode::UNAUTHORIZED, why);
    answer.headers_mut().insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    answer
}

fn too_many() -> Answer {
    let refusal = Refusal::Busy("all connections are taken");
    let mut answer = json(envelope::refuse(&Json::null(), &refusal));
    *answer.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    answer.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    answer
}

/// What keeps two transactions of one sender in order right now.
fn protection(ordering: bool, is_up: bool, on_outage: OnOutage) -> &'static str {
    match on_outage {
        _ if !ordering => "none",
        _ if is_up => "engine",
        OnOutage::Local => "local",
        OnOutage::Open => "none",
        _ => "refused",
    }
}

fn wants_websocket(headers: &HeaderMap) -> bool {
    let upgrade = headers.get(header::UPGRADE).and_then(|to| to.to_str().ok()).unwrap_or_default();
    upgrade.split(',').any(|to| to.trim().eq_ignore_ascii_case("websocket"))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_has_several_spellings() {
        let with = |kind: &'static str| {
            HeaderMap::from_iter([(header::CONTENT_TYPE, HeaderValue::from_static(kind))])
        };
        assert!(is_json(&with("application/json")));
        assert!(is_json(&with("Application/JSON; charset=utf-8")));
        assert!(!is_json(&with("text/plain")) && !is_json(&HeaderMap::new()));
    }
}
