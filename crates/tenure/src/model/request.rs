//! What a caller asks for: the claim, how long to wait for it, and what to do once it is granted.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::model::claim::{Claim, ClaimId, Details, Fence};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::{Name, Space};
use crate::model::options::{
    OnOutage, Options, Protection, Terms, check_details, check_times, check_units,
};
use crate::model::profile::Profile;

/// What a primitive asks for. Primitives differ in weight and capacity alone.
#[derive(Clone)]
pub(crate) struct Request {
    /// Without an id until it is sent.
    pub(crate) claim: Claim,
    pub(crate) wait: Option<Duration>,
    pub(crate) terms: Terms,
    /// As the caller set it; [`outage`](Request::outage) is what applies.
    pub(crate) on_outage: OnOutage,
    /// Who grants it: the engine, or the stand-in.
    pub(crate) protection: Protection,
    /// The details are not those of the defaults, which were checked when they became it.
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

    /// The details, to be changed.
    pub(crate) fn details(&mut self) -> &mut Details {
        self.own_details = true;
        Arc::make_mut(&mut self.claim.details)
    }

    /// What to do when the engine cannot be reached. Two leaders, or work that is done twice, are never
    /// better than an error.
    pub(crate) fn outage(&self) -> OnOutage {
        match self.claim.name.space() {
            Space::Lock => self.on_outage,
            Space::Election | Space::Once => OnOutage::Closed,
        }
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
        // What is fixed brings its own numbers, which are always right.
        if !fixed {
            check_units(*weight, *capacity)?;
        }
        if *capacity > 1 && !profile.sharing {
            let reason = "this engine grants a name to one claim at a time";
            return Err(Error::new(ErrorKind::Unsupported, reason).next("use a mutex"));
        }
        Ok(())
    }
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Claim { name, weight, capacity, ttl, .. } = &self.claim;
        write!(f, "{name:?}, {weight} of {capacity}, ttl {ttl:?}")
    }
}
