//! Helpers for the tests of the Postgres engine: a database for each test, on a server that they share.
#![allow(dead_code, unused_imports, reason = "every test binary uses a part of it")]

use std::sync::Arc;

use tenure::engine::Engine;
use tenure::engines::postgres::{Postgres, PostgresConfig};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{self, PostgresDatabase};

pub(crate) use crate::fixtures::*;

/// A database with the tables of tenure, for one test alone.
pub(crate) struct PostgresSite(pub(crate) PostgresDatabase);

impl PostgresSite {
    /// A server for this test alone, which it may kill.
    pub(crate) fn alone(build: servers::PostgresBuild) -> PostgresSite {
        PostgresSite(PostgresDatabase::alone(build).expect("a server"))
    }

    pub(crate) fn server(&self) -> &servers::Postgres {
        &self.0.server
    }

    pub(crate) fn database(&self) -> &str {
        &self.0.name
    }

    /// What a statement returns, as text.
    pub(crate) fn sql(&self, sql: &str) -> String {
        self.0.sql(sql).expect(sql)
    }

    pub(crate) fn number(&self, sql: &str) -> i64 {
        self.sql(sql).parse().expect(sql)
    }

    pub(crate) fn proxy(&self) -> Proxy {
        Proxy::start(self.server().port()).expect("a proxy")
    }

    pub(crate) fn through(&self, proxy: &Proxy, query: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{}{query}", proxy.port(), self.database())
    }
}

impl Site for PostgresSite {
    fn new() -> PostgresSite {
        PostgresSite(PostgresDatabase::start().expect("a server"))
    }

    fn url(&self) -> String {
        self.0.url()
    }

    async fn engine(&self) -> Arc<dyn Engine> {
        engine(&self.url()).await
    }

    fn is_sound(&self) {
        let wrong = "SELECT count(*) FROM tenure.name n WHERE
            n.held <> coalesce((n.alone).weight, 0) + (SELECT coalesce(sum(weight), 0) FROM tenure.claim c
              WHERE c.name = n.key AND c.state = 2)
            OR n.waiting <> (SELECT count(*) FROM tenure.claim c WHERE c.name = n.key AND c.state < 2)
            OR n.aside <> (SELECT count(*) FROM tenure.claim c WHERE c.name = n.key AND c.state = 1)";
        assert_eq!(self.number(wrong), 0, "names whose totals are wrong");
        let lost = "SELECT (SELECT count(*) FROM tenure.claim WHERE name NOT IN (SELECT key FROM tenure.name))
            + (SELECT count(*) FROM tenure.hold WHERE name NOT IN (SELECT key FROM tenure.name))";
        assert_eq!(self.number(lost), 0, "claims without a name");
    }
}

/// The engine itself, for what the public API never asks.
pub(crate) async fn engine(url: &str) -> Arc<dyn Engine> {
    let (config, _) = PostgresConfig::from_url(url).expect("a good URL");
    Arc::new(Postgres::connect(config).await.expect("a server"))
}
