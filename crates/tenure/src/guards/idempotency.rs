//! `Idempotency-Key` for any HTTP handler, as a `tower` layer: a repeated request is answered
//! with the first answer, and its handler runs once.
//!
//! A client chooses a key for a request that writes, and sends the same key when it tries
//! again. The handler runs to completion even if the client has disconnected. The engine remembers its answer as
//! the outcome of a [`Once`], for all instances of the service.
//!
//! | status | when |
//! |---|---|
//! | that of the first answer | it was done before; the answer has `Idempotency-Replayed: true` |
//! | 400 | the key is invalid, or it is required and missing or belongs to nobody |
//! | 409 | the first request is still being handled, and the wait for it is over |
//! | 409 | the first one failed (5xx) or never ended (its server died): it may or may not have been done |
//! | 409 | it was done, but its answer was too long to be kept |
//! | 413 | the body is too long |
//! | 422 | the key was used with another request |
//! | 503 | the engine cannot be reached; nothing was done |
//!
//! **A status of 500 or above leaves the outcome unknown**: a gateway that timed out may have charged the card.
//! It is passed on, and a retry is refused with 409 instead of doing the work again. A handler that knows better
//! can say so: [`NothingDone`] lets the next try run it; [`keep_failures`](IdempotencyLayer::keep_failures)
//! replays the failure, and [`rerun`](IdempotencyLayer::rerun) runs it again.
//!
//! Requests are compared by method, path, query and body, as they arrive at the layer: behind a router that
//! strips a prefix, put the prefix into the scope. Bodies and answers are read completely, and answers are kept
//! without `Set-Cookie`.
//!
//! **A key does not identify a user.** Use [`scoped_by`](IdempotencyLayer::scoped_by) to say whose it is, or one
//! user may get the answer to another.
//!
//! ```
//! # async fn example() -> tenure::Result<()> {
//! use axum::{Router, routing::post};
//! use tenure::Tenure;
//! use tenure::idempotency::IdempotencyLayer;
//!
//! let tenure = Tenure::connect("memory:").await?;
//! let layer = IdempotencyLayer::new(&tenure, "shop")
//!     .scoped_by(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()));
//! let app: Router = Router::new().route("/pay", post(async || "paid")).layer(layer);
//! # drop(app);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```

mod answer;
mod refusal;

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::header::HeaderName;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use http_body_util::{BodyExt, Limited};
use tower_layer::Layer;
use tower_service::Service;
use tracing::Instrument;

use self::answer::Answer;
use crate::api::primitives::{Begun, Once, Run};
use crate::api::tenure::Tenure;
use crate::guards::problem::Problem;

/// The header with the key.
pub const KEY: HeaderName = HeaderName::from_static("idempotency-key");
/// The header of a replayed answer.
pub const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// The longest key, in bytes.
const LONGEST_KEY: usize = 255;

/// In the extensions of a response: the handler has done nothing, no matter what the status is.
///
/// Such an answer is not remembered, and the next request with the same key runs the handler again.
/// Set it only if nothing can have happened and nothing can still happen: not after a call that timed out.
///
/// ```
/// use axum::{Extension, http::StatusCode, response::IntoResponse};
/// use tenure::idempotency::NothingDone;
///
/// async fn pay() -> impl IntoResponse {
///     // Refused before anything was sent to the bank.
///     (StatusCode::SERVICE_UNAVAILABLE, Extension(NothingDone), "too many payments, try again")
/// }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(pay());
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NothingDone;

/// Returns whose key it is.
type Scope = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Puts an [`IdempotencyService`] around a service.
#[derive(Clone)]
pub struct IdempotencyLayer {
    tenure: Tenure,
    service: String,
    scope: Arc<Scope>,
    required: bool,
    keep: Duration,
    keep_failures: bool,
    rerun: bool,
    wait: Duration,
    longest_body: usize,
}

