//! What the tests of the public API look with.
#![allow(dead_code, reason = "every test binary uses a part of it")]

pub(crate) mod between;
pub(crate) mod keeper;

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Hold, Result, Tenure, View};

/// Any way to ask for a hold.
pub(crate) type Asking = Pin<Box<dyn Future<Output = Result<Hold>> + Send>>;

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Lines of this test's own.
pub(crate) fn memory() -> Tenure {
    now(Tenure::connect("memory:")).expect("memory is always there")
}

/// The answer, which must not take long: a wake-up that is lost fails the test and does not hang it.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(Duration::from_secs(10), future).await;
    answer.expect("an answer within ten seconds")
}

/// One poll by a caller that nobody can wake.
pub(crate) fn poll_once<F: Future + Unpin + ?Sized>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}

/// The answer, which must be there without anything else happening in between. A few polls are
/// granted to engines whose answers are late.
pub(crate) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = pin!(future);
    for _ in 0..64 {
        if let Poll::Ready(answer) = poll_once(&mut future) {
            return answer;
        }
    }
    panic!("it has to wait for something");
}

/// A future that has been polled once and has to wait.
pub(crate) fn waiting<F: Future>(future: F) -> Pin<Box<F>> {
    let mut future = Box::pin(future);
    assert!(poll_once(&mut future).is_pending(), "there was nothing to wait for");
    future
}

/// Whether the name can be had without waiting. What is taken to find out is given back.
pub(crate) fn is_free(tenure: &Tenure, name: &str) -> bool {
    now(tenure.mutex(name).try_acquire()).expect("an answer").is_some()
}

/// Who holds and who waits; the name must be in use.
pub(crate) fn view(tenure: &Tenure, name: &str) -> View {
    now(tenure.inspect(name)).expect("an answer").expect("somebody uses the name")
}

/// Waits until `fact` holds, and looks often. For what is not an event to anybody.
pub(crate) fn until(what: &str, mut fact: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if fact() {
            return;
        }
        std::thread::sleep(ms(5));
    }
    panic!("not within ten seconds: {what}");
}
