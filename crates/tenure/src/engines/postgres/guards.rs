//! Transactions that keep holds from ending: see `sql/guard.sql`.

use std::sync::Arc;

use super::Postgres;
use super::config::PostgresConfig;
use super::errors::fault;
use super::link::{Session, query};
use super::shared::Shared;
use super::statements::Statement;
use crate::model::claim::Fence;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;

impl Postgres {
    /// Ends the sessions whose transactions keep the hold with this fence from ending, after `tenure.guard`, and returns
    /// how many these were. The role needs to be the one of the session, or a member of `pg_signal_backend`.
    ///
    /// # Errors
    /// `Denied` if the role may not; `Unsupported` for a prepared transaction, which has no session.
    ///
    /// # Cancel safety
    /// Safe: it is one statement, which may still be carried out.
    pub async fn end_guards(config: PostgresConfig, name: &Name, fence: Fence) -> Result<u64> {
        let name = name.clone();
        let ended = move |shared: Arc<Shared>| async move { end(&shared, &name, fence).await };
        Postgres::alone(config, ended).await
    }
}

/// Ends the sessions that guard a hold, and returns how many these were.
async fn end(shared: &Shared, name: &Name, fence: Fence) -> Result<u64> {
    let session = Session::connect(&shared.config.server, &shared.tls, None).await?;
    let rows = query(&session.client, &Statement::end_guards(name, fence)).await;
    let rows = rows.map_err(|error| match error.code().map(|code| code.code()) {
        Some("42501") => {
            Error::new(ErrorKind::Denied, "this role may not end the session of another")
                .next("use the role of that session, or one with pg_signal_backend")
        }
        _ => fault(&error).error,
    })?;
    let ended = rows.iter().filter(|row| row.try_get(0).unwrap_or(false)).count();
    let is_prepared =
        |row: &tokio_postgres::Row| matches!(row.try_get::<_, Option<bool>>(0), Ok(None));
    if rows.iter().any(is_prepared) {
        let what = "a prepared transaction keeps the hold, and has no session";
        let next = "see pg_prepared_xacts, and end it with ROLLBACK PREPARED";
        return Err(Error::new(ErrorKind::Unsupported, what).next(next));
    }
    Ok(ended as u64)
}
