//! What `doctor` finds on a Postgres server.

use tenure::{Finding, Mark, Tenure};
use tenure_testkit::servers::{Clock, Pgbouncer, Postgres, PostgresBuild};

use crate::postgres_site::*;

/// A server as it should be.
fn fit() -> PostgresBuild {
    let settings = [
        "fsync=on",
        "full_page_writes=on",
        "synchronous_commit=on",
        "idle_in_transaction_session_timeout=30s",
        "tcp_keepalives_idle=30",
        "max_prepared_transactions=5",
    ];
    settings.iter().fold(Postgres::build(), |build, setting| build.setting(setting))
}

async fn examined(url: &str) -> Vec<Finding> {
    soon(Tenure::examine_at(url)).await.unwrap()
}

#[track_caller]
fn says(findings: &[Finding], check: &str, mark: Mark, what: &str) {
    let of: Vec<_> = findings.iter().filter(|finding| finding.check == check).collect();
    assert!(
        of.iter().any(|finding| finding.mark == mark && finding.what.contains(what)),
        "{check} does not say {what:?}, but {of:#?}"
    );
}

fn set(site: &PostgresSite, setting: &str) {
    site.sql(&format!("ALTER SYSTEM SET {setting}"));
    site.sql("SELECT pg_reload_conf()");
}

async fn until_said(url: &str, check: &str, mark: Mark, what: &str) {
    until(&format!("{check} says {what:?}"), async || {
        let found = examined(url).await;
        found.iter().any(|it| it.check == check && it.mark == mark && it.what.contains(what))
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fit_server_passes_every_check() {
    let site = PostgresSite::alone(fit());
    let found = examined(&site.url()).await;
    let bad: Vec<_> = found.iter().filter(|finding| finding.mark != Mark::Good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    for check in
        ["version", "primary", "durability", "idle", "keepalive", "tables", "commit", "old"]
    {
        assert!(found.iter().any(|finding| finding.check == check), "{check}: {found:#?}");
    }
    says(&found, "listeners", Mark::Good, "0 processes");
    says(&found, "clock", Mark::Good, "this machine's");
    // A waiter listens.
    let (one, two) = (site.connect().await, site.connect().await);
    let hold = one.mutex("x").ttl(ms(900)).acquire().await.unwrap();
    let waits = wait_for(&two, "x", secs(30));
    until_said(&site.url(), "listeners", Mark::Good, "1 process listens").await;
    hold.release().await.unwrap();
    served(waits).await.release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn settings_that_cost_locks_are_found() {
    let site = PostgresSite::alone(Postgres::build().setting("autovacuum=off"));
    let found = examined(&site.url()).await;
    says(&found, "durability", Mark::Problem, "fsync is off");
    says(&found, "commit", Mark::Warning, "synchronous_commit is off");
    says(&found, "autovacuum", Mark::Problem, "off");
    says(&found, "idle", Mark::Warning, "is 0");
    says(&found, "keepalive", Mark::Warning, "7200 s");
    set(&site, "synchronous_standby_names = 'nobody'");
    until_said(&site.url(), "commit", Mark::Problem, "no synchronous standby").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_limit_for_open_transactions_counts_for_every_role() {
    let site = PostgresSite::alone(fit());
    let url = site.url();
    says(&examined(&url).await, "idle", Mark::Good, "30000 ms");
    site.sql("CREATE ROLE app LOGIN; ALTER ROLE app SET idle_in_transaction_session_timeout = 0");
    says(&examined(&url).await, "idle", Mark::Warning, "not those of app");
    site.sql("ALTER ROLE app SET idle_in_transaction_session_timeout = 5000");
    says(&examined(&url).await, "idle", Mark::Good, "30000 ms");
    let own = format!("{url}?options=-c%20idle_in_transaction_session_timeout%3D1000");
    says(&examined(&own).await, "idle", Mark::Warning, "because this URL says so");
}

/// An ordinary role does not see when the transactions of others began.
#[tokio::test(flavor = "multi_thread")]
async fn an_old_transaction_of_another_role_is_found_without_rights() {
    let site = PostgresSite::alone(fit());
    site.sql("CREATE ROLE app LOGIN; GRANT USAGE ON SCHEMA tenure, tenure_v1 TO app");
    site.sql("CREATE TABLE burnt (x int)");
    let url = site.url().replace("postgres@", "app@");
    says(&examined(&url).await, "old", Mark::Good, "no old transaction");
    let (client, connection) =
        tokio_postgres::connect(&site.url(), tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let open = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    client.batch_execute(open).await.unwrap();
    let found = examined(&url).await;
    says(&found, "old", Mark::Good, "as far as can be seen");
    let burn = "DO $$ BEGIN FOR i IN 1..110000 LOOP
        BEGIN INSERT INTO burnt VALUES (i); EXCEPTION WHEN division_by_zero THEN NULL; END;
      END LOOP; END $$";
    site.sql(burn);
    says(&examined(&url).await, "old", Mark::Warning, "transactions have begun since");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_keeps_dead_rows_is_found() {
    let clock = Clock::new().unwrap();
    let site = PostgresSite::alone(fit().clock(&clock));
    let url = site.url();
    site.sql("SELECT pg_create_physical_replication_slot('forgotten')");
    says(&examined(&url).await, "old", Mark::Warning, "1 replication slot is not used");
    site.sql("SELECT pg_drop_replication_slot('forgotten')");
    site.sql("BEGIN; CREATE TABLE p (x int); PREPARE TRANSACTION 'p'");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    let open = "SET idle_in_transaction_session_timeout = 0; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1";
    client.batch_execute(open).await.unwrap();
    clock.offset(650_000).unwrap();
    let found = examined(&url).await;
    says(&found, "clock", Mark::Warning, "+6");
    says(&found, "old", Mark::Warning, "has been open for 6");
    client.batch_execute("COMMIT").await.unwrap();
    says(&examined(&url).await, "old", Mark::Warning, "was prepared 6");
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_rows_are_counted() {
    let site = PostgresSite::alone(fit().setting("autovacuum_naptime=1h"));
    site.sql(
        "INSERT INTO tenure.hold (name, fence) SELECT -1, x FROM generate_series(1, 30000) x;
        DELETE FROM tenure.hold",
    );
    until_said(&site.url(), "rows", Mark::Warning, "30000 dead").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_standby_that_may_lag_is_found() {
    let site = PostgresSite::alone(fit());
    let _standby = fit().start_standby_of(site.server()).unwrap();
    until_said(&site.url(), "commit", Mark::Warning, "1 standby, which may lag").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pooler_is_found() {
    let site = PostgresSite::alone(fit());
    let pooler = Pgbouncer::start(site.server()).unwrap();
    let url = pooler.url(site.database());
    until_said(&url, "pooler", Mark::Problem, "a pooler in transaction mode").await;
}
