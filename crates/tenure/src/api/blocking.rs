//! The same API for programs without a runtime: every call blocks.
//!
//! Names, options and guarantees are those of the crate's root. A background thread drives the connection, so
//! holds are renewed and turns arrive while the program does something else. Blocking code cannot be stopped from
//! outside: where the async `run` drops its work when the hold is lost, [`Mutex::run`] passes the [`Hold`] to its
//! work, which should check now and then whether it is still live.
//!
//! ```
//! use std::time::Duration;
//! use tenure::blocking::Tenure;
//!
//! # fn main() -> tenure::Result<()> {
//! let tenure = Tenure::connect("memory:")?;
//! let hold = tenure.mutex("wallet:0xab").wait(Duration::from_secs(10)).acquire()?;
//! println!("nobody else signs for this wallet; fence {}", hold.fence());
//! hold.release()?;
//! # Ok(())
//! # }
//! ```
//!
//! A call from an async task blocks a thread of its runtime: use the crate's root there.

mod driver;
mod hold;
mod leading;
mod locks;

use std::time::Duration;

use crate::api::detached::Detached;
use crate::api::tenure;
use crate::engine::{Profile, View};
use crate::model::claim::{Broken, Fence};
use crate::model::error::Result;
use crate::model::finding::Finding;
use crate::model::options::Options;

use self::driver::Driver;

pub use self::hold::{Hold, Joined};
pub use self::leading::{Begun, Election, Observer, Once, Run, Term};
pub use self::locks::{All, Mutex, RwLock, Semaphore};

/// A connection to an engine, like [`Tenure`](crate::Tenure). Clones share everything.
#[derive(Clone, Debug)]
pub struct Tenure {
    inner: tenure::Tenure,
    driver: Driver,
}

impl Tenure {
    /// Connects to the engine that the URL names. See [`Tenure::connect`](crate::Tenure::connect).
    pub fn connect(url: &str) -> Result<Tenure> {
        Tenure::made(tenure::Tenure::connect(url))
    }

    /// Connects according to the environment. See [`Tenure::from_env`](crate::Tenure::from_env).
    pub fn from_env() -> Result<Tenure> {
        Tenure::made(tenure::Tenure::from_env())
    }

    /// The same connection as a blocking one, for programs that use both.
    pub fn from_async(tenure: crate::Tenure) -> Result<Tenure> {
        Tenure::made(std::future::ready(Ok(tenure)))
    }

    fn made(connect: impl Future<Output = Result<tenure::Tenure>>) -> Result<Tenure> {
        let driver = Driver::start()?;
        let inner = driver.wait(connect)?;
        Ok(Tenure { inner, driver })
    }

    /// The same connection with other defaults.
    pub fn with_defaults(self, options: Options) -> Result<Tenure> {
        Ok(Tenure { inner: self.inner.with_defaults(options)?, driver: self.driver })
    }

    /// The defaults of this connection.
    pub fn defaults(&self) -> Options {
        self.inner.defaults()
    }

    /// The guarantees and limits of the engine.
    pub fn profile(&self) -> &Profile {
        self.inner.profile()
    }

    /// A lock: one holder at a time.
    pub fn mutex(&self, name: impl AsRef<str>) -> Mutex {
        Mutex::new(self.inner.mutex(name), &self.driver)
    }

    /// `capacity` units to share. All users of a name must agree on the capacity.
    pub fn semaphore(&self, name: impl AsRef<str>, capacity: u32) -> Semaphore {
        Semaphore::new(self.inner.semaphore(name, capacity), &self.driver)
    }

    /// Many readers, or one writer.
    pub fn rwlock(&self, name: impl AsRef<str>) -> RwLock {
        RwLock::new(self.inner.rwlock(name), &self.driver)
    }

    /// Several locks at once: all or nothing, without deadlock.
    pub fn all<N: AsRef<str>>(&self, names: impl IntoIterator<Item = N>) -> All {
        All::new(self.inner.all(names), &self.driver)
    }

    /// Leader election: one leader at a time, visible to everyone.
    pub fn election(&self, name: impl AsRef<str>) -> Election {
        Election::new(self.inner.election(name), &self.driver)
    }

    /// Work that is done once, and whose outcome is remembered.
    pub fn once(&self, name: impl AsRef<str>) -> Once {
        Once::new(self.inner.once(name), &self.driver)
    }

    /// Continues a hold that was detached. See [`Tenure::attach`](crate::Tenure::attach).
    pub fn attach(&self, detached: &Detached) -> Result<Hold> {
        let hold = self.driver.wait(self.inner.attach(detached))?;
        Ok(Hold::new(hold, &self.driver))
    }

    /// How long a detached hold still lasts. See [`Tenure::check`](crate::Tenure::check).
    pub fn check(&self, detached: &Detached) -> Result<Duration> {
        self.driver.wait(self.inner.check(detached))
    }

    /// Who holds a name and who waits for it; `None` if nobody does.
    pub fn inspect(&self, name: impl AsRef<str>) -> Result<Option<View>> {
        self.driver.wait(self.inner.inspect(name))
    }

    /// All names in use that begin with `prefix`, in order.
    pub fn list(&self, prefix: impl AsRef<str>) -> Result<Vec<View>> {
        self.driver.wait(self.inner.list(prefix))
    }

    /// Ends a hold by force. See [`Tenure::break_hold`](crate::Tenure::break_hold).
    pub fn break_hold(
        &self,
        name: impl AsRef<str>,
        fence: Fence,
        reason: impl Into<String>,
    ) -> Result<Broken> {
        self.driver.wait(self.inner.break_hold(name, fence, reason))
    }

    /// Whether the engine is fit for locks. See [`Tenure::examine`](crate::Tenure::examine).
    pub fn examine(&self) -> Result<Vec<Finding>> {
        self.driver.wait(self.inner.examine())
    }

    /// Pings the engine, and returns how long the answer took.
    pub fn health(&self) -> Result<Duration> {
        self.driver.wait(self.inner.health())
    }

    /// Closes this connection. See [`Tenure::close`](crate::Tenure::close).
    pub fn close(&self) {
        self.driver.wait(self.inner.close());
    }
}
