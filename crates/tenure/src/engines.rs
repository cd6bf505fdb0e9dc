//! The engines: [`memory`] is always available, the others are behind features of the same name.

mod convert;
#[cfg(feature = "file")]
pub mod file;
#[cfg(feature = "http")]
pub mod http;
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;

/// The URL schemes of Postgres. Builds without it need them too, for an error that names the missing feature.
pub(crate) const POSTGRES_SCHEMES: [&str; 2] = ["postgres", "postgresql"];

/// The URL schemes of Redis. Builds without it need them too, for an error that names the missing feature.
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
