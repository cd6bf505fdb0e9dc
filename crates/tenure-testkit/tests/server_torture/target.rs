//! The servers that a run can use, and what can go wrong with each of them.

use std::time::Duration;

use tenure_testkit::servers::{
    Clock, Fsync, Postgres, PostgresDatabase, PostgresVersion, Redis, ServerError,
};

/// Longer than anything about a name is remembered.
const FORGOTTEN: Duration = Duration::from_secs(180);

/// A server that keeps locks.
pub(crate) trait Target {
    /// The name of the run.
    fn name(&self) -> &'static str;
    fn longest_ttl(&self) -> Duration;
    fn port(&self) -> u16;
    /// The URL for clients, with the server's own port or that of a proxy.
    fn url(&self, port: u16) -> String;
    /// Kills it and starts it again, after a pause.
    fn restart(&self, pause: Duration) -> Result<(), ServerError>;
    fn pause(&self) -> Result<(), ServerError>;
    fn resume(&self) -> Result<(), ServerError>;
    /// Someone else does something that the programs have to cope with.
    fn disturb(&self, number: u64) -> bool;
    /// Ends the connections that only send requests.
    fn cut_askers(&self) -> bool;
    /// Ends the connections that receive turns.
    fn cut_listeners(&self) -> bool;
    fn log(&self) -> String;
    /// Panics if anything is left once everything can be forgotten.
    fn nothing_is_left(&self);
}

/// What Redis knows after it is started again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Memory {
    /// Everything that it has acknowledged.
    Kept,
    /// Nothing, so nothing is granted until every earlier hold may have ended.
    Lost,
}

pub(crate) struct OnRedis {
    memory: Memory,
    server: Redis,
    clock: Clock,
}

impl OnRedis {
    pub(crate) fn start(memory: Memory) -> OnRedis {
        let clock = Clock::new().expect("a clock");
        let build = Redis::build().clock(&clock);
        let build = match memory {
            Memory::Kept => build.aof(Fsync::Always),
            Memory::Lost => build,
        };
        OnRedis { memory, server: build.start().expect("a server"), clock }
    }

    fn command(&self, words: &[&str]) -> bool {
        // The answer may be cut off by the command itself.
        self.server.command(words).is_ok() || words[0] == "CLIENT"
    }
}

impl Target for OnRedis {
    fn name(&self) -> &'static str {
        match self.memory {
            Memory::Kept => "redis-kept",
            Memory::Lost => "redis-lost",
        }
    }

    fn longest_ttl(&self) -> Duration {
        match self.memory {
            Memory::Kept => Duration::from_secs(60),
            Memory::Lost => Duration::from_millis(1_200),
        }
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn url(&self, port: u16) -> String {
        match self.memory {
            Memory::Kept => format!("redis://127.0.0.1:{port}"),
            Memory::Lost => {
                let longest = self.longest_ttl().as_millis();
                format!("redis://127.0.0.1:{port}?after_restart=wait&max_ttl={longest}ms&ttl=1s")
            }
        }
    }

    fn restart(&self, pause: Duration) -> Result<(), ServerError> {
        self.server.kill()?;
        std::thread::sleep(pause);
        self.server.restart()
    }

    fn pause(&self) -> Result<(), ServerError> {
        self.server.pause()
    }

    fn resume(&self) -> Result<(), ServerError> {
        self.server.resume()
    }

    /// It forgets its scripts.
    fn disturb(&self, _: u64) -> bool {
        self.command(&["SCRIPT", "FLUSH"])
    }

    fn cut_askers(&self) -> bool {
        self.command(&["CLIENT", "KILL", "TYPE", "normal"])
    }

    fn cut_listeners(&self) -> bool {
        self.command(&["CLIENT", "KILL", "TYPE", "pubsub"])
    }

    fn log(&self) -> String {
        self.server.log()
    }

    /// Only the data that partitions keep is left.
    fn nothing_is_left(&self) {
        self.clock.offset(FORGOTTEN.as_millis() as i64).expect("a clock can be set");
        let keys = self.server.command(&["KEYS", "*"]).expect("a server that answers");
        let keys = keys.list().iter().filter_map(|key| key.text());
        let (fixed, left): (Vec<_>, Vec<_>) = keys.partition(|key| is_partition(key));
        assert_eq!(left, Vec::<&str>::new(), "left on the server");
        assert!(!fixed.is_empty(), "the run was on another server");
    }
}

fn is_partition(key: &str) -> bool {
    let number = key.strip_prefix("tenure:{").and_then(|rest| rest.strip_suffix("}:p"));
    number.is_some_and(|number| number.parse::<u8>().is_ok())
}

pub(crate) struct OnPostgres {
    version: PostgresVersion,
    database: PostgresDatabase,
    clock: Clock,
}

/// The sessions of this database, and which of them listen.
const LISTENS: &str =
    "pid IN (SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND mode = 'ExclusiveLock')";

impl OnPostgres {
    pub(crate) fn start(version: PostgresVersion) -> OnPostgres {
        let clock = Clock::new().expect("a clock");
        let build = Postgres::build().version(version).clock(&clock);
        OnPostgres { version, database: PostgresDatabase::alone(build).expect("a server"), clock }
    }

    fn cut(&self, which: &str) -> bool {
        let sql = format!(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'client backend'
               AND pid <> pg_backend_pid() AND {which}"
        );
        self.database.sql(&sql).is_ok()
    }

    fn count(&self, table: &str) -> String {
        self.database.sql(&format!("SELECT count(*) FROM tenure.{table}")).expect("a server")
    }
}

impl Target for OnPostgres {
    fn name(&self) -> &'static str {
        match self.version {
            PostgresVersion::Debian => "postgres",
            PostgresVersion::Postgres18 => "postgres-18",
        }
    }

    fn longest_ttl(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn port(&self) -> u16 {
        self.database.server.port()
    }

    fn url(&self, port: u16) -> String {
        format!("postgres://postgres@127.0.0.1:{port}/{}", self.database.name)
    }

    fn restart(&self, pause: Duration) -> Result<(), ServerError> {
        self.database.server.kill()?;
        std::thread::sleep(pause);
        self.database.server.restart()
    }

    fn pause(&self) -> Result<(), ServerError> {
        self.database.server.pause()
    }

    fn resume(&self) -> Result<(), ServerError> {
        self.database.server.resume()
    }

    /// A foreign transaction locks the row of a name.
    fn disturb(&self, number: u64) -> bool {
        let sql = format!(
            "BEGIN; SELECT FROM tenure.name WHERE name = 'door-{}' FOR UPDATE; SELECT pg_sleep(0.4); COMMIT",
            number % 12
        );
        self.database.sql(&sql).is_ok()
    }

    fn cut_askers(&self) -> bool {
        self.cut(&format!("NOT {LISTENS}"))
    }

    fn cut_listeners(&self) -> bool {
        self.cut(LISTENS)
    }

    fn log(&self) -> String {
        self.database.server.log()
    }

    fn nothing_is_left(&self) {
        self.clock.offset(FORGOTTEN.as_millis() as i64).expect("a clock can be set");
        assert_ne!(self.count("name"), "0", "the run was on another server");
        // The first one ends what has run out; the next ones delete.
        for _ in 0..3 {
            self.database.sql("SELECT tenure_v1.sweep(0, 1000000)").expect("a sweep");
            self.clock.advance(FORGOTTEN.as_millis() as i64).expect("a clock can be set");
        }
        for table in ["name", "claim", "hold", "trace", "record"] {
            assert_eq!(self.count(table), "0", "rows of {table} are left");
        }
    }
}
