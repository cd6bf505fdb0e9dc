//! What all requests share, and what each of them brings.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Request};
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use foldhash::fast::RandomState;
use hyper::StatusCode;
use hyper::body::Body as _;
use hyper::header::{self, HeaderMap, HeaderValue};
use hyper::http::request::Parts;
use serde::de::DeserializeOwned;
use serde_json::Value;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Mutex, PoisonError};
use tenure::engine::{ClaimId, Engine, Moment, Name, Profile, SystemWorld, World};
use tokio::sync::watch;

use crate::access::Caller;
use crate::config::Config;
use crate::credentials::Credentials;
use crate::events::Events;
use crate::failures::Failures;
use crate::fitness::Fitness;
use crate::problem::Problem;
use crate::sessions::Sessions;
use crate::signing::Key;
use crate::waiting::Waiting;
use crate::wire::Secret;

/// The largest body, in bytes.
const MOST_BYTES: usize = 64 << 10;
/// The same for a batch of steps.
pub(crate) const MOST_BYTES_OF_STEPS: usize = 4 << 20;
/// How long a body may take to arrive.
const BODY_WITHIN: Duration = Duration::from_secs(10);

/// What all requests share.
pub(crate) struct App {
    pub(crate) engine: Arc<dyn Engine>,
    /// The same over a connection of its own: waits must not hold up renewals and releases.
    pub(crate) lifeline: Arc<dyn Engine>,
    /// What the engine promises, within the limits of this server.
    pub(crate) profile: Profile,
    pub(crate) waiting: Arc<Waiting>,
    pub(crate) sessions: Sessions,
    pub(crate) events: Arc<Events>,
    pub(crate) key: Key,
    pub(crate) config: Config,
    pub(crate) credentials: Credentials,
    /// The id of the engine.
    pub(crate) engine_id: String,
    /// Nothing is granted before this moment: holds of an earlier run may still be in use.
    pub(crate) grants_from: Moment,
    pub(crate) stopping: watch::Receiver<bool>,
    pub(crate) clients: Clients,
    pub(crate) failures: Failures,
    pub(crate) metrics: Option<metrics_exporter_prometheus::PrometheusHandle>,
    pub(crate) fitness: Fitness,
}

impl App {
    /// Forgets what is no longer needed.
    pub(crate) fn tidy_up(&self) {
        if let Some(metrics) = &self.metrics {
            metrics.run_upkeep();
        }
        for (session, name, id) in self.sessions.sweep(SystemWorld.now()) {
            self.waiting.forget(&name, id, &session);
        }
    }

    /// Whether a request comes from a web page, on a server without tokens whose pages may only read. Otherwise any
    /// browser that can reach the server could be used to change something.
    pub(crate) fn is_read_only_page(&self, headers: &HeaderMap) -> bool {
        let is_page =
            headers.contains_key(header::ORIGIN) || headers.contains_key("sec-fetch-site");
        is_page && self.credentials.are_open() && !self.config.pages_may_change
    }
}

/// Where a connection comes from.
#[derive(Clone, Debug)]
pub(crate) struct Peer {
    pub(crate) from: Arc<str>,
    /// What counts as one client until it has shown a token.
    pub(crate) network: IpAddr,
    /// One of the few connections beyond the limit, which may only keep or end what they hold, and ask for health and metrics.
    pub(crate) is_in_reserve: bool,
}

/// A request that was admitted.
pub(crate) struct Asked {
    pub(crate) arrival: Moment,
    pub(crate) caller: Caller,
    pub(crate) from: Arc<str>,
    pub(crate) headers: HeaderMap,
    pub(crate) query: Query,
}

/// A request with a body.
pub(crate) struct Told<T> {
    pub(crate) asked: Asked,
    pub(crate) body: T,
    pub(crate) bytes: Bytes,
}

impl Asked {
    /// What is shown for a client that does not name itself.
    pub(crate) fn owner(&self) -> String {
        match *self.caller.name == *self.from {
            true => self.from.to_string(),
            false => format!("{}@{}", self.caller.name, self.from),
        }
    }

