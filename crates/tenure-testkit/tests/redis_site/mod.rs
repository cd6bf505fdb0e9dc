//! Helpers for the tests of the Redis engine: servers, and what they report about themselves.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

use std::sync::Arc;

use tenure::engine::{ClaimId, Engine, Name, Turn, Turns};
use tenure::engines::redis::RedisConfig;
use tenure::{Result, Tenure};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::Redis;

pub(crate) use crate::fixtures::*;

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

impl Site for Redis {
    fn new() -> Redis {
        server()
    }

    fn url(&self) -> String {
        Redis::url(self)
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        engine(&Redis::url(self)).await
    }
}

/// Connects to a server that must be there; connecting alone does not check that.
pub(crate) async fn reach(url: &str) -> Result<Tenure> {
    let tenure = Tenure::connect(url).await?;
    tenure.health().await.map(|_| tenure)
}

/// The engine itself, for requests that the public API never makes.
pub(crate) async fn engine(url: &str) -> Arc<dyn Engine> {
    let (config, _) = RedisConfig::from_url(url).expect("a good URL");
    Arc::new(tenure::engines::redis::Redis::connect(config).await.expect("a server"))
}

/// Takes every turn that is pushed, and does nothing with it.
#[derive(Debug, Default)]
pub(crate) struct Taker;

impl Turns for Taker {
    fn deliver(&self, _: &Name, _: &ClaimId, _: Turn) -> bool {
        true
    }

    fn look_again(&self, _: u32) {}
}

/// The engine itself, with a client that takes turns.
pub(crate) async fn engine_with_taker(url: &str) -> (Arc<dyn Engine>, Arc<Taker>) {
    let (engine, taker) = (engine(url).await, Arc::new(Taker));
    let turns: Arc<dyn Turns> = taker.clone();
    engine.attach(Arc::downgrade(&turns));
    (engine, taker)
}

/// All keys of the server, in order.
pub(crate) fn keys(server: &Redis) -> Vec<String> {
    let found = server.command(&["KEYS", "*"]).expect("an answer");
    let mut keys: Vec<_> =
        found.list().iter().filter_map(|key| key.text()).map(String::from).collect();
    keys.sort();
    keys
}

/// The keys that names leave behind for a while, without the fixed one of each partition.
pub(crate) fn keys_of_names(server: &Redis) -> Vec<String> {
    keys(server).into_iter().filter(|key| !key.ends_with("}:p")).collect()
}

/// The name's own key. Somebody must use the name.
pub(crate) fn key_of(server: &Redis, name: &str) -> String {
    let end = format!("}}:l:{name}");
    keys(server).into_iter().find(|key| key.ends_with(&end)).expect("a name in use")
}

/// How often a command was called, including by scripts.
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
