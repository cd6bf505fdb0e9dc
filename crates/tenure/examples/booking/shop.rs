//! A booking: the lock of its table, the payment, and a row that is guarded by the fence.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior::Immediate};
use serde::Deserialize;
use tenure::fencing::{GuardError, sqlite};
use tenure::{Error, Fence, Tenure};
use tracing::{info, warn};

use crate::Failure;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS booking (
        seat INTEGER, time TEXT, guest TEXT NOT NULL, fence INTEGER NOT NULL,
        PRIMARY KEY (seat, time)
    ) STRICT";

/// A guest's order.
#[derive(Clone, Deserialize, Debug)]
pub(crate) struct Order {
    pub(crate) table: u32,
    pub(crate) time: String,
    pub(crate) guest: String,
}

impl Order {
    pub(crate) fn new(table: u32, time: &str, guest: &str) -> Order {
        Order { table, time: time.into(), guest: guest.into() }
    }

    /// The name of the lock.
    pub(crate) fn name(&self) -> String {
        format!("table:{}", self.table)
    }
}

/// The result of an order.
#[derive(Debug)]
pub(crate) enum Booked {
    Yes,
    /// The place is booked.
    Taken,
    /// Another guest is booking a place at this table.
    Busy,
    /// Our hold had ended before the row was written; the database refused it.
    TooLate,
    /// The engine did not answer. The table must not count as free.
    NoEngine(Error),
    NoDatabase(rusqlite::Error),
}

#[derive(Clone)]
pub(crate) struct Shop {
    pub(crate) tenure: Tenure,
    pub(crate) database: Arc<Mutex<Connection>>,
}

impl Shop {
    /// Bookings in this file, or in memory.
    pub(crate) fn open(tenure: Tenure, file: Option<&str>) -> Result<Shop, Failure> {
        let database = match file {
            Some(file) => Connection::open(file)?,
            None => Connection::open_in_memory()?,
        };
        database.busy_timeout(Duration::from_secs(5))?;
        database.execute_batch(sqlite::SCHEMA)?;
        database.execute_batch(TABLES)?;
        Ok(Shop { tenure, database: Arc::new(Mutex::new(database)) })
    }

    /// Books it, unless it is booked or being booked. The request's id is in every line of the log.
    pub(crate) async fn book(&self, order: &Order, request: &str) -> Booked {
        let lock = self.tenure.mutex(order.name()).meta("request", request);
        let hold = match lock.try_acquire().await {
            Ok(Some(hold)) => hold,
            Ok(None) => return Booked::Busy,
            Err(error) => return Booked::NoEngine(error),
        };
        // The hold is released in any case: also after a panic, or when the guest disconnects.
        tokio::time::sleep(Duration::from_millis(300)).await; // asking the bank, say
        let (shop, name, fence) = (self.clone(), order.name(), hold.fence());
        let (written, request) = (order.clone(), request.to_owned());
        let write = move || shop.write(&name, fence, &written, &request);
        let booked = match tokio::task::spawn_blocking(write).await {
            Ok(booked) => booked,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        };
        // If the hold had ended before, the log has a warning; the row was guarded by its fence.
        let _ = hold.release().await;
        booked.unwrap_or_else(Booked::NoDatabase)
    }

    /// Writes the row if no later holder has written, and the place is free.
    pub(crate) fn write(
        &self,
        name: &str,
        fence: Fence,
        order: &Order,
        request: &str,
    ) -> rusqlite::Result<Booked> {
        let Order { table, time, guest } = order;
        let mut database = self.database.lock().unwrap_or_else(PoisonError::into_inner);
        let transaction = database.transaction_with_behavior(Immediate)?;
        match sqlite::guard(&transaction, name, fence) {
            Ok(()) => {}
            Err(GuardError::Failed(error)) => return Err(error),
            Err(stale) => {
                warn!(request, "the database refuses a booking: {stale}");
                return Ok(Booked::TooLate);
            }
        }
        let insert = "INSERT OR IGNORE INTO booking VALUES (?1, ?2, ?3, ?4)";
        let rows = transaction.execute(insert, (table, time, guest, fence.get() as i64))?;
        transaction.commit()?;
        info!(request, table, time, rows, "wrote the booking");
        Ok(if rows == 1 { Booked::Yes } else { Booked::Taken })
    }
}
