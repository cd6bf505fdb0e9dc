//! The engines: [`memory`] is always there, the others are behind features of the same name.

mod convert;
#[cfg(feature = "file")]
pub mod file;
pub mod memory;
#[cfg(feature = "redis")]
pub mod redis;

/// The schemes of a Redis, also for builds without it, which say what is missing.
pub(crate) const REDIS_SCHEMES: [&str; 8] = [
    "redis",
    "rediss",
    "redis+unix",
    "unix",
    "redis-sentinel",
    "rediss-sentinel",
    "redis-cluster",
    "rediss-cluster",
];
