//! Makes the tables and functions, and says which version is there.

use std::future::Future;
use std::sync::Arc;

use tokio::sync::oneshot;

use super::Postgres;
use super::config::PostgresConfig;
use super::errors::fault;
use super::link::Session;
use super::shared::Shared;
use super::tls::Tls;
use crate::model::error::{Error, ErrorKind, Result};

/// The version of the tables. Functions have the version in the name of their schema.
pub(super) const LAYOUT: i32 = 1;

const LAYOUT_SQL: &str = include_str!("sql/layout.sql");
const FUNCTIONS: [&str; 3] =
    [include_str!("sql/line.sql"), include_str!("sql/steps.sql"), include_str!("sql/guard.sql")];

impl Postgres {
    /// Makes the tables and functions in the database, or brings them up to date. Safe to run at any time, and several
    /// times.
    ///
    /// # Cancel safety
    /// Safe: it is one transaction.
    pub async fn set_up(config: PostgresConfig) -> Result<()> {
        let set_up = |shared: Arc<Shared>| async move { run(&shared.config, &shared.tls).await };
        Postgres::alone(config, set_up).await
    }

    /// The SQL that [`set_up`](Postgres::set_up) runs, for those who review it first.
    pub fn setup_sql() -> String {
        script()
    }

    /// Does something over a connection of its own, on the thread of the connections.
    pub(super) async fn alone<T: Send + 'static, F: Future<Output = Result<T>> + Send + 'static>(
        config: PostgresConfig,
        work: impl FnOnce(Arc<Shared>) -> F,
    ) -> Result<T> {
        let (shared, _) = Shared::start(config)?;
        let (tell, told) = oneshot::channel();
        let work = work(shared.clone());
        shared.spawn(async move {
            let _ = tell.send(work.await);
        });
        let done = told.await.unwrap_or_else(|_| Err(Error::closed()));
        shared.close();
        done
    }
}

/// Everything that `tenure setup` runs, in one transaction. Running it again changes nothing.
pub(super) fn script() -> String {
    let functions = FUNCTIONS.concat();
    // Programs of another version may be using the functions: they are made again only if they differ.
    let mark = fingerprint(&functions);
    format!(
        "BEGIN;\n\
         -- Whoever may create objects elsewhere must not decide what the names below mean.\n\
         SET LOCAL search_path = pg_catalog, pg_temp;\n\
         -- One at a time.\n\
         SELECT pg_advisory_xact_lock(8386940123861233);\n\
         SET LOCAL client_min_messages = warning;\n\
         {LAYOUT_SQL}\n\
         INSERT INTO tenure.layout SELECT {LAYOUT} WHERE NOT EXISTS (SELECT FROM tenure.layout);\n\
         DO $setup$ DECLARE\n\
           may_use oid[] := ARRAY(SELECT a.grantee FROM pg_namespace n, aclexplode(n.nspacl) a\n\
             WHERE n.nspname = 'tenure_v1' AND a.privilege_type = 'USAGE' AND a.grantee <> n.nspowner);\n\
           role oid;\n\
         BEGIN\n\
         IF (SELECT max(version) FROM tenure.layout) > {LAYOUT} THEN\n\
           RAISE EXCEPTION 'the tables are of a newer version of tenure' USING ERRCODE = '0A000';\n\
         END IF;\n\
         IF coalesce(obj_description(to_regnamespace('tenure_v1'), 'pg_namespace'), '') = '{mark}' THEN RETURN; END IF;\n\
         DROP SCHEMA IF EXISTS tenure_v1 CASCADE;\n\
         {functions}\n\
         COMMENT ON SCHEMA tenure_v1 IS '{mark}';\n\
         -- Whoever could use the functions still can.\n\
         FOREACH role IN ARRAY may_use LOOP\n\
           EXECUTE 'GRANT USAGE ON SCHEMA tenure_v1 TO '\n\
             || CASE role WHEN 0 THEN 'PUBLIC' ELSE role::regrole::text END;\n\
         END LOOP;\n\
         END $setup$;\n\
         COMMIT;\n"
    )
}

fn fingerprint(text: &str) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(text.as_bytes());
    let hex: String = hash.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
    format!("functions of tenure, {hex}")
}

/// Makes tables and functions, if they are not there.
pub(super) async fn run(config: &PostgresConfig, tls: &Tls) -> Result<()> {
    let session = Session::connect(&config.server, tls, None).await?;
    session.client.batch_execute(&script()).await.map_err(|error| {
        if let Some(refused) = error.as_db_error()
            && refused.code().code() == "0A000"
        {
            return Error::new(ErrorKind::Unsupported, refused.message().to_owned())
                .next("use a newer version of tenure");
        }
        let text = error.as_db_error().map_or_else(String::new, |error| error.to_string());
        match fault(&error).error {
            error if error.kind() == ErrorKind::Internal => {
                Error::new(ErrorKind::Internal, format!("setting up failed: {text}"))
            }
            error => error,
        }
    })
}
