//! HTTP: who may ask, how much at once, and whether all is well.
//!
//! `POST /` is the node. `GET /healthz` says that the process lives, `GET /readyz` whether it can do
//! its work: the engine answers, or may be missed, and a node does. `GET /metrics` has the numbers.

use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{CONTENT_TYPE, HOST, HeaderMap};
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use metrics_exporter_prometheus::PrometheusHandle;
use serde_json::json;
use tenure::OnOutage;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;

use crate::envelope::{self, Json};
use crate::meters;
use crate::refusal::Refusal;
use crate::relay::{Answer, Relay, json, with_status};

/// How long a client may take for the head of a request, and so how long it may be idle.
const HEAD_WITHIN: Duration = Duration::from_secs(120);
/// How long a client may take for the body.
const BODY_WITHIN: Duration = Duration::from_secs(30);
/// How long the engine and a node may take for their parts of `/readyz`.
const HEALTH_WITHIN: Duration = Duration::from_secs(2);
/// How often old numbers are tidied up.
const UPKEEP: Duration = Duration::from_secs(5);

/// A relay that listens.
pub struct Server {
    relay: Relay,
    listener: TcpListener,
    metrics: Option<PrometheusHandle>,
}

impl Server {
    /// Listens here.
    ///
    /// # Errors
    /// If the address cannot be had.
    ///
    /// # Cancel safety
    /// May be dropped at any await point.
    pub async fn bind(relay: Relay, listen: SocketAddr) -> std::io::Result<Server> {
        Ok(Server { relay, listener: TcpListener::bind(listen).await?, metrics: None })
    }

    /// Shows these numbers at `/metrics`.
    #[must_use]
    pub fn with_metrics(mut self, metrics: PrometheusHandle) -> Server {
        self.metrics = Some(metrics);
        self
    }

    /// Where it listens.
    ///
    /// # Errors
    /// If the system does not say.
    pub fn address(&self) -> std::io::Result<SocketAddr> {
        self.listener.local_addr()
    }

    /// Serves until `stop` ends; then accepts nobody, finishes what was begun, and returns.
    ///
    /// # Cancel safety
    /// Dropping it hangs up on everyone. Transactions that have a place in a lane go on.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let Server { relay, listener, metrics } = self;
        let is_local = listener.local_addr().is_ok_and(|address| address.ip().is_loopback());
        let config = &relay.lanes.config;
        let longest = config.max_hold + config.answer_within;
        let room = Arc::new(Semaphore::new(config.max_connections));
        let desk = Arc::new(Desk { relay, metrics, is_local });
        let (stopping, stopped) = watch::channel(false);
        let mut connections = JoinSet::new();
        let mut upkeep = tokio::time::interval(UPKEEP);
        tokio::pin!(stop);
        loop {
            tokio::select! {
                biased;
                () = &mut stop => break,
                _ = connections.join_next(), if !connections.is_empty() => {}
                _ = upkeep.tick() => desk.metrics.iter().for_each(PrometheusHandle::run_upkeep),
                accepted = accept(&listener, &room) => {
                    let (stream, place) = accepted;
                    let (desk, stopped) = (desk.clone(), stopped.clone());
                    connections.spawn(async move {
                        serve(desk, stream, stopped).await;
                        drop(place);
                    });
                }
            }
        }
        drop(listener);
        stopping.send_replace(true);
        // Whoever does not read its answer is not waited for.
        let ended = async { while connections.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(longest, ended).await;
    }
}

/// The next connection, when there is room for it.
async fn accept(
    listener: &TcpListener,
    room: &Arc<Semaphore>,
) -> (TcpStream, Option<tokio::sync::OwnedSemaphorePermit>) {
    // It is never closed.
    let place = room.clone().acquire_owned().await.ok();
    loop {
        match listener.accept().await {
            Ok((stream, _)) => return (stream, place),
            // Out of descriptors, most likely: there will be some again.
            Err(error) => {
                tracing::warn!(event = "relay.accept", %error);
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}

async fn serve(desk: Arc<Desk>, stream: TcpStream, mut stopped: watch::Receiver<bool>) {
    // It only costs time if it does not work.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| {
        let desk = desk.clone();
        async move { Ok::<_, Infallible>(desk.answer(request).await) }
    });
    let connection = hyper::server::conn::http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_WITHIN)
        .serve_connection(TokioIo::new(stream), service);
    tokio::pin!(connection);
    let told = async { stopped.wait_for(|stopped| *stopped).await.is_ok() };
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        _ = told => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::trace!(event = "relay.hung_up", %error);
    }
}

