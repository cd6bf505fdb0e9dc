//! Guards a transaction of Postgres, with `tokio-postgres`.

use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Error, Transaction};

use super::{GuardError, Stale, sql};
use crate::api::hold::Hold;
use crate::model::claim::Fence;
use crate::model::name::Space;

/// Creates the table `tenure_fences` if it does not exist. Run it once, with your own schema: in Postgres, two
/// sessions that create the same table at the same moment conflict.
pub const SCHEMA: &str = sql::SCHEMA;

/// Admits the transaction, unless a higher fence than `fence` has been seen for `name`.
///
/// Everything that the transaction writes, before or after, is then covered: a later transaction with a lower
/// fence is refused, and a concurrent one waits for the end of this one. That can take long if its client was
/// stopped in the middle; `idle_in_transaction_session_timeout` limits it. At isolation levels above
/// `READ COMMITTED` the waiting transaction fails instead, and should be retried like any transaction there.
/// It takes one round trip and prepares nothing.
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
/// `Stale` if a higher fence has been seen: let the transaction roll back. `Failed` with the error of Postgres or
/// of the connection.
///
/// # Cancel safety
/// If it is dropped before it was polled, nothing was sent. After that, the row may be locked and its fence
/// raised until the transaction ends.
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

/// The error of `tenure.guard` for a hold that has ended. Its detail is the name.
const ENDED: &str = "TE001";
const GUARD: &str = "SELECT tenure.guard(held.name, held.fence, $3) FROM unnest($1::text[], $2::bigint[]) held (name, fence)";

/// Keeps the name from being granted to anyone else until the transaction ends; of a hold of several names, all of them.
/// For holds on the engine `postgres://`, in a transaction of the same database.
///
/// [`guard`] refuses a late writer. This also makes the next holder wait: the name is granted again only after the end of
/// this transaction, so everything that the next holder reads or does comes after it. A transaction that is left open
/// keeps the name taken: set `idle_in_transaction_session_timeout`. Terms of elections and runs of onces are guarded by
/// their `hold()`.
///
/// It is `SELECT tenure.guard('name', fence)`, which any client in any language can call, and takes one round trip. If
/// the transaction is rolled back to a savepoint from before the call, it is as if it had not been called.
///
/// ```
/// # async fn example(mut client: tokio_postgres::Client, hold: &tenure::Hold) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::fencing::postgres;
///
/// let transaction = client.transaction().await?;
/// postgres::hold(&transaction, hold).await?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", &[]).await?;
/// transaction.commit().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Stale` if the hold has ended or is overdue: let the transaction roll back. `Failed` with the error of Postgres or of
/// the connection: 25006 in a `READ ONLY` transaction; above `READ COMMITTED` also 40001 if the hold ended after the
/// transaction began, and TE002 if the hold was granted after that: begin the transaction after the grant.
///
/// # Cancel safety
/// If it is dropped before it was polled, nothing was sent. After that, the name may be kept until the transaction ends.
pub async fn hold(transaction: &Transaction<'_>, hold: &Hold) -> Result<(), GuardError<Error>> {
    let (mut names, mut fences) = (Vec::new(), Vec::new());
    for (name, fence) in hold.fences() {
        // As the engine stores it: Postgres has no character 0.
        names.push(name.replace('\0', "\u{FFFD}"));
        fences.push(sql::offered(fence)?);
    }
    let space = match hold.live().claim.name.space() {
        Space::Lock => "l",
        Space::Election => "e",
        Space::Once => "o",
    };
    let values: [(&(dyn ToSql + Sync), Type); 3] =
        [(&names, Type::TEXT_ARRAY), (&fences, Type::INT8_ARRAY), (&space, Type::TEXT)];
    let Err(error) = transaction.query_typed(GUARD, &values).await else { return Ok(()) };
    let refusal = error.as_db_error().filter(|error| error.code().code() == ENDED);
    let Some(refusal) = refusal else { return Err(GuardError::Failed(error)) };
    let at = names.iter().position(|name| refusal.detail() == Some(name));
    let stale = hold.fences().nth(at.unwrap_or_default());
    let (name, fence) = stale.unwrap_or((hold.name(), hold.fence()));
    Err(GuardError::Stale(Stale::refuse(name, fence, None)))
}
