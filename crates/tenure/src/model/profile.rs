//! What an engine promises.

use std::time::Duration;

/// What an engine promises.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The engine's own word for itself, such as `memory`; never with a password in it.
    pub label: String,
    /// In which order waiters are served.
    pub order: Order,
    /// Whether turns are pushed, or found only by looking.
    pub push: bool,
    /// Whether more than one claim can hold a name at a time: semaphores and read-write locks.
    pub sharing: bool,
    /// The shortest ttl it can keep.
    pub shortest_ttl: Duration,
    /// The longest ttl it accepts.
    pub longest_ttl: Duration,
    /// How long a claim without a `wait` that had no answer yet is sent again before it fails.
    pub patience: Duration,
}

impl Profile {
    /// A profile with every promise: first come, first served, by push; ttl from 50 ms to 24 h;
    /// 5 s of patience.
    pub fn new(label: impl Into<String>) -> Profile {
        Profile {
            label: label.into(),
            order: Order::Arrival,
            push: true,
            sharing: true,
            shortest_ttl: Duration::from_millis(50),
            longest_ttl: Duration::from_secs(24 * 60 * 60),
            patience: Duration::from_secs(5),
        }
    }
}

/// In which order waiters are served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// First come, first served within a process.
    PerProcess,
    /// None.
    None,
}
