//! The `http://` engine against the suite that every engine must pass, over real connections: with `memory:` and with
//! Redis behind the server. A program of its own: the suite plays all its cases at once, by real time.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

use std::sync::Arc;

use tenure::engine::Engine;
use tenure::engines::http::{Http, HttpConfig};
use tenure::engines::memory::Memory;
use tenure::engines::redis::{Redis, RedisConfig};
use tenure_server::{Key, Server};
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers;

/// Held while a test plays the suite, so that only one does at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

async fn serve(engine: Arc<dyn Engine>) -> String {
    let listen = "127.0.0.1:0".parse().unwrap();
    let server = Server::bind(engine, listen, Key::random().unwrap()).await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    tokio::spawn(server.run(std::future::pending()));
    url
}

/// Connects from within a synchronous function.
fn connect(url: &str) -> Arc<dyn Engine> {
    let (config, _) = HttpConfig::from_url(url).unwrap();
    tokio::task::block_in_place(|| {
        let connected = tokio::runtime::Handle::current().block_on(Http::connect(config));
        Arc::new(connected.expect("a server"))
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_memory_conforms() {
    let _alone = ALONE.lock().await;
    let url = serve(Arc::new(Memory::new())).await;
    conformance::check(Arc::new(RealRuntime::here()), move || connect(&url)).await;
}

/// Two servers on one Redis: each client has one of them.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_redis_conform() {
    let _alone = ALONE.lock().await;
    let redis = servers::Redis::build().start().unwrap();
    let mut urls = Vec::new();
    for _ in 0..2 {
        let (config, _) = RedisConfig::from_url(&redis.url()).unwrap();
        urls.push(serve(Arc::new(Redis::connect(config).await.unwrap())).await);
    }
    let next = std::sync::atomic::AtomicUsize::new(0);
    let connect_somewhere = move || {
        let turn = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        connect(&urls[turn % urls.len()])
    };
    conformance::check(Arc::new(RealRuntime::here()), connect_somewhere).await;
}
