//! The primitives. Each is just a weight and a capacity.

mod all;
mod election;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
pub mod worker;

pub(crate) use election::CAMPAIGN_AGAIN;

pub use all::All;
pub use election::{Election, Leader, Observer, Term};
pub use mutex::Mutex;
pub use once::{Begun, Done, LONGEST_OUTCOME, Once, Run};
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
pub use worker::{Work, Worker};
