//! The span and the gauges of a hold, from the grant to its end.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tracing::field::{Empty, display};
use tracing::{Span, debug_span};

use super::{Reporter, TARGET, group, kind, millis};
use crate::model::claim::{Claim, Ended, Grant};
use crate::system;

/// Ends with the hold, at the latest when the claim is forgotten. However it ends, dropping this restores the
/// gauges.
pub(crate) struct Holding {
    span: Span,
    #[cfg(feature = "metrics")]
    counted: [super::meters::Counted; 2],
    /// The process that it was made in. In a forked child nothing may be reported.
    generation: u64,
}

impl Holding {
    /// Returns `None` if there is no listener.
    pub(super) fn new(
        reporter: &Reporter,
        claim: &Claim,
        grant: &Grant,
        acquire: &Span,
    ) -> Option<Arc<Holding>> {
        let span = debug_span!(
            target: TARGET,
            "tenure.hold",
            tenure.name = %claim.name,
            tenure.kind = kind(claim),
            tenure.group = group(&claim.name),
            tenure.engine = &*reporter.engine,
            tenure.owner = claim.details.owner,
            tenure.fence = grant.fence.get(),
            tenure.hold.ms = Empty,
            tenure.end = Empty,
            tenure.lost.reason = Empty,
        );
        if span.is_disabled() && !cfg!(feature = "metrics") {
            return None;
        }
        span.follows_from(acquire);
        Some(Arc::new(Holding {
            span,
            #[cfg(feature = "metrics")]
            counted: super::meters::held_now(reporter, claim),
            generation: system::generation(),
        }))
    }

    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// The hold is over: records how long it lasted and how it ended. The span ends when this is dropped.
    pub(super) fn over(&self, held: Duration, how: &'static str, lost: Option<&Ended>) {
        self.span.record("tenure.hold.ms", millis(held));
        self.span.record("tenure.end", how);
        if let Some(ended) = lost {
            self.span.record("tenure.lost.reason", display(ended));
        }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        if self.generation != system::generation() {
            // A thread of the parent may have been inside the subscriber at the moment of the fork.
            std::mem::forget(std::mem::replace(&mut self.span, Span::none()));
            #[cfg(feature = "metrics")]
            std::mem::forget(std::mem::take(&mut self.counted));
        }
    }
}

impl fmt::Debug for Holding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holding")
    }
}
