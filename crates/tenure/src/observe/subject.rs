//! The subjects of reports: a claim, and the end of its hold.

use std::borrow::Borrow;
use std::sync::Arc;
use std::time::Duration;

use super::Holding;
use crate::model::claim::{Fence, Place};
use crate::model::moment::Moment;
use crate::model::request::Request;
use crate::world::World;

/// What reports need to know about a claim of this process.
pub(crate) trait Subject: Send + Sync + 'static {
    fn request(&self) -> &Request;
    /// The fence it was granted with, if it was.
    fn fence(&self) -> Fence;
    /// Until when its hold is certain.
    fn deadline(&self) -> Moment;
    /// When it was granted, and when its owner left, if known.
    fn times(&self) -> (Moment, Option<Moment>);
    /// Its place, as of the last answer.
    fn place(&self) -> Option<Place>;
    /// Whether it holds (or waits), and since when.
    #[cfg(feature = "metrics")]
    fn standing(&self) -> Option<(bool, Moment)>;
    /// The span and the gauges of its hold, if it holds and there is a listener.
    fn holding(&self) -> Option<Arc<Holding>>;
}

/// The end of a hold.
pub(crate) struct HoldEnd<'a, S> {
    pub(crate) claim: &'a Arc<S>,
    /// The span and the gauges of the hold.
    pub(crate) holding: Option<Arc<Holding>>,
    pub(crate) world: &'a Arc<dyn World>,
}

impl<S: Subject> HoldEnd<'_, S> {
    /// How long it was held, until its owner left.
    pub(super) fn held(&self) -> Duration {
        let (since, left_at) = self.claim.times();
        left_at.unwrap_or_else(|| self.world.now()).since(since)
    }

    /// Reports inside the hold's own span.
    pub(super) fn say(&self, say: impl FnOnce()) {
        in_span(self.holding.as_ref(), say);
    }
}

/// Reports inside the hold's span, if there is one.
pub(super) fn in_span(holding: Option<impl Borrow<Arc<Holding>>>, say: impl FnOnce()) {
    match holding {
        Some(holding) => holding.borrow().span().in_scope(say),
        None => say(),
    }
}
