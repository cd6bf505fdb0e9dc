//! Why a command failed, and what to do about it.

use std::fmt;

/// What failed, and the next thing to do.
#[derive(Debug)]
pub(crate) struct Failure {
    what: String,
    next: Option<String>,
}

impl Failure {
    /// A failure in one sentence.
    pub(crate) fn new(what: impl Into<String>) -> Failure {
        Failure { what: what.into(), next: None }
    }

    /// Adds what the reader can do, unless an inner layer already knew better.
    pub(crate) fn next(mut self, advice: impl Into<String>) -> Failure {
        self.next.get_or_insert_with(|| advice.into());
        self
    }

    /// Puts in front what was being done.
    pub(crate) fn during(mut self, step: &str) -> Failure {
        self.what = format!("{step}: {}", self.what);
        self
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed: {}", self.what)?;
        match &self.next {
            Some(next) => write!(f, "\nnext:   {next}"),
            None => Ok(()),
        }
    }
}
