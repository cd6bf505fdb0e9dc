//! What the scenario tests on real servers look with.
#![allow(dead_code, reason = "every test binary uses a part of it")]

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::engine::{ClaimId, Engine, Moment, Name, SystemWorld, Turn, Turns, World};
use tenure::engines::redis::RedisConfig;
use tenure::{Hold, Result, Tenure, View};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::Redis;
use tokio::task::JoinHandle;

/// Longer than anything takes that works at all, on a machine that has other things to do.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// Whoever comes to a line looks again before this has passed, and then every twenty seconds.
pub(crate) const LOOKED: Duration = Duration::from_secs(3);

pub(crate) const fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

pub(crate) const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server that keeps nothing on disk.
pub(crate) fn server() -> Redis {
    Redis::build().start().expect("a server")
}

/// A network in front of a server.
pub(crate) fn proxy(server: &Redis) -> Proxy {
    Proxy::start(server.port()).expect("a proxy")
}

pub(crate) fn through(proxy: &Proxy, query: &str) -> String {
    format!("redis://127.0.0.1:{}{query}", proxy.port())
}

pub(crate) async fn connect(url: &str) -> Tenure {
    soon(Tenure::connect(url)).await.expect("a server that answers")
}

/// Connects to a server that must be there, which connecting alone does not ask for.
pub(crate) async fn reach(url: &str) -> Result<Tenure> {
    let tenure = Tenure::connect(url).await?;
    tenure.health().await.map(|_| tenure)
}

/// The engine itself, for what the public API never asks.
pub(crate) async fn engine(url: &str) -> Arc<dyn Engine> {
    let (config, _) = RedisConfig::from_url(url).expect("a good URL");
    Arc::new(tenure::engines::redis::Redis::connect(config).await.expect("a server"))
}

/// Someone who takes every turn that is pushed, and does nothing with it.
#[derive(Debug, Default)]
pub(crate) struct Taker;

impl Turns for Taker {
    fn deliver(&self, _: &Name, _: &ClaimId, _: Turn) -> bool {
        true
    }

    fn look_again(&self, _: u32) {}
}

/// The engine itself, with someone who takes turns.
pub(crate) async fn engine_with_taker(url: &str) -> (Arc<dyn Engine>, Arc<Taker>) {
    let (engine, taker) = (engine(url).await, Arc::new(Taker));
    let turns: Arc<dyn Turns> = taker.clone();
    engine.attach(Arc::downgrade(&turns));
    (engine, taker)
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
    until("they stand in line", async || {
        view(tenure, name).await.is_some_and(|view| view.waiters.len() == count)
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

/// All keys of the server, in order.
pub(crate) fn keys(server: &Redis) -> Vec<String> {
    let found = server.command(&["KEYS", "*"]).expect("an answer");
    let mut keys: Vec<_> =
        found.list().iter().filter_map(|key| key.text()).map(String::from).collect();
    keys.sort();
    keys
}

/// The keys that names leave for a while, without the fixed one of each partition.
pub(crate) fn keys_of_names(server: &Redis) -> Vec<String> {
    keys(server).into_iter().filter(|key| !key.ends_with("}:p")).collect()
}

/// The name's own key. Somebody must use the name.
pub(crate) fn key_of(server: &Redis, name: &str) -> String {
    let end = format!("}}:l:{name}");
    keys(server).into_iter().find(|key| key.ends_with(&end)).expect("a name in use")
}

/// How often a command was called, also by scripts.
pub(crate) fn calls(server: &Redis, command: &str) -> u64 {
    let line = server.info(&format!("cmdstat_{command}")).unwrap_or_default();
    let calls = line.strip_prefix("calls=").and_then(|rest| rest.split(',').next());
    calls.and_then(|calls| calls.parse().ok()).unwrap_or(0)
}

/// Ends the connections of the client with this name, as an operator does. Returns how many.
pub(crate) fn cut_off(server: &Redis, client_name: &str) -> usize {
    let list = server.command(&["CLIENT", "LIST"]).expect("an answer");
    let wanted = format!("name={client_name}");
    let lines = list.text().unwrap_or_default().lines();
    let ids = lines.filter(|line| line.split(' ').any(|field| field == wanted));
    let ids = ids.filter_map(|line| line.split(' ').find_map(|field| field.strip_prefix("id=")));
    let mut count = 0;
    for id in ids {
        server.command(&["CLIENT", "KILL", "ID", id]).expect("an answer");
        count += 1;
    }
    count
}
