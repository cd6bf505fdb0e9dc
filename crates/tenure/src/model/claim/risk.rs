//! Why a hold is at risk.

use std::fmt;

use super::Ended;
use crate::model::error::Error;

/// Why a hold is at risk. See [`Hold::at_risk`](crate::Hold::at_risk).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Risk {
    /// No renewal was answered for half of the ttl.
    Unanswered,
    /// A renewal failed with this error. It is tried again until the hold ends.
    Failed(Error),
    /// It is lost already.
    Lost(Ended),
}

impl fmt::Display for Risk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Risk::Unanswered => f.write_str("no renewal was answered for half of its time"),
            Risk::Failed(error) => error.fmt(f),
            Risk::Lost(ended) => ended.fmt(f),
        }
    }
}