struct Desk {
    relay: Relay,
    metrics: Option<PrometheusHandle>,
    /// Whether only this machine can reach it.
    is_local: bool,
}

impl Desk {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        if self.is_local && !names_this_machine(request.headers()) {
            let why = "this relay is for its own machine: the Host must say so\n";
            return with_status(StatusCode::MISDIRECTED_REQUEST, "text/plain", why);
        }
        match (request.method(), request.uri().path()) {
            (&Method::POST, "/") => self.rpc(request).await,
            (&Method::GET, "/healthz") => with_status(StatusCode::OK, "text/plain", "ok\n"),
            (&Method::GET, "/readyz") => self.ready().await,
            (&Method::GET, "/metrics") => self.metrics(),
            (_, "/" | "/healthz" | "/readyz" | "/metrics") => {
                with_status(StatusCode::METHOD_NOT_ALLOWED, "text/plain", "JSON-RPC is POST /\n")
            }
            _ => with_status(StatusCode::NOT_FOUND, "text/plain", "JSON-RPC is POST /\n"),
        }
    }

    async fn rpc(&self, request: Request<Incoming>) -> Answer {
        // A page in a browser can post anything but this without being asked who it is.
        if !is_json(request.headers()) {
            let why = "the content type must be application/json\n";
            return with_status(StatusCode::UNSUPPORTED_MEDIA_TYPE, "text/plain", why);
        }
        let limit = self.relay.lanes.config.limits.bytes;
        let (head, body) = request.into_parts();
        let body = Limited::new(body, limit).collect();
        let refusal = match tokio::time::timeout(BODY_WITHIN, body).await {
            Ok(Ok(body)) => return self.relay.answer(&head.headers, body.to_bytes()).await,
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                Refusal::BodyTooLarge { limit }
            }
            Ok(Err(_)) => Refusal::InvalidRequest("the body broke off"),
            Err(_) => Refusal::InvalidRequest("the body took too long"),
        };
        json(envelope::refuse(&Json::null(), &refusal))
    }

    async fn ready(&self) -> Answer {
        let lanes = &self.relay.lanes;
        let config = &lanes.config;
        // Asked and not remembered: whoever asks wants to know how it is now.
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
        meters::look(lanes.config.rules.chain_id, &lanes.passing);
        match &self.metrics {
            Some(metrics) => {
                with_status(StatusCode::OK, "text/plain; version=0.0.4", metrics.render())
            }
            None => with_status(StatusCode::NOT_FOUND, "text/plain", "there are none\n"),
        }
    }
}

/// What stands between two transactions of one sender right now.
fn protection(ordering: bool, is_up: bool, on_outage: OnOutage) -> &'static str {
    match on_outage {
        _ if !ordering => "none",
        _ if is_up => "engine",
        OnOutage::Local => "local",
        OnOutage::Open => "none",
        _ => "refused",
    }
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// A page that had its name point to this machine would say that name.
fn names_this_machine(headers: &HeaderMap) -> bool {
    let Some(host) = headers.get(HOST) else { return true };
    let Ok(host) = host.to_str() else { return false };
    let Ok(host) = host.parse::<hyper::http::uri::Authority>() else { return false };
    let host = host.host().trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.is_loopback();
    host.eq_ignore_ascii_case("localhost") || host.parse().is_ok_and(is_loopback)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_this_machine_are_taken_from_this_machine() {
        let with = |host: &'static str| {
            HeaderMap::from_iter([(HOST, hyper::header::HeaderValue::from_static(host))])
        };
        for good in ["localhost", "LOCALHOST:8545", "127.0.0.1:1", "127.1.2.3", "[::1]:80"] {
            assert!(names_this_machine(&with(good)), "{good}");
        }
        for bad in ["example.org", "localhost.example.org:1", "10.0.0.1", "", "a b"] {
            assert!(!names_this_machine(&with(bad)), "{bad}");
        }
        assert!(names_this_machine(&HeaderMap::new()));
    }

    #[test]
    fn json_has_several_spellings() {
        let with = |kind: &'static str| {
            HeaderMap::from_iter([(CONTENT_TYPE, hyper::header::HeaderValue::from_static(kind))])
        };
        assert!(is_json(&with("application/json")));
        assert!(is_json(&with("Application/JSON; charset=utf-8")));
        assert!(!is_json(&with("text/plain")) && !is_json(&HeaderMap::new()));
    }
}
