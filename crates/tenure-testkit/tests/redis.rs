//! Redis against the suite: real servers, one connection for each client.

use std::sync::Arc;

use tenure::engine::Engine;
use tenure::engines::redis::{Redis, RedisConfig};
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers;

/// Connects from within a synchronous function.
fn connect(url: &str) -> Arc<dyn Engine> {
    let (config, _) = RedisConfig::from_url(url).expect("a good URL");
    tokio::task::block_in_place(|| {
        let connected = tokio::runtime::Handle::current().block_on(Redis::connect(config));
        Arc::new(connected.expect("a server"))
    })
}

async fn conforms(url: String) {
    conformance::check(Arc::new(RealRuntime::here()), move || connect(&url)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_single_server_conforms() {
    let _alone = crate::ALONE.lock().await;
    let server = servers::Redis::build().start().unwrap();
    conforms(server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sentinels_conform() {
    let _alone = crate::ALONE.lock().await;
    let servers = servers::Sentinels::start(2).unwrap();
    conforms(servers.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_conforms() {
    let _alone = crate::ALONE.lock().await;
    let servers = servers::Cluster::start().unwrap();
    conforms(servers.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redis_6_2_conforms() {
    let _alone = crate::ALONE.lock().await;
    let server = servers::Redis::build().flavour(servers::Flavour::Redis62).start().unwrap();
    conforms(server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valkey_conforms() {
    let _alone = crate::ALONE.lock().await;
    let server = servers::Redis::build().flavour(servers::Flavour::Valkey).start().unwrap();
    conforms(server.url()).await;
}
