//! A caller's request: the claim, how long to wait for it, and what to do once it is granted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::{Claim, ClaimId, Details, Fence};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::{Name, Space};
use crate::model::options::{
    OnOutage, Options, Protection, Terms, check_details, check_times, check_ttl, check_units,
};
use crate::model::profile::Profile;

/// The request of a primitive. Primitives differ only in weight and capacity.
#[derive(Clone)]
pub(crate) struct Request {
    /// Has no id until it is sent.
    pub(crate) claim: Claim,
    pub(crate) wait: Option<Duration>,
    pub(crate) terms: Terms,
    /// As the caller set it; [`outage`](Request::outage) returns the one that applies.
    pub(crate) on_outage: OnOutage,
    /// What grants it: the engine, or the stand-in.
    pub(crate) protection: Protection,
    /// Whether the details differ from the defaults, which were checked when they were set.
    pub(crate) own_details: bool,
}

impl Request {
    pub(crate) fn new(name: Name, options: &Options) -> Request {
        let Options { ttl, wait, max_waiters, on_outage, details, .. } = options;
        Request {
            claim: Claim {
                name,
                id: ClaimId::NONE,
                weight: 1,
                capacity: 1,
                fixed: true,
                ttl: *ttl,
                may_wait: true,
                on_behalf: false,
                shared: false,
                max_waiters: max_waiters.unwrap_or(u32::MAX),
                ticket: None,
                seen: Fence::default(),
                once: None,
                details: details.clone(),
            },
            wait: *wait,
            terms: options.terms(),
            on_outage: *on_outage,
            protection: Protection::Engine,
            own_details: false,
        }
    }

    pub(crate) fn set(&mut self, options: Options) {
        self.terms = options.terms();
        let Options { ttl, wait, max_waiters, on_outage, details, .. } = options;
        self.claim.ttl = ttl;
        self.claim.max_waiters = max_waiters.unwrap_or(u32::MAX);
        self.claim.details = details;
        self.wait = wait;
        self.on_outage = on_outage;
        self.own_details = true;
    }

    /// The details, mutable.
    pub(crate) fn details(&mut self) -> &mut Details {
        self.own_details = true;
        Arc::make_mut(&mut self.claim.details)
    }

    /// What to do when the engine cannot be reached. For elections and onces an error is always better than two
    /// leaders or work done twice.
    pub(crate) fn outage(&self) -> OnOutage {
        match self.claim.name.space() {
            Space::Lock => self.on_outage,
            Space::Election | Space::Once => OnOutage::Closed,
        }
    }

    /// Whether other claims of the process may be given the hold when it ends, and give it to this one: a mutex that
    /// waits, is renewed and asks for nothing special.
    pub(crate) fn may_be_shared(&self) -> bool {
        let Claim { name, weight, capacity, fixed, may_wait, max_waiters, once, .. } = &self.claim;
        let is_mutex = (*weight, *capacity, *fixed) == (1, 1, true) && name.space() == Space::Lock;
        let is_plain = *may_wait && *max_waiters == u32::MAX && once.is_none();
        let engine = self.outage() == OnOutage::Closed && self.protection == Protection::Engine;
        is_mutex && is_plain && engine && self.terms.renew
    }

    /// The same request for the stand-in, which grants it at once.
    pub(crate) fn elsewhere(&self, id: ClaimId) -> Request {
        let mut request = self.clone();
        request.claim.id = id;
        request.protection = match request.outage() {
            OnOutage::Local => Protection::Local,
            OnOutage::Closed | OnOutage::Open => Protection::None,
        };
        request
    }

    pub(crate) fn check(&self, profile: &Profile) -> Result<()> {
        let Claim { name, weight, capacity, fixed, ttl, details, .. } = &self.claim;
        name.check()?;
        check_times(*ttl, &self.terms, profile)?;
        if self.own_details {
            check_details(details)?;
        }
        // A fixed capacity is not the caller's choice, and always right.
        if !fixed {
            check_units(*weight, *capacity)?;
        }
        if *capacity > 1 && !profile.sharing {
            return Err(one_at_a_time());
        }
        Ok(())
    }
}

/// Checks a claim that did not come through this crate's own API, such as one that a server received: its name, ttl,
/// details and units must be such as engines may be given.
///
/// # Errors
/// `Invalid`, or `Unsupported` for a capacity above 1 on an engine that grants a name to one claim at a time.
pub fn check_claim(claim: &Claim, profile: &Profile) -> Result<()> {
    let Claim { name, weight, capacity, ttl, details, .. } = claim;
    name.check()?;
    check_ttl(*ttl, profile)?;
    check_details(details)?;
    // A read-write lock has more units than a semaphore may have.
    if !claim.fixed || weight > capacity || *weight == 0 {
        check_units(*weight, *capacity)?;
    }
    if *capacity > 1 && !profile.sharing {
        return Err(one_at_a_time());
    }
    Ok(())
}

fn one_at_a_time() -> Error {
    let reason = "this engine grants a name to one claim at a time";
    Error::new(ErrorKind::Unsupported, reason).next("use a mutex")
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { name, weight, capacity, ttl, .. } = &self.claim;
        write!(f, "{name:?}, {weight} of {capacity}, ttl {ttl:?}")
    }
}
