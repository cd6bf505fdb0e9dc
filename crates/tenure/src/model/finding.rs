//! What is found when an engine is examined: is it fit for locks?

use std::fmt;

/// One thing that was looked at, and how it was found.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub struct Finding {
    /// What was looked at, in a word: `eviction`.
    pub check: &'static str,
    /// How it was found.
    pub mark: Mark,
    /// What was found.
    pub what: String,
    /// What that means for locks.
    pub why: Option<String>,
    /// What to do about it, as a line to paste where there is one.
    pub fix: Option<String>,
    /// The code under which it is explained, such as `T041`.
    pub code: Option<&'static str>,
}

/// How something was found. The worst is the greatest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mark {
    /// As it should be.
    Good,
    /// Locks work, with a weakness to know about.
    Warning,
    /// Locks cannot be relied on, or do not work at all.
    Problem,
}

impl Finding {
    /// A finding without more to say.
    pub fn new(check: &'static str, mark: Mark, what: impl Into<String>) -> Finding {
        Finding { check, mark, what: what.into(), why: None, fix: None, code: None }
    }

    /// Something is as it should be.
    pub fn good(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Good, what)
    }

    /// Something is a weakness to know about.
    pub fn warning(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Warning, what)
    }

    /// Something makes locks unreliable, or impossible.
    pub fn problem(check: &'static str, what: impl Into<String>) -> Finding {
        Finding::new(check, Mark::Problem, what)
    }

    /// Says what it means for locks.
    pub fn why(mut self, why: impl Into<String>) -> Finding {
        self.why = Some(why.into());
        self
    }

    /// Says what to do about it.
    pub fn fix(mut self, fix: impl Into<String>) -> Finding {
        self.fix = Some(fix.into());
        self
    }

    /// Says under which code it is explained.
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
