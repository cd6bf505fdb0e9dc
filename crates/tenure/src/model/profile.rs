//! The guarantees and limits of an engine.

use std::time::Duration;

/// The guarantees and limits of an engine.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Profile {
    /// The engine's name, such as `memory`; it never contains a password.
    pub label: String,
    /// The order in which waiters are served.
    pub order: Order,
    /// Whether turns are pushed, or only found by asking.
    pub push: bool,
    /// Whether more than one claim can hold a name at a time: semaphores and read-write locks.
    pub sharing: bool,
    /// The shortest ttl it can keep.
    pub shortest_ttl: Duration,
    /// The longest ttl it accepts.
    pub longest_ttl: Duration,
    /// How long a claim without a `wait` is sent again before it fails, if there has been no answer.
    pub patience: Duration,
    /// Whether a process may hand a hold over among its own claims, with
    /// [`Engine::keep`](crate::engine::Engine::keep).
    pub hands_over: bool,
}

impl Profile {
    /// A profile with every guarantee: first come, first served, by push; ttl from 50 ms to 24 h; 5 s of
    /// patience.
    pub fn new(label: impl Into<String>) -> Profile {
        Profile {
            label: label.into(),
            order: Order::Arrival,
            push: true,
            sharing: true,
            shortest_ttl: Duration::from_millis(50),
            longest_ttl: Duration::from_secs(24 * 60 * 60),
            patience: Duration::from_secs(5),
            hands_over: false,
        }
    }
}

/// The order in which waiters are served.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[non_exhaustive]
pub enum Order {
    /// First come, first served.
    Arrival,
    /// First come, first served within a process.
    PerProcess,
    /// No order.
    None,
}
