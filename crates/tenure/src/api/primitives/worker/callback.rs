use std::any::Any;
use std::fmt::Display;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Runs a callback of the user with a time limit. Returns why it failed, no matter how it did.
pub(super) async fn call<E: Display>(
    callback: impl Future<Output = Result<(), E>>,
    within: Duration,
) -> Result<(), String> {
    let mut callback = pin!(callback);
    // After a panic it is not polled again, and state that it shares with others is the user's concern.
    let caught =
        poll_fn(|cx| match catch_unwind(AssertUnwindSafe(|| callback.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(answer)) => Poll::Ready(answer.map_err(|error| error.to_string())),
            Err(panic) => Poll::Ready(Err(format!("it panicked: {}", said(&*panic)))),
        });
    match tokio::time::timeout(within, caught).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("it took longer than {within:?}")),
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("(no message)")
}
