//! The results of a release and of a renewal, as the claim's own process sees them.

use std::time::Duration;

/// The result of a release.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Released {
    /// It was held until the release: nobody else was inside.
    InTime,
    /// It had ended before, so the work was not exclusive to the end. Raise the ttl, or find out why renewals
    /// failed.
    Late,
    /// The engine did not answer within a second, so the result is not known yet. The release is still being sent
    /// in the background; the name becomes free when it arrives, or when the ttl is over.
    Unknown,
}

/// The result of a renewal.
#[derive(Clone, Copy, Debug)]
pub(crate) enum RenewalOutcome {
    /// How much time was left, of a first life or of a full ttl.
    Renewed {
        left: Duration,
        first_life: bool,
    },
    Unanswered,
    Gone,
}
