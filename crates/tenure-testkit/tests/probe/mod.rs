//! What the tests of all engines look with.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

mod fuse;
pub(crate) mod other;
pub(crate) mod puppet;

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::engine::{Engine, Moment, SystemWorld, World};
use tenure::{Hold, Result, Tenure, View};
use tokio::task::JoinHandle;

pub(crate) use other::Other;

/// Longer than anything takes that works at all, on a machine that has other things to do.
pub(crate) const BOUND: Duration = Duration::from_secs(30);
/// What happens at once happens within this, on such a machine; far below any ttl that is used with it.
pub(crate) const AT_ONCE: Duration = Duration::from_secs(3);
/// Whoever comes to a line looks again before this has passed, and then every twenty seconds.
pub(crate) const LOOKED: Duration = Duration::from_secs(3);

/// A place where locks are kept, for one test alone.
pub(crate) trait Site {
    fn new() -> Self;

    fn url(&self) -> String;

    /// The engine itself, for what the public API never asks.
    async fn engine(&self) -> Arc<dyn Engine>;

    /// Nothing is wrong inside.
    fn is_sound(&self) {}

    async fn connect(&self) -> Tenure {
        connect(&self.url()).await
    }
}

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

pub(crate) async fn connect(url: &str) -> Tenure {
    soon(Tenure::connect(url)).await.expect("an engine that can be reached")
}

/// The clock that goes on in sleep, the same for all processes of the machine.
pub(crate) fn now() -> Moment {
    SystemWorld.now()
}

pub(crate) async fn pause(time: Duration) {
    tokio::time::sleep(time).await;
}

/// The answer, which must come at all: what is lost fails the test and does not hang it.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    within(BOUND, future).await
}

pub(crate) async fn within<T>(bound: Duration, future: impl Future<Output = T>) -> T {
    let answer = tokio::time::timeout(bound, future).await;
    answer.unwrap_or_else(|_| panic!("no answer within {bound:?}"))
}

/// Waits until `fact` holds, and looks often.
pub(crate) async fn until(what: &str, mut fact: impl AsyncFnMut() -> bool) {
    let began = now();
    while !fact().await {
        assert!(now().since(began) < BOUND, "not within {BOUND:?}: {what}");
        pause(ms(5)).await;
    }
}

/// Who holds and who waits; nobody, if the name is not in use.
pub(crate) async fn view(tenure: &Tenure, name: &str) -> Option<View> {
    soon(tenure.inspect(name)).await.expect("an answer")
}

/// The fences of those who hold.
pub(crate) async fn holders(tenure: &Tenure, name: &str) -> Vec<u64> {
    let view = view(tenure, name).await;
    view.map_or_else(Vec::new, |view| view.holders.iter().map(|it| it.fence.get()).collect())
}

pub(crate) async fn until_waiting(tenure: &Tenure, name: &str, count: usize) {
    until(&format!("{count} stand in line for {name}"), async || {
        view(tenure, name).await.map_or(0, |view| view.waiters.len()) == count
    })
    .await;
}

pub(crate) async fn until_held(tenure: &Tenure, name: &str) {
    until(&format!("someone holds {name}"), async || !holders(tenure, name).await.is_empty()).await;
}

pub(crate) async fn until_free(tenure: &Tenure, name: &str) {
    until("nobody holds it", async || holders(tenure, name).await.is_empty()).await;
}

/// Stands in line in the background. The place is taken when this is called.
pub(crate) fn wait_for(tenure: &Tenure, name: &str, ttl: Duration) -> JoinHandle<Result<Hold>> {
    tokio::spawn(tenure.mutex(name).ttl(ttl).join())
}

/// One after the other stands in line for the name, which nobody waits for yet.
pub(crate) async fn line_up(
    clients: &[&Tenure],
    name: &str,
    ttl: Duration,
) -> Vec<JoinHandle<Result<Hold>>> {
    let mut line = Vec::new();
    for client in clients {
        line.push(wait_for(client, name, ttl));
        until_waiting(client, name, line.len()).await;
    }
    line
}

/// The hold that a waiter has come to.
pub(crate) async fn served(waiter: JoinHandle<Result<Hold>>) -> Hold {
    soon(waiter).await.expect("no panic").expect("a hold")
}

/// Holds without ever renewing, as the dead do; the name stays taken until the ttl is over.
pub(crate) async fn hold_like_the_dead(tenure: &Tenure, name: &str, ttl: Duration) -> u64 {
    let hold = tenure.mutex(name).ttl(ttl).renew(false).acquire().await.expect("a hold");
    let fence = hold.fence().get();
    std::mem::forget(hold);
    fence
}

/// One poll by a caller that nobody can wake.
pub(crate) fn poll_once<F: Future + Unpin + ?Sized>(future: &mut F) -> Poll<F::Output> {
    Pin::new(future).poll(&mut Context::from_waker(Waker::noop()))
}