impl IdempotencyLayer {
    /// A layer that keeps answers for 24 h in the engine of `tenure`. The service needs a name, because other
    /// services on that engine may receive the same keys.
    pub fn new(tenure: &Tenure, service: impl Into<String>) -> IdempotencyLayer {
        IdempotencyLayer {
            tenure: tenure.clone(),
            service: service.into(),
            scope: Arc::new(|_| Some(String::new())),
            required: false,
            keep: Duration::from_secs(24 * 60 * 60),
            keep_failures: false,
            rerun: false,
            wait: Duration::from_secs(30),
            longest_body: 1 << 20,
        }
    }

    /// Whose key it is, such as the user that an earlier layer has authenticated. Default: everyone shares one set of
    /// keys.
    ///
    /// `None` means that the key belongs to nobody: if keys are [`required`](IdempotencyLayer::required), the
    /// request is refused, otherwise it is handled as if it had no key.
    #[must_use]
    pub fn scoped_by(
        mut self,
        scope: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> IdempotencyLayer {
        self.scope = Arc::new(scope);
        self
    }

    /// Refuse requests that write and have no key, or one that [belongs to nobody](IdempotencyLayer::scoped_by).
    /// Default: they are handled normally.
    #[must_use]
    pub fn required(mut self) -> IdempotencyLayer {
        self.required = true;
        self
    }

    /// How long an answer is remembered. Default: 24 h.
    #[must_use]
    pub fn keep(mut self, keep: Duration) -> IdempotencyLayer {
        self.keep = keep;
        self
    }

    /// Remember answers with a status of 500 or above like all others, and replay them. Default: a retry is told
    /// that the outcome is unknown.
    #[must_use]
    pub fn keep_failures(mut self) -> IdempotencyLayer {
        self.keep_failures = true;
        self
    }

    /// Run the handler again if an earlier run failed (5xx) or its server died: at least once. Default: at most
    /// once.
    #[must_use]
    pub fn rerun(mut self) -> IdempotencyLayer {
        self.rerun = true;
        self
    }

    /// How long a repeated request waits for the answer to the first one. Default: 30 s.
    #[must_use]
    pub fn wait(mut self, wait: Duration) -> IdempotencyLayer {
        self.wait = wait;
        self
    }

    /// The longest body of a request with a key, in bytes. Default: 1 MiB.
    #[must_use]
    pub fn longest_body(mut self, bytes: usize) -> IdempotencyLayer {
        self.longest_body = bytes;
        self
    }

    /// The name of the once for a request; `None` if it has no key.
    fn name(&self, parts: &Parts) -> Result<Option<String>, Problem> {
        if parts.method.is_safe() {
            return Ok(None);
        }
        let mut keys = parts.headers.get_all(KEY).iter();
        let (Some(key), None) = (keys.next(), keys.next()) else {
            return match parts.headers.contains_key(KEY) {
                true => Err(refusal::bad("there are two of them")),
                false if self.required => Err(refusal::missing()),
                false => Ok(None),
            };
        };
        let Some(scope) = (self.scope)(parts) else {
            return if self.required { Err(refusal::nobodys()) } else { Ok(None) };
        };
        let key = key.to_str().map_err(|_| refusal::bad("it is not plain text"))?.trim();
        // The standard puts it in quotes, but hardly anyone does.
        let key = key.strip_prefix('"').and_then(|key| key.strip_suffix('"')).unwrap_or(key);
        if key.is_empty() || key.len() > LONGEST_KEY {
            return Err(refusal::bad(&format!("it must have 1 to {LONGEST_KEY} bytes")));
        }
        let service = &self.service;
        // With their lengths, so that no combination of service, scope and key can be mistaken for another.
        Ok(Some(format!("request:{}:{}:{service}:{scope}:{key}", service.len(), scope.len())))
    }

    fn once(&self, name: &str, parts: &Parts, body: &[u8]) -> Once {
        let target = parts.uri.path_and_query().map_or("", |target| target.as_str());
        let head = format!("{} {target}\n", parts.method);
        let content = [head.as_bytes(), body].concat();
        self.tenure.once(name).keep(self.keep).rerun(self.rerun).content(content)
    }

    /// Finds out whether this request has to be handled. It only waits while another request is being handled: if
    /// the engine cannot be reached, the client is told within a second.
    async fn begin(&self, name: &str, parts: &Parts, body: &[u8]) -> crate::Result<Begun> {
        match self.once(name, parts, body).wait(Duration::ZERO).begin().await {
            Ok(Begun::InProgress(_)) if !self.wait.is_zero() => {
                self.once(name, parts, body).wait(self.wait).begin().await
            }
            begun => begun,
        }
    }

    /// Settles the run with an answer, unless the answer leaves open what was done.
    async fn settle(&self, run: Run, answer: &Answer, nothing_done: bool) {
        let done = if nothing_done {
            run.undo().await
        } else if answer.status.is_server_error() && !self.keep_failures {
            let (name, status) = (run.hold().name(), answer.status);
            crate::observe::unsettled(&format_args!("{name:?} was answered with {status}"));
            // Dropping the run leaves it unsettled.
            return;
        } else {
            run.settle(answer.to_bytes()).await
        };
        if let Err(error) = done {
            // The answer is still right, but a retry will be told that the request never ended.
            crate::observe::unsettled(&error);
        }
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("required", &self.required)
            .field("keep", &self.keep)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> IdempotencyService<S> {
        IdempotencyService { inner, layer: self.clone() }
    }
}

/// A service that runs its handlers once for each key.
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

impl<S, Asked, Answered> Service<Request<Asked>> for IdempotencyService<S>
where
    S: Service<Request<Asked>, Response = Response<Answered>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Asked: Body + From<Bytes> + Send + 'static,
    Asked::Data: Send,
    Asked::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
    Answered: Body + From<Bytes> + From<String> + Send + 'static,
    Answered::Data: Send,
{
    type Response = Response<Answered>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Answered>, S::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Asked>) -> Self::Future {
        let layer = self.layer.clone();
        // Use the clone that reported to be ready; the other may not be.
        let fresh = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, fresh);
        Box::pin(async move {
            let (parts, body) = request.into_parts();
            let name = match layer.name(&parts) {
                Ok(Some(name)) => name,
                Ok(None) => return inner.call(Request::from_parts(parts, body)).await,
                Err(problem) => return Ok(problem.into_response()),
            };
            let Ok(body) = Limited::new(body, layer.longest_body).collect().await else {
                return Ok(refusal::too_long(layer.longest_body).into_response());
            };
            let body = body.to_bytes();
            let run = match layer.begin(&name, &parts, &body).await {
                Ok(Begun::Mine(run)) => run,
                Ok(Begun::Replayed(outcome)) => return Ok(answer::replay(&outcome)),
                Ok(Begun::InProgress(_)) => return Ok(refusal::in_progress().into_response()),
                Ok(Begun::Unsettled) => return Ok(refusal::unsettled().into_response()),
                Err(error) => return Ok(refusal::failed(&error).into_response()),
            };
            let request = Request::from_parts(parts, Asked::from(body));
            handle(inner, request, layer, run).await
        })
    }
}

/// Runs the handler to completion even if the client disconnects: it will retry.
async fn handle<S, Asked, Answered>(
    mut inner: S,
    request: Request<Asked>,
    layer: IdempotencyLayer,
    run: Run,
) -> Result<Response<Answered>, S::Error>
where
    S: Service<Request<Asked>, Response = Response<Answered>> + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    Asked: Send + 'static,
    Answered: Body + From<Bytes> + From<String> + Send + 'static,
    Answered::Data: Send,
{
    let handling = async move {
        let (parts, body) = inner.call(request).await?.into_parts();
        // An incomplete answer does not count: the run is dropped, and stays unsettled.
        let Ok(body) = body.collect().await else { return Ok(None) };
        let nothing_done = parts.extensions.get::<NothingDone>().is_some();
        let answer = Answer::new(parts.status, parts.headers, body.to_bytes());
        layer.settle(run, &answer, nothing_done).await;
        Ok(Some(answer.into_response()))
    };
    match tokio::spawn(handling.in_current_span()).await {
        Ok(Ok(Some(response))) => Ok(response),
        Ok(Err(error)) => Err(error),
        Ok(Ok(None)) | Err(_) => Ok(refusal::broke_off().into_response()),
    }
}
