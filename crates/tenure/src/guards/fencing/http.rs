//! HTTP, as a `tower` layer: requests that are guarded.
//!
//! A request says `Tenure-Name: wallet:1` and `Tenure-Fence: 1794766114119392`. It is refused, with a
//! body of `application/problem+json`:
//!
//! | status | when |
//! |---|---|
//! | 412 | a higher fence was seen of the name |
//! | 428 | it has no fence, and its method is one that writes |
//! | 400 | its fence is no number from 1 to 2^53 - 1, or its name is none |
//! | 503 | whether it is too late cannot be told |
//!
//! Requests of one fence are handled side by side. One with a higher fence waits until those before it
//! have been answered, and from its arrival on all lower ones are refused: so the handler of a late
//! request never runs after, or beside, that of a later holder. That is so in this process; where
//! several serve the same names, pass [`Fenced`] on to what they write to.
//!
//! Who may send a request at all, and for how long it may take, is for other layers.

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
/// The header with the name: UTF-8, as it is.
pub const NAME: HeaderName = HeaderName::from_static("tenure-name");

/// Why something that remembers could not answer.
pub type Failure = Box<dyn StdError + Send + Sync>;

/// What remembers the highest fence of each name. [`InProcess`] forgets with its process; what is to
/// outlast that is kept in a database, by the guard of another module.
pub trait Remember: Send + Sync + 'static {
    /// Remembers the fence, if it is not lower than any that was seen of the name.
    ///
    /// # Behavior
    /// One step for all that share it. It never forgets; when it cannot know, it fails.
    ///
    /// # Cancel safety
    /// It may be dropped at any point; the fence may be remembered then.
    fn guard(
        &self,
        name: &str,
        fence: Fence,
    ) -> impl Future<Output = Result<(), GuardError<Failure>>> + Send;
}

/// What a request was let in with, for its handler: one of the request's extensions.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Fenced {
    /// What is guarded.
    pub name: String,
    /// The fence of whoever asks.
    pub fence: Fence,
}

/// How the name of a request is found.
type Naming = dyn Fn(&Parts) -> Option<String> + Send + Sync;

/// Puts a [`FenceService`] around a service. Its clones are one: they share what they remember.
pub struct FenceLayer<R> {
    memory: Arc<R>,
    gate: Arc<Gate>,
    name: Arc<Naming>,
    required: bool,
}

impl<R: Remember> FenceLayer<R> {
    /// A layer that remembers like this, takes the name from the header and requires a fence of
    /// requests that write.
    pub fn new(memory: R) -> FenceLayer<R> {
        FenceLayer {
            memory: Arc::new(memory),
            gate: Arc::default(),
            name: Arc::new(|parts| text(&parts.headers, &NAME).ok().flatten().map(str::to_owned)),
            required: true,
        }
    }

    /// Lets requests without a fence pass.
    #[must_use]
    pub fn optional(mut self) -> FenceLayer<R> {
        self.required = false;
        self
    }

    /// Takes the name from elsewhere, such as the path; `None` is refused. Better than a header
    /// where it can be: whoever chooses the name chooses what is compared.
    #[must_use]
    pub fn named_by(
        mut self,
        name: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> FenceLayer<R> {
        self.name = Arc::new(name);
        self
    }

    /// Lets a request in, until the pass is dropped.
    async fn admit(&self, parts: &mut Parts) -> Result<Option<Pass>, Problem> {
        let Some(fence) = offered(&parts.headers)? else {
            return match self.required && !parts.method.is_safe() {
                true => Err(refusal::no_fence()),
                false => Ok(None),
            };
        };
        let name = (self.name)(parts).ok_or_else(|| refusal::bad("there is no name"))?;
        // The same limits as for the lock: nobody fills the memory with one name.
        Name::new(Space::Lock, &name).map_err(|error| refusal::bad(error.reason()))?;
        // First the gate: whoever is behind it can be waited for.
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

/// The fence that a request comes with.
fn offered(headers: &HeaderMap) -> Result<Option<Fence>, Problem> {
    let bad = || refusal::bad("Tenure-Fence is not one number from 1 to 2^53 - 1");
    let Some(digits) = text(headers, &FENCE).map_err(|()| bad())? else { return Ok(None) };
    // `parse` would also take a sign.
    let plain = digits.bytes().all(|byte| byte.is_ascii_digit());
    let fence = digits.parse().ok().filter(|_| plain).map(Fence::new);
    fence.filter(|fence| is_fence(*fence)).map(Some).ok_or_else(bad)
}

/// The one value of a header. Two are as bad as one that is no text: which of them is meant?
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

/// A service that only those reach who do not come too late.
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
        // The one that said it was ready; the clone may not be.
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
