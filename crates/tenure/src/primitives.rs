//! The primitives: a weight and a capacity each, and nothing else.

mod all;
mod mutex;
mod rwlock;
mod semaphore;

pub use all::All;
pub use mutex::Mutex;
pub use rwlock::RwLock;
pub use semaphore::Semaphore;
