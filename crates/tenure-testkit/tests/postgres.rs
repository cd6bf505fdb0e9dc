//! Postgres against the suite: a real server, connections of its own for each client.

use std::sync::Arc;

use tenure::engine::Engine;
use tenure::engines::postgres::{Postgres, PostgresConfig};
use tenure_testkit::conformance;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers::{self, PostgresVersion};

/// Connects from within a synchronous function.
fn connect(url: &str) -> Arc<dyn Engine> {
    let (config, _) = PostgresConfig::from_url(url).expect("a good URL");
    tokio::task::block_in_place(|| {
        let connected = tokio::runtime::Handle::current().block_on(Postgres::connect(config));
        Arc::new(connected.expect("a server"))
    })
}

async fn conforms(server: &servers::Postgres, url: String) {
    let _alone = crate::ALONE.lock().await;
    let (config, _) = PostgresConfig::from_url(&server.url("postgres")).unwrap();
    Postgres::set_up(config).await.unwrap();
    let runtime = Arc::new(RealRuntime::here());
    conformance::check_some_at_a_time(32, runtime, move || connect(&url)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_conforms() {
    let server = servers::Postgres::start().unwrap();
    // Each client has three connections, which are processes of the server.
    conforms(&server, format!("{}?connections=1", server.url("postgres"))).await;
}

/// Steps go through a pooler in transaction mode; turns go past it.
#[tokio::test(flavor = "multi_thread")]
async fn postgres_18_behind_a_pooler_conforms() {
    let build = servers::Postgres::build().version(PostgresVersion::Postgres18);
    let server = build.start().unwrap();
    let pooler = servers::Pgbouncer::start(&server).unwrap();
    let direct = format!("127.0.0.1:{}", server.port());
    conforms(&server, format!("{}?connections=1&listen={direct}", pooler.url("postgres"))).await;
}
