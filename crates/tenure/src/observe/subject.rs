//! What reports are about: a claim, and the end of its hold.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use super::Holding;
use crate::model::claim::{Fence, Place};
use crate::model::moment::Moment;
use crate::model::request::Request;
use crate::world::World;

/// A claim of this process, as far as reports need it.
pub(crate) trait Subject: Send + Sync + 'static {
    fn request(&self) -> &Request;
    /// What it was granted with, if it ever was.
    fn fence(&self) -> Fence;
    /// Until when its hold is certain to last.
    fn deadline(&self) -> Moment;
    /// When it was granted, and when its owner left if that is known.
    fn times(&self) -> (Moment, Option<Moment>);
    /// Where it waits, as of the last answer.
    fn place(&self) -> Option<Place>;
    /// Since when it holds, or since when it stands in line.
    #[cfg(feature = "metrics")]
    fn standing(&self) -> Option<(bool, Moment)>;
    /// What lasts as long as the hold, if it holds and somebody wants to know.
    fn holding(&self) -> Option<Arc<Holding>>;
}

/// The end of a hold.
pub(crate) struct HoldEnd<'a, S> {
    pub(crate) claim: &'a Arc<S>,
    /// What lasted as long as it did.
    pub(crate) holding: Option<Arc<Holding>>,
    pub(crate) world: &'a Arc<dyn World>,
}

impl<S: Subject> HoldEnd<'_, S> {
    /// How long it was held, until its owner left.
    pub(super) fn held(&self) -> Duration {
        let (since, left_at) = self.claim.times();
        left_at.unwrap_or_else(|| self.world.now()).since(since)
    }

    /// Says it inside the hold's own span.
    pub(super) fn say(&self, say: impl FnOnce()) {
        in_span(self.holding.as_ref(), say);
    }
}

/// Says it inside the hold's span, where there is one.
pub(super) fn in_span(holding: Option<impl Borrow<Arc<Holding>>>, say: impl FnOnce()) {
    match holding {
        Some(holding) => holding.borrow().span().in_scope(say),
        None => say(),
    }
}