    /// The claim that a request is about, from its body or its `Idempotency-Key`, and whether it is the latter.
    pub(crate) fn claim(
        &self,
        app: &App,
        name: &Name,
        said: Option<Secret>,
    ) -> Result<Option<(ClaimId, bool)>, Problem> {
        if let Some(Secret(id)) = said {
            return Ok(Some((id, false)));
        }
        let Some(key) = self.headers.get("idempotency-key") else { return Ok(None) };
        match key.to_str() {
            Ok(key) if (1..=256).contains(&key.len()) => {
                Ok(Some((app.key.claim(&self.caller.name, name, key), true)))
            }
            _ => {
                Err(Problem::invalid("an Idempotency-Key has 1 to 256 printable ASCII characters"))
            }
        }
    }
}

fn admit(parts: &Parts, app: &App) -> Result<Asked, Problem> {
    let peer = parts.extensions.get::<Peer>();
    let from = peer.map_or_else(|| Arc::from("unknown"), |peer| peer.from.clone());
    let Some(caller) = app.credentials.caller(&parts.headers, &from) else {
        crate::meters::unauthorized();
        let network = peer.map_or(IpAddr::from([0; 4]), |peer| peer.network);
        return Err(app.failures.refuse(network, SystemWorld.now()));
    };
    let query = Query::read(parts.uri.query().unwrap_or_default())?;
    Ok(Asked { arrival: SystemWorld.now(), caller, from, headers: parts.headers.clone(), query })
}

impl FromRequestParts<Arc<App>> for Asked {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> Result<Asked, Problem> {
        admit(parts, app)
    }
}

impl<T: DeserializeOwned + Send> FromRequest<Arc<App>> for Told<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Told<T>, Problem> {
        let (parts, body) = request.into_parts();
        let asked = admit(&parts, app)?;
        // A web page can post other content types to another origin without a preflight.
        if !is_json(&parts.headers) {
            let why = "the content type must be application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid", why));
        }
        let bytes = read(body, MOST_BYTES).await?;
        // Otherwise an array with the values of all fields would be accepted as well.
        if !bytes.trim_ascii_start().starts_with(b"{") {
            return Err(Problem::invalid("the body must be a JSON object"));
        }
        let body = serde_json::from_slice(&bytes)
            .map_err(|error| Problem::invalid(format!("the body cannot be read: {error}")))?;
        Ok(Told { asked, body, bytes })
    }
}

/// A batch of steps, which may be longer and is read elsewhere.
pub(crate) struct Steps {
    pub(crate) asked: Asked,
    pub(crate) bytes: Bytes,
}

impl FromRequest<Arc<App>> for Steps {
    type Rejection = Problem;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Steps, Problem> {
        let (parts, body) = request.into_parts();
        let asked = admit(&parts, app)?;
        if !is_json(&parts.headers) {
            let why = "the content type must be application/json";
            return Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, "invalid", why));
        }
        Ok(Steps { asked, bytes: read(body, MOST_BYTES_OF_STEPS).await? })
    }
}

async fn read(body: Body, most: usize) -> Result<Bytes, Problem> {
    let within = tokio::time::timeout(BODY_WITHIN, collect(body, most)).await;
    let too_slow =
        || Problem::new(StatusCode::REQUEST_TIMEOUT, "too_slow", "the body took too long");
    within.unwrap_or_else(|_| Err(too_slow()))
}

async fn collect(mut body: Body, most: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let why = format!("a body has at most {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too_large", why)
    };
    if body.size_hint().lower() > most as u64 {
        return Err(too_large());
    }
    let mut first = Bytes::new();
    let mut all: Option<BytesMut> = None;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let frame = frame.map_err(|_| Problem::invalid("the body broke off"))?;
        let Ok(data) = frame.into_data() else { continue };
        if all.as_ref().map_or(first.len(), BytesMut::len) + data.len() > most {
            return Err(too_large());
        }
        match &mut all {
            Some(all) => all.extend_from_slice(&data),
            // Nearly all bodies come in one piece.
            None if first.is_empty() => first = data,
            None => {
                let mut both = BytesMut::from(&*first);
                both.extend_from_slice(&data);
                all = Some(both);
            }
        }
    }
    Ok(all.map_or(first, BytesMut::freeze))
}

fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    kind.eq_ignore_ascii_case("application/json")
}

/// The fields of a query.
#[derive(Debug, Default)]
pub(crate) struct Query(Vec<(String, String)>);

impl Query {
    fn read(query: &str) -> Result<Query, Problem> {
        let pairs = query.split('&').filter(|pair| !pair.is_empty());
        let pairs = pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")));
        let bad = || Problem::invalid("the query is not percent-encoded UTF-8");
        pairs
            .map(|(field, value)| Some((decode(field)?, decode(value)?)))
            .collect::<Option<_>>()
            .map(Query)
            .ok_or_else(bad)
    }

    pub(crate) fn get(&self, field: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| known == field).map(|(_, value)| value.as_str())
    }

    /// Refuses fields that mean nothing here.
    pub(crate) fn only(&self, known: &[&str]) -> Result<(), Problem> {
        match self.0.iter().find(|(field, _)| !known.contains(&field.as_str())) {
            Some(_) => Err(Problem::invalid(format!("the query may have {}", known.join(", ")))),
            None => Ok(()),
        }
    }

    pub(crate) fn must(&self, field: &str) -> Result<&str, Problem> {
        self.get(field).ok_or_else(|| Problem::invalid(format!("{field}= is missing in the query")))
    }
}

fn decode(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let mut digit = || char::from(rest.next()?).to_digit(16);
                (digit()? * 16 + digit()?) as u8
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

/// How many requests of each client wait, and how many streams it has.
#[derive(Default)]
pub(crate) struct Clients(Mutex<hashbrown::HashMap<Arc<str>, Arc<AtomicUsize>, RandomState>>);

/// One request that waits, or one stream.
pub(crate) struct InUse(Arc<AtomicUsize>);

impl Clients {
    pub(crate) fn enter(&self, client: &Arc<str>, most: usize) -> Result<InUse, Problem> {
        let mut clients = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() > 10_000 {
            clients.retain(|_, count| count.load(Relaxed) > 0);
        }
        let count = clients.entry(client.clone()).or_default().clone();
        if count.fetch_add(1, Relaxed) >= most {
            count.fetch_sub(1, Relaxed);
            return Err(Problem::too_many("this client has too many waiting requests and streams"));
        }
        Ok(InUse(count))
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// A body of JSON.
pub(crate) fn json(status: StatusCode, value: &Value) -> Response {
    text(status, "application/json", value.to_string())
}

pub(crate) fn text(status: StatusCode, kind: &'static str, text: impl Into<Body>) -> Response {
    let mut response = Response::new(text.into());
    *response.status_mut() = status;
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    response
}

pub(crate) fn no_content() -> Response {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_is_decoded() {
        let query = Query::read("name=a%2Fb%20c+d&kind=lock&x").unwrap();
        assert_eq!(query.get("name"), Some("a/b c d"));
        assert_eq!(
            (query.get("kind"), query.get("x"), query.get("y")),
            (Some("lock"), Some(""), None)
        );
        assert!(query.only(&["name", "kind", "x"]).is_ok() && query.only(&["name"]).is_err());
        for bad in ["name=%", "name=%2", "name=%zz", "name=%ff"] {
            assert!(Query::read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_client_has_a_limit_of_its_own() {
        let clients = Clients::default();
        let (one, two): (Arc<str>, Arc<str>) = ("one".into(), "two".into());
        let first = clients.enter(&one, 2).unwrap();
        let _second = clients.enter(&one, 2).unwrap();
        assert!(clients.enter(&one, 2).is_err() && clients.enter(&two, 2).is_ok());
        drop(first);
        assert!(clients.enter(&one, 2).is_ok());
    }
}
