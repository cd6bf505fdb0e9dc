//! A request that has not been sent yet.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::core::live_claim::LiveClaim;
use crate::model::name::Name;
use crate::model::options::Options;
use crate::model::request::Request;

/// A request that has not been sent yet.
///
/// It is built inside the allocation of the live claim that it becomes, and never copied.
pub(crate) struct RequestBuilder(Arc<LiveClaim>);

impl RequestBuilder {
    pub(crate) fn new(name: Name, options: &Options) -> RequestBuilder {
        RequestBuilder(Arc::new(LiveClaim::new(Request::new(name, options))))
    }

    /// The claim to send.
    pub(crate) fn into_live(self) -> Arc<LiveClaim> {
        self.0
    }
}

impl Deref for RequestBuilder {
    type Target = Request;

    fn deref(&self) -> &Request {
        &self.0
    }
}

impl DerefMut for RequestBuilder {
    fn deref_mut(&mut self) -> &mut Request {
        // Nobody else has it before it is sent, and sending consumes the builder.
        Arc::get_mut(&mut self.0).expect("the builder is the only owner").request_mut()
    }
}

impl Clone for RequestBuilder {
    fn clone(&self) -> RequestBuilder {
        RequestBuilder(Arc::new(LiveClaim::new(Request::clone(self))))
    }
}
