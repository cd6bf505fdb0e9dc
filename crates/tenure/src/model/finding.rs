//! Findings of an examination: whether an engine is fit for locks.

use std::fmt;

/// The result of one check.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What was checked, in a word: `eviction`.
    pub check: &'static str,
    /// How serious it is.
    pub mark: Mark,
    /// What was found.
    pub what: String,
    /// What that means for locks.
    pub why: Option<String>,
    /// How to fix it, as a command to paste if there is one.
    pub fix: Option<String>,
    /// The code under which the docs explain it, such as `T041`.
    pub code: Option<&'static str>,
}

/// How serious a finding is. The worst is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Locks work, but there is a weakness to know about.
    Warning,
    /// Locks cannot be relied on, or do not work at all.
    Problem,
}

impl Finding {
    /// A finding with nothing but a mark and a text.
    pub fn new(check: &'static str, mark: Mark, what: impl Into<String>) -> Finding {
        Finding { check, mark, what: what.into(), why: None, fix: None, code: None }
    }

    /// A finding that something is as it should be.
    pub fn good(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Good, what)
    }

    /// A finding of a weakness to know about.
    pub fn warning(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Warning, what)
    }

    /// A finding of something that makes locks unreliable or impossible.
    pub fn problem(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Problem, what)
    }

    /// Adds what it means for locks.
    pub fn why(mut self, why: impl Into<String>) -> Finding {
        self.why = Some(why.into());
        self
    }

    /// Adds how to fix it.
    pub fn fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }

    /// Adds the code under which the docs explain it.
    pub fn code(mut self, code: &'static str) -> Finding {
        self.code = Some(code);
        self
    }
}

/// `eviction: what was found`, on one line.
impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.check, self.what)
    }
}
