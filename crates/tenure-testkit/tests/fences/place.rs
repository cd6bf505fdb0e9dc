//! Something that a text is written to, guarded, by any process that knows where it is.

use std::path::PathBuf;

use rusqlite::TransactionBehavior::Immediate;
use tenure::Fence;
use tenure::fencing::{self, GuardError, Stale};
use tenure_testkit::servers::Postgres;
use tokio_postgres::NoTls;

use crate::fences::site;
use crate::file_site::secs;

/// The name that is guarded, and held.
pub(crate) const NAME: &str = "report";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    File,
    Http,
    Postgres,
    /// With the fence in a column of the table that is written.
    PostgresColumn,
    Redis,
    Sqlite,
    SqliteColumn,
}

const KINDS: [Kind; 7] = [
    Kind::File,
    Kind::Http,
    Kind::Postgres,
    Kind::PostgresColumn,
    Kind::Redis,
    Kind::Sqlite,
    Kind::SqliteColumn,
];

#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) kind: Kind,
    /// A path, a port or how clients connect.
    pub(crate) at: String,
}

const TABLE: &str = "CREATE TABLE report (id BIGINT PRIMARY KEY, text TEXT, fence BIGINT);
    INSERT INTO report VALUES (1, '', 0);";
const WRITE: &str = "UPDATE report SET text = $1 WHERE id = 1";
const WRITE_COLUMN: &str = "UPDATE report SET text = $1, fence = $2 WHERE id = 1 AND fence <= $2";
const READ: &str = "SELECT text FROM report WHERE id = 1";

impl Place {
    pub(crate) fn new(kind: Kind, at: impl ToString) -> Place {
        Place { kind, at: at.to_string() }
    }

    pub(crate) fn sqlite(kind: Kind, path: &std::path::Path) -> Place {
        let place = Place::new(kind, path.display());
        let database = place.open();
        database.execute_batch(TABLE).unwrap();
        database.execute_batch(fencing::sqlite::SCHEMA).unwrap();
        place
    }

    pub(crate) async fn postgres(kind: Kind, server: &Postgres) -> Place {
        let place = Place::new(kind, server.config());
        let client = connect(&place.at).await;
        client.batch_execute(TABLE).await.unwrap();
        client.batch_execute(fencing::postgres::SCHEMA).await.unwrap();
        place
    }

    /// In one line, for another process.
    pub(crate) fn line(&self) -> String {
        format!("{:?}\t{}", self.kind, self.at)
    }

    pub(crate) fn from_line(line: &str) -> Place {
        let (kind, at) = line.split_once('\t').unwrap();
        let kind = KINDS.into_iter().find(|it| format!("{it:?}") == kind).unwrap();
        Place::new(kind, at)
    }

    fn open(&self) -> rusqlite::Connection {
        let database = rusqlite::Connection::open(&self.at).unwrap();
        database.busy_timeout(secs(30)).unwrap();
        database
    }

    /// Writes the text, unless it comes too late.
    pub(crate) async fn write(&self, fence: Fence, text: &str) -> Result<(), Stale> {
        let number = i64::try_from(fence.get()).unwrap();
        match self.kind {
            Kind::File => {
                let (path, text) = (PathBuf::from(&self.at), text.to_owned());
                let write = move || fencing::file::write(path, fence, text);
                stale(tokio::task::spawn_blocking(write).await.unwrap())
            }
            Kind::Http => match site::put(&self.at, NAME, fence.get(), text).await {
                answer if answer.status == 200 => Ok(()),
                answer => Err(site::stale(&answer)),
            },
            Kind::Redis => {
                let mut set = redis::cmd("SET");
                set.arg(NAME).arg(text);
                let mut connection = self.redis().await;
                stale(fencing::redis::write::<()>(&mut connection, NAME, fence, &set).await)
            }
            Kind::Sqlite => {
                let mut database = self.open();
                let transaction = database.transaction_with_behavior(Immediate).unwrap();
                stale(fencing::sqlite::guard(&transaction, NAME, fence))?;
                transaction.execute(WRITE, [text]).unwrap();
                transaction.commit().unwrap();
                Ok(())
            }
            Kind::SqliteColumn => {
                let rows = self.open().execute(WRITE_COLUMN, (text, number)).unwrap();
                fencing::changed(rows as u64, NAME, fence)
            }
            Kind::Postgres => {
                let mut client = connect(&self.at).await;
                let transaction = client.transaction().await.unwrap();
                stale(fencing::postgres::guard(&transaction, NAME, fence).await)?;
                transaction.execute(WRITE, &[&text]).await.unwrap();
                transaction.commit().await.unwrap();
                Ok(())
            }
            Kind::PostgresColumn => {
                let client = connect(&self.at).await;
                let rows = client.execute(WRITE_COLUMN, &[&text, &number]).await.unwrap();
                fencing::changed(rows, NAME, fence)
            }
        }
    }

    /// The current contents.
    pub(crate) async fn read(&self) -> String {
        match self.kind {
            Kind::File => std::fs::read_to_string(&self.at).unwrap_or_default(),
            Kind::Http => site::get(&self.at).await.body,
            Kind::Redis => {
                let read: Option<String> =
                    redis::cmd("GET").arg(NAME).query_async(&mut self.redis().await).await.unwrap();
                read.unwrap_or_default()
            }
            Kind::Sqlite | Kind::SqliteColumn => {
                self.open().query_row(READ, [], |row| row.get(0)).unwrap()
            }
            Kind::Postgres | Kind::PostgresColumn => {
                connect(&self.at).await.query_one(READ, &[]).await.unwrap().get(0)
            }
        }
    }

    async fn redis(&self) -> redis::aio::MultiplexedConnection {
        let client = redis::Client::open(self.at.as_str()).unwrap();
        client.get_multiplexed_async_connection().await.unwrap()
    }
}

/// Nothing but lateness is expected.
fn stale<E: std::fmt::Display>(written: Result<(), GuardError<E>>) -> Result<(), Stale> {
    match written {
        Ok(()) => Ok(()),
        Err(GuardError::Stale(stale)) => Err(stale),
        Err(other) => panic!("{other}"),
    }
}

pub(crate) async fn connect(config: &str) -> tokio_postgres::Client {
    let (client, connection) = tokio_postgres::connect(config, NoTls).await.unwrap();
    tokio::spawn(connection);
    client
}
