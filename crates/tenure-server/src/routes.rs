//! The endpoints, and what every answer has.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use hyper::header::{self, HeaderMap, HeaderName, HeaderValue};
use hyper::{Method, Request, StatusCode};
use tenure_http::Hosts;
use tower_service::Service;

use crate::access::Role;
use crate::app::{App, Asked, Peer, json, text};
use crate::problem::Problem;
use crate::{files, fitness, force, holds, look, meters, openapi, steps, tethers};

const HTML: &str = "text/html; charset=utf-8";
/// What pages of this server may load: nothing from elsewhere, and no code but its own.
const POLICY: &str = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'";

/// All endpoints, by path.
pub(crate) fn endpoints() -> [(&'static str, MethodRouter<Arc<App>>); 28] {
    [
        ("/v1/holds", post(holds::acquire)),
        ("/v1/holds/renew", post(holds::renew)),
        ("/v1/holds/read", post(holds::read)),
        ("/v1/holds/release", post(holds::release)),
        ("/v1/tethers", post(tethers::tether)),
        ("/v1/once", post(holds::once)),
        ("/v1/once/settle", post(holds::settle)),
        ("/v1/names", get(look::names)),
        ("/v1/name", get(look::name)),
        ("/v1/leader", get(look::leader)),
        ("/v1/events", get(look::events)),
        ("/v1/me", get(look::me)),
        ("/v1/doctor", get(fitness::doctor)),
        ("/v1/break", post(force::break_holds)),
        ("/v1/resize", post(force::resize)),
        ("/v1/steps", post(steps::steps)),
        ("/v1/turns", get(steps::turns)),
        ("/v1/profile", get(steps::profile)),
        ("/healthz", get(async || text(StatusCode::OK, "text/plain", "ok\n"))),
        ("/readyz", get(fitness::ready)),
        ("/metrics", get(metrics)),
        ("/openapi.json", get(async || json(StatusCode::OK, &openapi::document()))),
        ("/docs", get(async || text(StatusCode::OK, HTML, openapi::page()))),
        ("/docs.css", get(async || text(StatusCode::OK, "text/css", openapi::STYLE))),
        ("/ui", get(files::to_dashboard)),
        ("/ui/", get(files::dashboard)),
        ("/client.mjs", get(files::node_client)),
        ("/client.py", get(files::python_client)),
    ]
}

fn router(app: Arc<App>) -> Router {
    let files = get(files::dashboard_file).fallback(wrong_method);
    let mut router = Router::new().route("/ui/{*file}", files);
    for (path, route) in endpoints() {
        router = router.route(path, route.fallback(wrong_method));
    }
    router
        .fallback(async || Problem::not_found("there is nothing at this path: see /docs"))
        .with_state(app)
}

/// Whether to answer even if all connections are taken: holds must not be lost because of that, and somebody must be
/// able to see it.
fn has_room_in_reserve(path: &str, headers: &HeaderMap) -> bool {
    let is_lifeline = path == "/v1/steps" && headers.contains_key("tenure-lifeline");
    let paths = ["/v1/holds/renew", "/v1/holds/read", "/v1/holds/release", "/v1/once/settle"];
    let looks = ["/healthz", "/readyz", "/metrics"];
    is_lifeline || paths.contains(&path) || looks.contains(&path)
}

async fn wrong_method() -> Problem {
    Problem::new(
        StatusCode::METHOD_NOT_ALLOWED,
        "invalid",
        "this path has another method: see /docs",
    )
}

async fn metrics(State(app): State<Arc<App>>, asked: Asked) -> Result<Response, Problem> {
    asked.caller.must(Role::Read)?;
    meters::waiting(app.waiting.len());
    match &app.metrics {
        Some(metrics) => Ok(text(StatusCode::OK, "text/plain; version=0.0.4", metrics.render())),
        None => Err(Problem::not_found("this server has no metrics")),
    }
}

/// Answers the requests of one address.
#[derive(Clone)]
pub(crate) struct Routes {
    router: Router,
    hosts: Arc<Hosts>,
    engine_id: HeaderValue,
    app: Arc<App>,
    /// The paths that metrics tell apart; all others count as one.
    paths: Arc<[&'static str]>,
}

impl Routes {
    pub(crate) fn new(app: Arc<App>, hosts: Hosts) -> Routes {
        let engine_id = HeaderValue::from_str(&app.engine_id);
        let engine_id = engine_id.unwrap_or_else(|_| HeaderValue::from_static("unknown"));
        let paths = endpoints().into_iter().map(|(path, _)| path).collect();
        Routes { router: router(app.clone()), hosts: Arc::new(hosts), engine_id, app, paths }
    }

    pub(crate) async fn answer(
        &self,
        mut request: Request<hyper::body::Incoming>,
        peer: Peer,
    ) -> Response {
        let began = std::time::Instant::now();
        let path = request.uri().path();
        let path = self.paths.iter().find(|known| **known == path).copied().unwrap_or("other");
        let admitted = match peer.is_in_reserve && !has_room_in_reserve(path, request.headers()) {
            true => Err(Problem::unavailable("all connections are taken", 1)),
            false => self.admit(request.method(), request.headers()),
        };
        let mut response = match admitted {
            Err(problem) => problem.into_response(),
            Ok(()) => {
                request.extensions_mut().insert(peer);
                // A router is always ready, and never fails.
                let mut router = self.router.clone();
                match router.call(request.map(Body::new)).await {
                    Ok(response) => response,
                    Err(never) => match never {},
                }
            }
        };
        meters::answered(path, response.status().as_u16(), began.elapsed());
        self.dress(response.headers_mut());
        response
    }

    /// Keeps out web pages of other servers, and keeps pages of this one from changes that nobody has allowed.
    fn admit(&self, method: &Method, headers: &HeaderMap) -> Result<(), Problem> {
        if !self.hosts.accept(headers) {
            let detail = "this Host is not allowed: see --hosts";
            return Err(Problem::new(StatusCode::MISDIRECTED_REQUEST, "misdirected", detail));
        }
        if method == Method::POST && self.app.is_read_only_page(headers) {
            return Err(Problem::forbidden(
                "without a token, pages may only look: the server needs tokens, or --ui-may-break on loopback",
            ));
        }
        let Some(origin) = headers.get(header::ORIGIN) else { return Ok(()) };
        let host =
            headers.get(header::HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let origin = origin.to_str().unwrap_or_default();
        let own = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
        match own.is_some_and(|own| !host.is_empty() && own.eq_ignore_ascii_case(host)) {
            true => Ok(()),
            false => Err(Problem::forbidden("pages of other origins may not use this server")),
        }
    }

    fn dress(&self, headers: &mut HeaderMap) {
        headers.insert(HeaderName::from_static("tenure-engine"), self.engine_id.clone());
        for (name, value) in [
            (header::CACHE_CONTROL, "no-store"),
            (header::CONTENT_SECURITY_POLICY, POLICY),
            (header::REFERRER_POLICY, "no-referrer"),
            (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        ] {
            headers.entry(name).or_insert(HeaderValue::from_static(value));
        }
    }
}
