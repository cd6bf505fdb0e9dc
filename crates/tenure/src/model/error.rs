//! The one error type.
//!
//! An error says what was attempted, on which name and engine, why it failed and what to do next. It never
//! contains types of the crates that engines are built on.

use std::fmt;

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What went wrong, with its context.
///
/// [`kind`](Error::kind) is for programs, the text is for people.
#[derive(Clone)]
pub struct Error {
    inner: Box<Inner>,
}

#[derive(Clone)]
struct Inner {
    kind: ErrorKind,
    operation: Option<&'static str>,
    name: Option<String>,
    engine: Option<String>,
    reason: String,
    next: Option<&'static str>,
    may_have_happened: bool,
    not_now: bool,
}

/// The classes of failure.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The call itself is wrong: a bad name, a ttl out of range. Nothing was sent.
    Invalid,
    /// Others use this name with another capacity.
    Conflict,
    /// The wait is over, and the engine says that others still hold the name.
    WaitOver,
    /// The hold ended before it was released.
    Lost,
    /// The engine cannot be reached, did not answer in time, or says that it cannot serve now; the text has the
    /// details.
    Unavailable,
    /// The engine refuses this user.
    Denied,
    /// The engine does not support this; its profile says so.
    Unsupported,
    /// The line has reached its limit of waiters.
    Full,
    /// This `Tenure` was closed, or belongs to the process that this one was forked from.
    Closed,
    /// A bug in tenure, or a failure of the machine.
    Internal,
}

impl Error {
    /// An error of `kind` with its reason. For engines, and for tests of code that handles errors; the core adds
    /// the operation, the name and the engine. [`ErrorExt`](crate::engine::ErrorExt) adds more.
    pub fn new(kind: ErrorKind, reason: impl Into<String>) -> Error {
        let inner = Inner {
            kind,
            operation: None,
            name: None,
            engine: None,
            reason: reason.into(),
            next: None,
            may_have_happened: false,
            not_now: false,
        };
        Error { inner: Box::new(inner) }
    }

    pub(crate) fn invalid(reason: impl Into<String>) -> Error {
        Error::new(ErrorKind::Invalid, reason)
    }

    pub(crate) fn closed() -> Error {
        Error::new(ErrorKind::Closed, "this Tenure was closed")
            .next("connect again; after a fork, each process connects for itself")
    }

    /// Adds what the reader can do about it.
    pub(crate) fn next(mut self, advice: &'static str) -> Error {
        self.inner.next = Some(advice);
        self
    }

    /// Adds that the request was sent, and may have taken effect although no answer came.
    pub(crate) fn in_doubt(mut self) -> Error {
        self.inner.may_have_happened = true;
        self
    }

    /// Adds that the engine is reachable and asks for time: a caller that can wait should retry.
    pub(crate) fn not_now(mut self) -> Error {
        self.inner.not_now = true;
        self
    }

    pub(crate) fn asks_for_time(&self) -> bool {
        self.inner.not_now
    }

    /// Adds what was being done, unless an inner layer has added it.
    pub(crate) fn context(mut self, operation: &'static str, name: &str, engine: &str) -> Error {
        let inner = &mut *self.inner;
        inner.operation.get_or_insert(operation);
        if !name.is_empty() {
            inner.name.get_or_insert_with(|| shorten(name));
        }
        if !engine.is_empty() {
            inner.engine.get_or_insert_with(|| engine.to_owned());
        }
        self
    }

    /// The class of the failure.
    pub fn kind(&self) -> ErrorKind {
        self.inner.kind
    }

    /// Why it failed, without what was attempted and what to do next.
    pub fn reason(&self) -> &str {
        &self.inner.reason
    }

    /// What the reader can do about it, if that is known.
    pub fn advice(&self) -> Option<&str> {
        self.inner.next
    }

    /// Whether the same call may succeed later without any change by the caller.
    pub fn is_retryable(&self) -> bool {
        use ErrorKind::*;
        match self.inner.kind {
            WaitOver | Unavailable | Full | Lost => true,
            Invalid | Conflict | Denied | Unsupported | Closed | Internal => false,
        }
    }

    /// Whether the request may have taken effect although it failed.
    ///
    /// The core handles this where it can: a claim that a failed acquire may have left behind is left in the
    /// background.
    pub fn may_have_happened(&self) -> bool {
        self.inner.may_have_happened
    }
}

/// What an engine can add to an [`Error`] besides its kind and its reason.
///
/// It is implemented for [`Error`] only, and kept out of scope for code that only handles errors.
///
/// ```
/// use tenure::engine::{Error, ErrorExt, ErrorKind};
///
/// let error = Error::new(ErrorKind::Unavailable, "no answer for 5 s")
///     .in_doubt()
///     .with_advice("is the server up?");
/// assert!(error.may_have_happened());
/// assert_eq!(error.advice(), Some("is the server up?"));
/// ```
pub trait ErrorExt: sealed::Sealed + Sized {
    /// Adds what the reader can do about it.
    #[must_use = "this is the error with the advice"]
    fn with_advice(self, advice: &'static str) -> Self;

    /// Adds that the request was sent, and may have taken effect although no answer came.
    #[must_use = "this is the error with the doubt"]
    fn in_doubt(self) -> Self;

    /// Adds that the engine is reachable and asks for time: a caller that can wait should retry.
    #[must_use = "this is the error that asks for time"]
    fn not_now(self) -> Self;
}

impl ErrorExt for Error {
    fn with_advice(self, advice: &'static str) -> Error {
        self.next(advice)
    }

    fn in_doubt(self) -> Error {
        Error::in_doubt(self)
    }

    fn not_now(self) -> Error {
        Error::not_now(self)
    }
}

/// Seals the trait, so that adding methods breaks nobody.
mod sealed {
    pub trait Sealed {}
    impl Sealed for super::Error {}
}

/// Shortens a name, so that a hostile one cannot make an error unreadable.
pub(crate) fn shorten(name: &str) -> String {
    const SHOWN: usize = 120;
    match name.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &name[..end]),
        None => name.to_owned(),
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Inner { operation, name, engine, reason, next, .. } = &*self.inner;
        if let Some(operation) = operation {
            f.write_str(operation)?;
            if let Some(name) = name {
                write!(f, " {name:?}")?;
            }
            if let Some(engine) = engine {
                write!(f, " on {engine}")?;
            }
            f.write_str(": ")?;
        }
        f.write_str(reason)?;
        match next {
            Some(next) => write!(f, "; {next}"),
            None => Ok(()),
        }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {self}", self.inner.kind)
    }
}

impl std::error::Error for Error {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_names_operation_name_engine_reason_and_next_step() {
        let error = Error::new(ErrorKind::Unavailable, "no answer for 5s")
            .next("is the server up?")
            .context("acquire", "wallet:1", "memory")
            .context("all", "other", "other");
        assert_eq!(
            error.to_string(),
            "acquire \"wallet:1\" on memory: no answer for 5s; is the server up?"
        );
        assert_eq!(error.reason(), "no answer for 5s");
        assert_eq!(error.advice(), Some("is the server up?"));
        assert!(error.is_retryable() && !error.may_have_happened());
    }

    #[test]
    fn a_long_name_is_cut() {
        let error = Error::invalid("too long").context("acquire", &"ü".repeat(2000), "memory");
        assert!(error.to_string().len() < 300, "{error}");
    }
}
