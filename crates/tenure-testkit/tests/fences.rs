//! Enforced fences: a holder that was paused comes back too late, and what it writes is refused, wherever it writes
//! to; with real processes, real servers and a real socket.

mod http;
mod languages;
pub(crate) mod paused;
mod place;
mod postgres;
mod races;
mod redis;
mod site;
mod sqlite;
pub(crate) mod stopping;
