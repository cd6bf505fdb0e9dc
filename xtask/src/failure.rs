//! Why a command failed, and what to do about it.

use std::fmt;

/// A failure, and what to do next.
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

    /// Adds what the reader can do, unless an inner layer has added it.
    pub(crate) fn next(mut self, advice: impl Into<String>) -> Failure {
        self.next.get_or_insert_with(|| advice.into());
        self
    }

    /// Adds what was being done, as a prefix.
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
