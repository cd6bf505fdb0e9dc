//! How claims end other than by their owner leaving.

use std::fmt;
use std::time::Duration;

use crate::model::error::{Error, ErrorKind};

/// Why a claim ended, other than by its owner leaving.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Ended {
    /// Its ttl ran out before a renewal was answered.
    Expired,
    /// An operator ended it.
    Broken(Note),
    /// The hold reached `max_hold`.
    MaxHold,
    /// The capacity was lowered below the claim's weight.
    Conflict {
        /// The new capacity.
        capacity: u32,
    },
    /// The engine lost its memory.
    Forgotten,
    /// The engine's clock was set forward, so the hold ended too early.
    ClockStep {
        /// By how much, roughly.
        by: Duration,
    },
    /// Someone else who knows the claim id released it, or the engine lost its memory.
    Elsewhere,
    /// The `Tenure` was closed.
    Closed,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Ended::Expired => f.write_str("its time ran out before a renewal was answered"),
            Ended::Broken(Note { by, reason }) => write!(f, "broken by {by}: {reason}"),
            Ended::MaxHold => f.write_str("it was held for max_hold"),
            Ended::Conflict { capacity } => write!(f, "the capacity was changed to {capacity}"),
            Ended::Forgotten => f.write_str("the engine has lost its memory"),
            Ended::ClockStep { by } if by.as_secs() < 10 => {
                write!(f, "the engine's clock stepped forward by about {} ms", by.as_millis())
            }
            Ended::ClockStep { by } => {
                let by = by.as_secs_f64().round();
                write!(f, "the engine's clock stepped forward by about {by} s")
            }
            Ended::Elsewhere => {
                f.write_str("it was released elsewhere, or the engine has lost its memory")
            }
            Ended::Closed => f.write_str("this Tenure was closed"),
        }
    }
}

/// Who did something by force, and why.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Note {
    /// Who.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// The error for the caller of a waiting claim that ended.
impl From<Ended> for Error {
    fn from(ended: Ended) -> Error {
        match ended {
            Ended::Conflict { .. } => Error::new(ErrorKind::Conflict, ended.to_string()),
            Ended::Closed => Error::closed(),
            _ => Error::new(ErrorKind::Lost, ended.to_string()),
        }
    }
}
