//! A separate database on a Postgres server that tests share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tenure::engines::postgres::Postgres as Engine;

use super::{Postgres, PostgresBuild, ServerError};

/// A database with tenure's tables, for one test. Its server ends with the last of its databases.
#[derive(Debug)]
pub struct PostgresDatabase {
    /// The server, which others may be using.
    pub server: Arc<Postgres>,
    /// The name of the database.
    pub name: String,
}

impl PostgresDatabase {
    /// A database on the server that concurrent tests share.
    pub fn start() -> Result<PostgresDatabase, ServerError> {
        static COUNT: AtomicU64 = AtomicU64::new(0);
        let server = shared()?;
        let name = format!("t{}", COUNT.fetch_add(1, Ordering::Relaxed));
        // Copying a database that has the tables is faster than creating them.
        server.sql("postgres", &format!("CREATE DATABASE {name} TEMPLATE made"))?;
        Ok(PostgresDatabase { server, name })
    }

    /// The only database of a server, for a test that may kill the server.
    pub fn alone(build: PostgresBuild) -> Result<PostgresDatabase, ServerError> {
        let server = Arc::new(build.start()?);
        server.sql("postgres", &Engine::setup_sql())?;
        Ok(PostgresDatabase { server, name: "postgres".to_owned() })
    }

    /// Its URL for clients.
    #[must_use]
    pub fn url(&self) -> String {
        self.server.url(&self.name)
    }

    /// Runs SQL in it: see [`Postgres::sql`].
    pub fn sql(&self, sql: &str) -> Result<String, ServerError> {
        self.server.sql(&self.name, sql)
    }
}

fn shared() -> Result<Arc<Postgres>, ServerError> {
    static SHARED: Mutex<Weak<Postgres>> = Mutex::new(Weak::new());
    let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(server) = shared.upgrade() {
        return Ok(server);
    }
    let server = Arc::new(Postgres::start()?);
    server.sql("postgres", "CREATE DATABASE made")?;
    server.sql("made", &Engine::setup_sql())?;
    *shared = Arc::downgrade(&server);
    Ok(server)
}
