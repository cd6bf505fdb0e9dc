//! The work on one transaction, as a future of its outcome.
//!
//! The task that awaits the outcome also does the work, so a transaction needs no task of its own. If the future is
//! dropped first, because the client disconnected or was answered early, the work continues in a task of its own.

use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;
use tokio::sync::oneshot;

use crate::lane::Outcome;

/// The work that is left.
type Rest = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Resolves to the outcome, or to `None` if the work panicked.
pub(crate) struct Processing {
    rest: Option<Rest>,
    answered: oneshot::Receiver<Outcome>,
}

impl Processing {
    pub(crate) fn new(rest: Option<Rest>, answered: oneshot::Receiver<Outcome>) -> Processing {
        Processing { rest, answered }
    }

    /// Continues the work in a task of its own.
    pub(crate) fn detach(&mut self) {
        // Without a runtime the process is ending anyway.
        if let (Some(rest), Ok(runtime)) = (self.rest.take(), Handle::try_current()) {
            runtime.spawn(rest);
        }
    }
}

impl Future for Processing {
    type Output = Option<Outcome>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Outcome>> {
        // Taken out while it runs, so that work that panicked is not polled again.
        if let Some(mut rest) = self.rest.take()
            && rest.as_mut().poll(cx).is_pending()
        {
            self.rest = Some(rest);
        }
        Pin::new(&mut self.answered).poll(cx).map(Result::ok)
    }
}

impl Drop for Processing {
    fn drop(&mut self) {
        self.detach();
    }
}

#[cfg(test)]
mod tests {
    use alloy_primitives::B256;

    use super::*;

    fn processing() -> (Processing, oneshot::Receiver<()>, oneshot::Sender<()>) {
        let ((answer, answered), (done, is_done)) = (oneshot::channel(), oneshot::channel());
        let (go_on, goes_on) = oneshot::channel::<()>();
        let rest = async move {
            let _ = answer.send(Outcome::Accepted(B256::ZERO));
            let _ = goes_on.await;
            let _ = done.send(());
        };
        (Processing::new(Some(Box::pin(rest)), answered), is_done, go_on)
    }

    #[tokio::test]
    async fn the_work_goes_on_when_the_answer_was_given_before_its_end() {
        let (processing, done, go_on) = processing();
        assert!(matches!(processing.await, Some(Outcome::Accepted(_))));
        go_on.send(()).unwrap();
        done.await.unwrap();
    }

    #[tokio::test]
    async fn the_work_is_done_although_nobody_waits_for_it() {
        let (processing, done, go_on) = processing();
        drop(processing);
        go_on.send(()).unwrap();
        done.await.unwrap();
    }
}
