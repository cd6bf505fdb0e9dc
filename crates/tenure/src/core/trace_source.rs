//! Where the work of callers is traced.

use std::fmt;
use std::sync::OnceLock;

use crate::model::options::check_text;

/// Says where the work of a caller is traced.
#[derive(Default)]
pub(crate) struct TraceSource(OnceLock<Box<dyn Fn() -> Option<String> + Send + Sync>>);

impl TraceSource {
    /// Sets the source, unless there is one.
    pub(crate) fn set(&self, source: impl Fn() -> Option<String> + Send + Sync + 'static) {
        let _ = self.0.set(Box::new(source));
    }

    /// Where the work of the caller is traced, if it says so in a way that others can be told.
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
