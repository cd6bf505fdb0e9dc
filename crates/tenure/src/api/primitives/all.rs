use std::fmt;
use std::sync::Arc;

use crate::api::hold::Hold;
use crate::api::setters::{outage_setter, setters};
use crate::core::guard::HeldClaim;
use crate::core::handle::Handle;
use crate::core::request_builder::RequestBuilder;
use crate::model::error::{Error, Result};
use crate::model::name::Name;

/// A request for several locks at once: all or nothing.
///
/// They are acquired one after the other in the order of their names, no matter in which order they are given, so
/// two callers with the same names never deadlock. A name that is given twice is acquired once. The result is one
/// [`Hold`], which is lost when the first of them is lost.
///
/// ```
/// # async fn example() -> tenure::Result<()> {
/// # let tenure = tenure::Tenure::connect("memory:").await?;
/// let both = tenure.all(["account:2", "account:1"]).acquire().await?;
/// let names: Vec<_> = both.fences().map(|(name, _)| name).collect();
/// assert_eq!(names, ["account:1", "account:2"]);
/// # drop(both);
/// # Ok(())
/// # }
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(example()).unwrap();
/// ```
#[derive(Clone)]
#[must_use = "this only describes the request; acquire it"]
pub struct All {
    pub(crate) handle: Arc<Handle>,
    pub(crate) request: RequestBuilder,
    pub(crate) names: Vec<Name>,
}

setters!(All);
outage_setter!(All);

impl All {
    /// Waits for all of them; `wait` is the limit for all together.
    ///
    /// # Errors
    /// `WaitOver` names the one that was not acquired; those acquired before it are released.
    ///
    /// # Cancel safety
    /// May be dropped at any await point: within one round trip of a reachable engine no hold, no place and no
    /// renewal remains.
    pub async fn acquire(self) -> Result<Hold> {
        let world = self.handle.core.world.clone();
        let deadline = self.request.wait.map(|wait| world.now() + wait);
        let mut held = Vec::new();
        for name in self.names()? {
            let mut request = self.request_for(name);
            request.wait = deadline.map(|deadline| world.now().until(deadline));
            let one: HeldClaim = request.join(self.handle.clone()).await?;
            held.push(one.not_given());
        }
        // The first may have ended while the last was waited for.
        let core = &self.handle.core;
        match core.ended(held.iter().map(HeldClaim::live)) {
            None => Ok(together(held)),
            Some(ended) => Err(core.explain(ended.into(), "acquire", &held[0].live().claim.name)),
        }
    }

    /// Acquires all of them if all are free; otherwise none, and returns `None`.
    ///
    /// # Cancel safety
    /// As [`acquire`](All::acquire).
    pub async fn try_acquire(self) -> Result<Option<Hold>> {
        let mut held = Vec::new();
        for name in self.names()? {
            let tried = self.request_for(name).try_acquire(self.handle.clone()).await?;
            let Some(one): Option<HeldClaim> = tried else { return Ok(None) };
            held.push(one.not_given());
        }
        Ok(Some(together(held)))
    }

    /// Acquires all, runs `work`, releases all. The work is dropped when one of them is lost.
    ///
    /// # Cancel safety
    /// Dropping it drops the work and releases.
    pub async fn run<T>(self, work: impl AsyncFnOnce(&Hold) -> T) -> Result<T> {
        self.acquire().await?.run(work).await
    }

    /// The names in order, each once, all checked before the first is acquired.
    fn names(&self) -> Result<Vec<Name>> {
        let core = &self.handle.core;
        let mut names = self.names.clone();
        names.sort();
        names.dedup();
        if names.is_empty() {
            let none = Error::invalid("no names were given").next("give at least one");
            return Err(core.explain(none, "acquire", &self.request.claim.name));
        }
        let check =
            |name: &Name| name.check().map_err(|error| core.explain(error, "acquire", name));
        names.iter().try_for_each(check)?;
        Ok(names)
    }

    fn request_for(&self, name: Name) -> RequestBuilder {
        let mut request = self.request.clone();
        request.claim.name = name;
        request
    }
}

fn together(mut held: Vec<HeldClaim>) -> Hold {
    let first = held.remove(0);
    Hold::of_all(first, held)
}

impl fmt::Debug for All {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "All({:?})", self.names)
    }
}
