//! A guard inside a transaction.

use rusqlite::Connection;
use rusqlite::TransactionBehavior::{Deferred, Immediate};
use tenure::Fence;
use tenure::fencing::GuardError;
use tenure::fencing::sqlite::{SCHEMA, guard};
use tenure_testkit::servers::Folder;

fn fence(number: u64) -> Fence {
    Fence::new(number)
}

type Guarded = Result<(), GuardError<rusqlite::Error>>;

/// The errors of the writes pass through the same `?`.
fn pay(database: &mut Connection, fence: Fence, amount: i64) -> Guarded {
    let transaction = database.transaction_with_behavior(Immediate)?;
    transaction.execute("UPDATE account SET balance = balance - ?1", [amount])?;
    guard(&transaction, "account", fence)?;
    Ok(transaction.commit()?)
}

fn balance(database: &Connection) -> i64 {
    database.query_row("SELECT balance FROM account", [], |row| row.get(0)).unwrap()
}

fn bank(folder: &Folder) -> Connection {
    let database = Connection::open(folder.path().join("bank.db")).unwrap();
    let wal = "PRAGMA journal_mode = wal; CREATE TABLE IF NOT EXISTS account (balance INT)";
    database.execute_batch(wal).unwrap();
    // Doing this twice does no harm.
    database.execute_batch(SCHEMA).unwrap();
    database.execute_batch(SCHEMA).unwrap();
    database
}

#[test]
fn all_of_a_transaction_stands_or_falls_with_its_fence() {
    let folder = Folder::new("fq").unwrap();
    let mut database = bank(&folder);
    database.execute("INSERT INTO account VALUES (100)", []).unwrap();
    pay(&mut database, fence(7), 10).unwrap();
    let late = pay(&mut database, fence(6), 50).unwrap_err();
    assert!(matches!(late, GuardError::Stale(stale) if stale.seen == Some(fence(7))));
    assert_eq!(balance(&database), 90, "what was written before the guard is undone");
    // A fence that was not committed does not count.
    let transaction = database.transaction().unwrap();
    guard(&transaction, "account", fence(9)).unwrap();
    drop(transaction);
    pay(&mut database, fence(8), 10).unwrap();
    assert!(matches!(pay(&mut database, fence(0), 1), Err(GuardError::NoFence(_))));
    assert!(matches!(pay(&mut database, fence(1 << 53), 1), Err(GuardError::NoFence(_))));
    assert_eq!(balance(&database), 80);
}

/// A reader that wants to write finds that its data is old, and is refused.
#[test]
fn a_transaction_that_read_before_another_wrote_is_busy() {
    let folder = Folder::new("fq").unwrap();
    let (mut one, mut two) = (bank(&folder), bank(&folder));
    one.execute("INSERT INTO account VALUES (100)", []).unwrap();
    let transaction = one.transaction_with_behavior(Deferred).unwrap();
    assert_eq!(balance(&transaction), 100);
    pay(&mut two, fence(7), 10).unwrap();
    let error = guard(&transaction, "account", fence(8)).unwrap_err();
    assert!(matches!(error, GuardError::Failed(_)), "{error}");
}
