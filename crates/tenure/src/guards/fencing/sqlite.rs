//! SQLite, by `rusqlite`: a transaction that is guarded.

use rusqlite::{Error, Transaction};

use super::{GuardError, sql};
use crate::model::claim::Fence;

/// Makes the table `tenure_fences`, if it is not there. Run it once, with your own tables.
pub const SCHEMA: &str = sql::SCHEMA;

/// Lets the transaction go on if `fence` is not lower than any that was seen of `name`.
///
/// All that the transaction writes, before or after, then stands or falls with it: whoever comes with
/// a lower fence later is refused, and whoever comes at the same time waits for its end. Begin it as
/// [`Immediate`](rusqlite::TransactionBehavior::Immediate): one that reads before it is guarded can
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
/// `Stale` if a higher fence was seen: let the transaction roll back. `Failed` with what SQLite says.
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
