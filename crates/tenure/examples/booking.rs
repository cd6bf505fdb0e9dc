//! A table that is booked once, however many guests ask at the same moment.
//!
//! ```console
//! $ cargo run -p tenure --example booking --features fence-sqlite
//! ```
//!
//! Whoever finds the table being booked hears 409 at once; an engine that is down is 503, for a
//! booking and for `/health`; and a booking that comes after its hold has ended is refused by the
//! database. `TENURE_URL` names an engine that several instances share.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::StatusCode;
use rusqlite::{Connection, TransactionBehavior::Immediate};
use tenure::{Hold, Tenure, fencing::GuardError, fencing::sqlite};

type Failure = Box<dyn std::error::Error + Send + Sync>;

/// The handlers of a service: each is an axum handler but for the extractors.
#[derive(Clone)]
struct Shop {
    tenure: Tenure,
    database: Arc<Mutex<Connection>>,
}

impl Shop {
    async fn health(&self) -> StatusCode {
        match self.tenure.health().await {
            Ok(_) => StatusCode::OK,
            Err(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    async fn book(&self, table: u32, guest: &str) -> StatusCode {
        let asked = self.tenure.mutex(format!("table:{table}")).ttl(Duration::from_secs(5));
        let hold = match asked.reason(format!("books for {guest}")).try_acquire().await {
            Ok(Some(hold)) => hold,
            Ok(None) => return StatusCode::CONFLICT,
            // Never as if it were free.
            Err(_) => return StatusCode::SERVICE_UNAVAILABLE,
        };
        // Asking the bank, say.
        tokio::time::sleep(Duration::from_millis(300)).await;
        self.write(&hold, table, guest).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
        // The hold is released here, whatever happened.
    }

    /// The row stands or falls with the fence.
    fn write(&self, hold: &Hold, table: u32, guest: &str) -> rusqlite::Result<StatusCode> {
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = database.transaction_with_behavior(Immediate)?;
        match sqlite::guard(&transaction, hold.name(), hold.fence()) {
            Ok(()) => {}
            Err(GuardError::Failed(error)) => return Err(error),
            Err(stale) => {
                println!("refused: {stale}");
                return Ok(StatusCode::PRECONDITION_FAILED);
            }
        }
        let insert = "INSERT OR IGNORE INTO booking VALUES (?1, ?2, ?3)";
        let rows = transaction.execute(insert, (table, guest, hold.fence().get() as i64))?;
        transaction.commit()?;
        Ok(if rows == 1 { StatusCode::CREATED } else { StatusCode::CONFLICT })
    }
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let database = Connection::open_in_memory()?;
    database.execute_batch(sqlite::SCHEMA)?;
    let table = "CREATE TABLE booking (seat INTEGER PRIMARY KEY, guest TEXT, fence INTEGER) STRICT";
    database.execute_batch(table)?;
    let shop = Shop { tenure: Tenure::from_env().await?, database: Arc::new(Mutex::new(database)) };

    let health = shop.health().await;
    let (ann, bob) = tokio::join!(shop.book(12, "Ann"), shop.book(12, "Bob"));
    println!("health {health}; table 12: Ann {ann}, Bob {bob}");

    // Somebody who is stopped for longer than the hold lasts, and then goes on as if nothing were.
    let paused =
        shop.tenure.mutex("table:7").ttl(Duration::from_millis(100)).renew(false).acquire().await?;
    let reason = paused.lost().await;
    // A loss is told before anyone else can have the table; this is when one can.
    shop.tenure.mutex("table:7").acquire().await?.release().await?;
    let (cleo, dan) = (shop.book(7, "Cleo").await, shop.write(&paused, 7, "Dan")?);
    println!("table 7: Dan's hold was lost ({reason}); Cleo {cleo}, Dan {dan}");

    let mut both = [ann, bob];
    both.sort();
    let kept = health == StatusCode::OK
        && both == [StatusCode::CREATED, StatusCode::CONFLICT]
        && (cleo, dan) == (StatusCode::CREATED, StatusCode::PRECONDITION_FAILED);
    shop.tenure.close().await;
    if kept { Ok(()) } else { Err("a table was booked twice, or not at all".into()) }
}
