//! What keeps work correct beyond a lock: checks of fences where data is written, and HTTP requests that run
//! once.

pub mod fencing;
#[cfg(feature = "idempotency")]
pub mod idempotency;
#[cfg(any(feature = "fence-http", feature = "idempotency"))]
pub(crate) mod problem;
