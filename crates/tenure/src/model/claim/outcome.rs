//! What came of a release and of a renewal, as the claim's own process sees it.

use std::time::Duration;

/// How a hold was left.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Released {
    /// It was held until the release: nobody else was inside.
    InTime,
    /// It had ended before, so that the work was not exclusive to its end. Raise the ttl, or find
    /// out why renewals failed.
    Late,
    /// The engine did not answer within a second, so that nobody knows yet. The release goes on being sent
    /// in the background; the name is free when it arrives, or when the ttl is over.
    Unknown,
}

/// What came of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalOutcome {
    /// So much was left, of a first life or of a whole ttl.
    Renewed {
        left: Duration,
        first_life: bool,
    },
    Unanswered,
    Gone,
}
