//! A request that was not sent yet.

use std::ops::{Deref, DerefMut};
use std::sync::Arc;

use crate::core::claim_state::Stake;
use crate::core::request::Ask;
use crate::model::name::Name;
use crate::model::options::Options;

/// An ask that was not sent yet.
///
/// It is written in the place where it stays: on its way from the first word of the caller to the
/// end of the claim it is not copied.
pub(crate) struct Draft(Arc<Stake>);

impl Draft {
    pub(crate) fn new(name: Name, options: &Options) -> Draft {
        Draft(Arc::new(Stake::new(Ask::new(name, options))))
    }

    /// The claim to send.
    pub(crate) fn into_stake(self) -> Arc<Stake> {
        self.0
    }
}

impl Deref for Draft {
    type Target = Ask;

    fn deref(&self) -> &Ask {
        &self.0
    }
}

impl DerefMut for Draft {
    fn deref_mut(&mut self) -> &mut Ask {
        // Nobody else has it before it is sent, and then it is no draft any more.
        Arc::get_mut(&mut self.0).expect("a draft is its writer's alone").ask_mut()
    }
}

impl Clone for Draft {
    fn clone(&self) -> Draft {
        Draft(Arc::new(Stake::new(Ask::clone(self))))
    }
}
