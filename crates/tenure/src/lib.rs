//! Distributed locks: mutexes, semaphores, read-write locks, leader election and run-once jobs, across
//! tasks, processes and machines.
//!
//! Waiters are served in order and notified when it is their turn. Locks are renewed in the background; if that
//! fails, they are reported as lost before anyone else can get them. Every grant has a fence, a number that rises.
//!
//! ```
//! # async fn example() -> tenure::Result<()> {
//! use std::time::Duration;
//! use tenure::Tenure;
//!
//! let tenure = Tenure::connect("memory:").await?;
//!
//! let hold = tenure.mutex("wallet:0xab").ttl(Duration::from_secs(5)).acquire().await?;
//! // … what only one may do at a time; hold.fence() guards what it writes …
//! hold.release().await?;
//!
//! let Some(hold) = tenure.mutex("table:12").try_acquire().await? else {
//!     return Ok(()); // taken: contention is not an error
//! };
//! # drop(hold);
//! # Ok(())
//! # }
//! # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
//! ```
//!
//! # Layout
//!
//! - [`Tenure`] connects to an engine and makes requests: [`Mutex`], [`Semaphore`], [`RwLock`],
//!   [`All`]. They all have the same [`Options`] and return the same guard, a [`Hold`], which can be
//!   [`Detached`] and handed over to another process.
//! - [`Election`] has one leader at a time. [`Worker`] works while it leads; [`worker`] has its
//!   states. [`Once`] runs a job once.
//! - [`blocking`] has all of it for programs without a runtime.
//! - [`engine`] has the trait that engines implement and its types; [`engines`] has those that are
//!   included; [`ledger`] is the rule that they apply.
//! - [`fencing`] makes databases, files and HTTP servers refuse a holder that comes too late.
//!
//! # Features
//!
//! Each engine is a feature. On by default are `file`, `redis`, `postgres` and `tls` (for `rediss://` and for Postgres).
//! With `default-features = false` only `memory:` is left, and neither SQLite nor rustls is compiled. Off by default are
//! `http` (the locks of a `tenure serve`), `metrics`, `idempotency`, `serde` (for [`Fence`]), and `fence-file`,
//! `fence-http`, `fence-postgres`, `fence-redis` and `fence-sqlite` for [`fencing`].
//!
//! # What a lock cannot do
//!
//! A process can be paused in the middle of its work, and continue long after its hold has ended. No lock can
//! prevent its late writes. The [fence](Hold::fence) can, if the resource that it writes to checks it:
//! [`fencing`] has checks for SQLite, Postgres, Redis, HTTP and files.

#[cfg(not(target_os = "linux"))]
compile_error!("tenure runs on Linux only: it needs CLOCK_BOOTTIME and timerfd. See README.md.");

mod api;
mod core;
pub mod engine;
pub mod engines;
mod guards;
pub mod ledger;
mod model;
mod observe;
mod system;
mod world;

pub use api::blocking;
pub use api::detached::Detached;
pub use api::hold::{AtRisk, Hold, Lost};
pub use api::primitives::{
    All, Begun, Done, Election, LONGEST_OUTCOME, Leader, Mutex, Observer, Once, Run, RwLock,
    Semaphore, Term, Work, Worker, worker,
};
pub use api::tenure::Tenure;
pub use guards::fencing;
#[cfg(feature = "idempotency")]
pub use guards::idempotency;
pub use model::claim::{
    Broken, Details, Ended, Fence, Forgotten, Holder, Note, OnceRecord, Outcome, Released, Risk,
    Waiter,
};
pub use model::error::{Error, ErrorKind, Result};
pub use model::finding::{Finding, Mark};
pub use model::options::{OnOutage, Options, Protection};
pub use model::view::View;
pub use observe::Advice;
#[cfg(feature = "metrics")]
pub use observe::meters as metrics;

#[cfg(doctest)]
mod pages;
