//! Guards HTTP requests, as a `tower` layer.
//!
//! A request has the headers `Tenure-Name: wallet:1` and `Tenure-Fence: 1794766114119392`. It may be refused,
//! with a body of `application/problem+json`:
//!
//! | status | when |
//! |---|---|
//! | 412 | a higher fence has been seen for the name |
//! | 428 | it has no fence, and its method is one that writes |
//! | 400 | its fence is not a number from 1 to 2^53 - 1, or its name is invalid |
//! | 503 | it cannot be determined whether it is too late |
//!
//! Requests with the same fence are handled concurrently. One with a higher fence waits until those before it
//! have been answered, and from its arrival on all lower ones are refused: the handler of a late request never
//! runs after that of a later holder, or at the same time. This holds within this process; if several processes
//! serve the same names, pass [`Fenced`] on to the resource they write to.
//!
//! Authorization and time limits are for other layers.

mod gate;
mod in_process;
mod refusal;

use std::error::Error as StdError;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use ::http::header::{HeaderName, HeaderValue};
use ::http::request::Parts;
use ::http::{HeaderMap, Request, Response};
use tower_layer::Layer;
use tower_service::Service;

use self::gate::{Gate, Pass};
pub use self::in_process::InProcess;
use super::{GuardError, is_fence};
use crate::guards::problem::Problem;
use crate::model::claim::Fence;
use crate::model::name::{Name, Space};
use crate::observe;

/// The header with the fence: a decimal number.
pub const FENCE: HeaderName = HeaderName::from_static("tenure-fence");
/// The header with the name, in UTF-8, not encoded.
pub const NAME: HeaderName = HeaderName::from_static("tenure-name");

/// Why a [`Remember`] could not answer.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// Remembers the highest fence of each name. [`InProcess`] loses it with its process; use the guard of another
/// module to keep it in a database.
pub trait Remember: Send + Sync + 'static {
    /// Remembers the fence, unless a higher one has been seen for the name.
    ///
    /// # Behavior
    /// It is one atomic step for all processes that share the fences. It never forgets one; if it cannot know, it
    /// fails.
    ///
    /// # Cancel safety
    /// It may be dropped at any point; the fence may have been remembered.
    fn guard(
        &self,
        name: &str,
        fence: Fence,
    ) -> impl Future<Output = Result<(), GuardError<Failure>>> + Send;
}

/// The name and the fence of an admitted request, for its handler: one of the request's extensions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fenced {
    /// The name that is guarded.
    pub name: String,
    /// The fence of the client.
    pub fence: Fence,
}

/// How to find the name of a request.
type Naming = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Puts a [`FenceService`] around a service. Clones share what they remember.
pub struct FenceLayer<R> {
    memory: Arc<R>,
    gate: Arc<Gate>,
    name: Arc<Naming>,
    required: bool,
}

impl<R: Remember> FenceLayer<R> {
    /// A layer that remembers fences in `memory`, takes the name from the header, and requires a fence for requests
    /// that write.
    pub fn new(memory: R) -> FenceLayer<R> {
        FenceLayer {
            memory: Arc::new(memory),
            gate: Arc::default(),
            name: Arc::new(|parts| text(&parts.headers, &NAME).ok().flatten().map(str::to_owned)),
            required: true,
        }
    }

    /// Admits requests without a fence.
    #[must_use]
    pub fn optional(mut self) -> FenceLayer<R> {
        self.required = false;
        self
    }

    /// Takes the name from elsewhere, such as the path; `None` is refused. Prefer this to the header, because a
    /// client that chooses the name chooses which fences are compared.
    #[must_use]
    pub fn named_by(
        mut self,
        name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> FenceLayer<R> {
        self.name = Arc::new(name);
        self
    }

    /// Admits a request until the pass is dropped.
    async fn admit(&self, parts: &mut Parts) -> Result<Option<Pass>, Problem> {
        let Some(fence) = offered(&parts.headers)? else {
            return match self.required && !parts.method.is_safe() {
                true => Err(refusal::no_fence()),
                false => Ok(None),
            };
        };
        let name = (self.name)(parts).ok_or_else(|| refusal::bad("there is no name"))?;
        // The same limits as for locks, so that nobody can fill the memory with one name.
        Name::new(Space::Lock, &name).map_err(|error| refusal::bad(error.reason()))?;
        // First the gate, because it can wait for those inside.
        let pass = self.gate.enter(&name, fence).await.map_err(refusal::stale)?;
        match self.memory.guard(&name, fence).await {
            Ok(()) => {}
            Err(GuardError::Stale(stale)) => return Err(refusal::stale(stale)),
            Err(GuardError::NoFence(_)) => return Err(refusal::bad("the fence is out of range")),
            Err(GuardError::Failed(why)) => {
                observe::fence_unknown(&name, fence, &why);
                return Err(refusal::unknown());
            }
        }
        parts.extensions.insert(Fenced { name, fence });
        Ok(Some(pass))
    }
}

/// The fence of a request.
fn offered(headers: &HeaderMap) -> Result<Option<Fence>, Problem> {
    let bad = || refusal::bad("Tenure-Fence is not one number from 1 to 2^53 - 1");
    let Some(digits) = text(headers, &FENCE).map_err(|()| bad())? else { return Ok(None) };
    // `parse` would also accept a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let fence = digits.parse().ok().filter(|_| plain).map(Fence::new);
    fence.filter(|fence| is_fence(*fence)).map(Some).ok_or_else(bad)
}

/// The value of a header. Two values are as bad as one that is not text: it is unclear which one is meant.
fn text<'a>(headers: &'a HeaderMap, name: &HeaderName) -> Result<Option<&'a str>, ()> {
    let mut values = headers.get_all(name).iter().map(HeaderValue::as_bytes);
    match (values.next(), values.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => std::str::from_utf8(value).map(Some).map_err(drop),
        (Some(_), Some(_)) => Err(()),
    }
}

impl<R> Clone for FenceLayer<R> {
    fn clone(&self) -> FenceLayer<R> {
        FenceLayer {
            memory: self.memory.clone(),
            gate: self.gate.clone(),
            name: self.name.clone(),
            required: self.required,
        }
    }
}

impl<R> std::fmt::Debug for FenceLayer<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FenceLayer").field("required", &self.required).finish_non_exhaustive()
    }
}

impl<S, R> Layer<S> for FenceLayer<R> {
    type Service = FenceService<S, R>;

    fn layer(&self, inner: S) -> FenceService<S, R> {
        FenceService { inner, layer: self.clone() }
    }
}

/// A service that refuses requests that come too late.
#[derive(Debug)]
pub struct FenceService<S, R> {
    inner: S,
    layer: FenceLayer<R>,
}

impl<S: Clone, R> Clone for FenceService<S, R> {
    fn clone(&self) -> FenceService<S, R> {
        FenceService { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, R, Asked, Answered> Service<Request<Asked>> for FenceService<S, R>
where
    S: Service<Request<Asked>, Response = Response<Answered>> + Clone + Send + 'static,
    S::Future: Send,
    R: Remember,
    Asked: Send + 'static,
    Answered: From<String>,
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
            let (mut parts, body) = request.into_parts();
            let pass = match layer.admit(&mut parts).await {
                Ok(pass) => pass,
                Err(problem) => return Ok(problem.into_response()),
            };
            let answer = inner.call(Request::from_parts(parts, body)).await;
            drop(pass);
            answer
        })
    }
}
