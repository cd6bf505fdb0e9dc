//! The source of the callers' trace ids.

use std::fmt;
use std::sync::OnceLock;

use crate::model::options::check_text;

/// A function that returns the trace of the caller's work.
#[derive(Default)]
pub(crate) struct TraceSource(OnceLock<Box<dyn Fn() -> Option<String> + Send + Sync>>);

impl TraceSource {
    /// Sets the function, unless there is one.
    pub(crate) fn set(&self, source: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }

    /// The trace of the caller's work, if it is in a format that can be passed on.
    pub(crate) fn trace(&self) -> Option<String> {
        let trace = self.0.get()?()?;
        check_text("the trace", &trace).is_ok().then_some(trace)
    }
}

impl fmt::Debug for TraceSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TraceSource")
    }
}
