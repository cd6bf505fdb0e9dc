//! Hand-written locks.

use tokio_postgres::{Client, Statement};

/// Their tables.
pub(super) const TABLES: &str = "
    CREATE TABLE lock (name text PRIMARY KEY, fence bigint NOT NULL);
    CREATE TABLE counter (n bigint NOT NULL);
    INSERT INTO counter VALUES (0);
    CREATE TABLE shedlock (name text PRIMARY KEY, lock_until timestamp NOT NULL, locked_at timestamp NOT NULL,
      locked_by text NOT NULL);
    CREATE TABLE row_lock (name text PRIMARY KEY);
    INSERT INTO row_lock SELECT 'n' || x FROM generate_series(0, 63) x;
    CREATE TABLE step (id int PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 50);
    INSERT INTO step SELECT x, 0 FROM generate_series(0, 63) x;
    CREATE FUNCTION step_and_notify(p_id int, p_channel text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
      UPDATE step SET n = n + 1 WHERE id = p_id; PERFORM pg_notify(p_channel, ''); END $$;
    CREATE FUNCTION step_alone(p_id int) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
      UPDATE step SET n = n + 1 WHERE id = p_id; END $$;
    CREATE FUNCTION notify_alone(p_channel text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
      PERFORM set_config('synchronous_commit', 'off', true); PERFORM pg_notify(p_channel, ''); END $$";

#[derive(Clone, Copy, PartialEq)]
pub(super) enum Kind {
    /// Inserts a row with a number from a counter, and deletes it.
    TwoStatements,
    /// `pg_advisory_lock` of a session: it stores nothing, and ends with the session.
    Advisory,
    /// Locks a row in a separate transaction; a client that does not get the lock would have to try again.
    RowLock,
    /// The statements of ShedLock with the time of the database, as its documentation describes them.
    ShedLock,
}

impl Kind {
    pub(super) const ALL: [Kind; 4] =
        [Kind::TwoStatements, Kind::Advisory, Kind::RowLock, Kind::ShedLock];

    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::TwoStatements => "two statements",
            Kind::Advisory => "advisory lock",
            Kind::RowLock => "SKIP LOCKED",
            Kind::ShedLock => "ShedLock",
        }
    }

    /// The statements that acquire and release.
    fn statements(self) -> [&'static str; 2] {
        match self {
            Kind::TwoStatements => [
                "WITH next AS (UPDATE counter SET n = n + 1 RETURNING n)
                 INSERT INTO lock SELECT $1, n FROM next ON CONFLICT DO NOTHING RETURNING fence",
                "DELETE FROM lock WHERE name = $1",
            ],
            Kind::Advisory => [
                "SELECT pg_advisory_lock(hashtextextended($1, 0))",
                "SELECT pg_advisory_unlock(hashtextextended($1, 0))",
            ],
            Kind::RowLock => [
                "SELECT name FROM row_lock WHERE name = $1 FOR UPDATE SKIP LOCKED",
                "SELECT $1::text",
            ],
            Kind::ShedLock => [
                "INSERT INTO shedlock VALUES ($1, timezone('utc', now()) + '30 s', timezone('utc', now()), 'bench')
                 ON CONFLICT (name) DO UPDATE SET lock_until = timezone('utc', now()) + '30 s',
                   locked_at = timezone('utc', now()), locked_by = 'bench'
                 WHERE shedlock.lock_until <= timezone('utc', now())",
                "UPDATE shedlock SET lock_until = timezone('utc', now()) WHERE name = $1 AND locked_by = 'bench'",
            ],
        }
    }
}

/// A connection with prepared statements.
pub(super) struct ByHand {
    client: Client,
    kind: Kind,
    take: Statement,
    give: Statement,
}

impl ByHand {
    pub(super) async fn new(client: Client, kind: Kind) -> ByHand {
        let [take, give] = kind.statements();
        let take = client.prepare(take).await.expect("a statement");
        let give = client.prepare(give).await.expect("a statement");
        ByHand { client, kind, take, give }
    }

    /// Acquires the lock and releases it.
    pub(super) async fn pair(&mut self, name: &str) {
        if self.kind == Kind::RowLock {
            let transaction = self.client.transaction().await.expect("a transaction");
            let rows = transaction.query(&self.take, &[&name]).await.expect("a row");
            assert_eq!(rows.len(), 1, "nobody else has it");
            transaction.commit().await.expect("a commit");
            return;
        }
        self.client.query(&self.take, &[&name]).await.expect("it is taken");
        self.client.query(&self.give, &[&name]).await.expect("it is given back");
    }
}
