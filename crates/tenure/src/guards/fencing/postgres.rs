//! Postgres, by `tokio-postgres`: a transaction that is guarded.

use tokio_postgres::types::Type;
use tokio_postgres::{Error, Transaction};

use super::{GuardError, sql};
use crate::model::claim::Fence;

/// Makes the table `tenure_fences`, if it is not there. Run it once, with your own tables: two that
/// make the same table at the same moment are in each other's way.
pub const SCHEMA: &str = sql::SCHEMA;

/// Lets the transaction go on if `fence` is not lower than any that was seen of `name`.
///
/// All that the transaction writes, before or after, then stands or falls with it: whoever comes with
/// a lower fence later is refused, and whoever comes at the same time waits for its end, which can be
/// long if its client was stopped in the middle: `idle_in_transaction_session_timeout` bounds that. At
/// the isolation levels above `READ COMMITTED` the one that waited fails instead, and is to be tried
/// again like any transaction there. It is one round trip, with nothing prepared.
///
/// ```
/// # async fn example(mut client: tokio_postgres::Client, hold: &tenure::Hold) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::fencing::postgres;
///
/// client.batch_execute(postgres::SCHEMA).await?; // once
///
/// let transaction = client.transaction().await?;
/// postgres::guard(&transaction, hold.name(), hold.fence()).await?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Stale` if a higher fence was seen: let the transaction roll back. `Failed` with what Postgres or
/// the connection says.
///
/// # Cancel safety
/// Dropped before it was polled, nothing was sent. After that the row may be locked and its fence
/// raised, until the transaction ends.
pub async fn guard(
    transaction: &Transaction<'_>,
    name: &str,
    fence: Fence,
) -> Result<(), GuardError<Error>> {
    let offered = sql::offered(fence)?;
    let raise = transaction
        .query_typed_one(sql::RAISE, &[(&name, Type::TEXT), (&offered, Type::INT8)])
        .await?;
    sql::judge(name, fence, raise.try_get(0)?)
}
