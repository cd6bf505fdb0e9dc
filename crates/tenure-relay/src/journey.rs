//! A transaction on its way, and whoever waits for its outcome.
//!
//! Whoever waits moves it along, so that it costs no task of its own. When they hang up, or have had an answer before
//! the work was done, the rest goes on by itself.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::lane::Outcome;

/// What is left of the work.
type Rest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Its outcome, when that is known; `None` if the work came to a bad end.
pub(crate) struct Journey {
    rest: Option<Rest>,
    answered: oneshot::Receiver<Outcome>,
}

impl Journey {
    pub(crate) fn new(rest: Option<Rest>, answered: oneshot::Receiver<Outcome>) -> Journey {
        Journey { rest, answered }
    }

    /// From now on it goes on by itself, also while nobody waits for it.
    pub(crate) fn goes_alone(&mut self) {
        // Without a runtime it has come to its end anyway.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

impl Future for Journey {
    type Output = Option<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        // Not there while it runs: what panics is not run again.
        if let Some(mut rest) = self.rest.take()
            && rest.as_mut().poll(cx).is_pending()
        {
            self.rest = Some(rest);
        }
        Pin::new(&mut self.answered).poll(cx).map(Result::ok)
    }
}

impl Drop for Journey {
    fn drop(&mut self) {
        self.goes_alone();
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    fn journey() -> (Journey, oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((answer, answered), (done, is_done)) = (oneshot::channel(), oneshot::channel());
        let (go_on, goes_on) = oneshot::channel::<()>();
        let rest = async move {
            let _ = answer.send(Outcome::Accepted(B256::ZERO));
            let _ = goes_on.await;
            let _ = done.send(());
        };
        (Journey::new(Some(Box::pin(rest)), answered), is_done, go_on)
    }

    #[tokio::test]
    async fn the_work_goes_on_when_the_answer_was_given_before_its_end() {
        let (journey, done, go_on) = journey();
        assert!(matches!(journey.await, Some(Outcome::Accepted(_))));
        go_on.send(()).unwrap();
        done.await.unwrap();
    }

    #[tokio::test]
    async fn the_work_is_done_although_nobody_waits_for_it() {
        let (journey, done, go_on) = journey();
        drop(journey);
        go_on.send(()).unwrap();
        done.await.unwrap();
    }
}
