//! Guards a transaction of SQLite, with `rusqlite`.

use rusqlite::{Error, Transaction};

use super::{GuardError, sql};
use crate::model::claim::Fence;

/// Creates the table `tenure_fences` if it does not exist. Run it once, with your own schema.
pub const SCHEMA: &str = sql::SCHEMA;

/// Admits the transaction, unless a higher fence than `fence` has been seen for `name`.
///
/// Everything that the transaction writes, before or after, is then covered: a later transaction with a lower
/// fence is refused, and a concurrent one waits for the end of this one. Begin it as
/// [`Immediate`](rusqlite::TransactionBehavior::Immediate): a transaction that reads before it is guarded may
/// find that another has written since, and fails as busy.
///
/// ```
/// # fn example(mut database: rusqlite::Connection, hold: &tenure::Hold) -> Result<(), Box<dyn std::error::Error>> {
/// use rusqlite::TransactionBehavior::Immediate;
/// use tenure::fencing::sqlite;
///
/// database.execute_batch(sqlite::SCHEMA)?; // once
///
/// let transaction = database.transaction_with_behavior(Immediate)?;
/// sqlite::guard(&transaction, hold.name(), hold.fence())?;
/// transaction.execute("UPDATE account SET balance = balance - 10 WHERE id = 1", [])?;
/// transaction.commit()?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Stale` if a higher fence has been seen: let the transaction roll back. `Failed` with the error of SQLite.
pub fn guard(
    transaction: &Transaction<'_>,
    name: &str,
    fence: Fence,
) -> Result<(), GuardError<Error>> {
    let offered = sql::offered(fence)?;
    let mut raise = transaction.prepare_cached(sql::RAISE)?;
    let highest = raise.query_row((name, offered), |row| row.get(0))?;
    sql::judge(name, fence, highest)
}
