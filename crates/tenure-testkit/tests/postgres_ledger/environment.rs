//! One real server whose time stands still, and the processes that talk to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::{ClaimId, Engine, Moment, Name, Space, SystemWorld, Turn, Turns, World};
use tenure::engines::postgres::{Listen, Postgres, PostgresConfig};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{self, Clock, Flavour};
use tokio_postgres::{Client, NoTls};

use super::plan::{Event, HEARING};

pub(crate) struct Environment {
    pub(crate) processes: Vec<Process>,
    control: Client,
    clock: Clock,
    _server: servers::Postgres,
}

/// One process. The session that receives its turns goes through a network that can be cut.
pub(crate) struct Process {
    engine: Arc<dyn Engine>,
    pub(crate) turns: Arc<Recorder>,
    is_deaf: Mutex<bool>,
    proxy: Proxy,
    /// The backend's advisory lock, by which others know that it listens.
    lock: i64,
}

/// What was pushed, by name.
#[derive(Debug, Default)]
pub(crate) struct Recorder(Mutex<HashMap<Name, Vec<Pushed>>>);

/// A turn, and when it came.
#[derive(Clone, Debug)]
pub(crate) struct Pushed {
    pub(crate) id: ClaimId,
    pub(crate) turn: Turn,
    pub(crate) at: Moment,
}

impl Turns for Recorder {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let pushed = Pushed { id: *id, turn, at: SystemWorld.now() };
        self.0.lock().unwrap().entry(name.clone()).or_default().push(pushed);
        true
    }

    fn look_again(&self, _shard: u32) {}
}

impl Recorder {
    pub(crate) fn take(&self, name: &Name) -> Vec<Pushed> {
        self.0.lock().unwrap().remove(name).unwrap_or_default()
    }
}

/// The advisory locks of processes that listen.
async fn locks(control: &Client) -> Vec<i64> {
    let sql = "SELECT (classid::bigint << 32) | objid::bigint FROM pg_locks
        WHERE locktype = 'advisory' AND mode = 'ExclusiveLock' AND granted";
    control.query(sql, &[]).await.unwrap().iter().map(|row| row.get(0)).collect()
}

impl Environment {
    pub(crate) async fn new(_: Flavour) -> Environment {
        let clock = Clock::new().unwrap();
        clock.freeze().unwrap();
        // Whole milliseconds, as the rest of the test counts in them.
        clock.freeze_at(clock.unix_millis()).unwrap();
        let server = servers::Postgres::build().clock(&clock).start().unwrap();
        let url = server.url("postgres");
        let (config, _) = PostgresConfig::from_url(&url).unwrap();
        Postgres::set_up(config).await.unwrap();
        let (control, connection) = tokio_postgres::connect(&url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let mut processes = Vec::new();
        for number in 0..=HEARING {
            processes.push(Process::start(&server, &control, number).await);
        }
        Environment { processes, control, clock, _server: server }
    }

    /// The server's time, in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.clock.unix_millis() as u64
    }

    /// Whether the engine can hand over.
    pub(crate) const HANDS_OVER: bool = false;

    /// Asked only if it can.
    pub(crate) fn numbers(&self, name: &Name) -> (u64, u64) {
        unreachable!("nobody hands {name} over")
    }

    pub(crate) fn is_deaf(&self, process: usize) -> bool {
        *self.processes[process].is_deaf.lock().unwrap()
    }

    pub(crate) async fn happen(&self, event: Event) {
        match event {
            Event::Pass(millis) => self.clock.advance(millis).unwrap(),
            Event::Deafen(process) => self.processes[process].deafen(&self.control).await,
            Event::Hear(process) => self.processes[process].hear(&self.control).await,
        }
    }

    /// Everything that was pushed until now has arrived.
    pub(crate) async fn settle(&self) {
        for process in &self.processes {
            process.engine().health().await.unwrap();
        }
    }

    /// How many rows of a name there are that should not be there.
    pub(crate) fn keys_of(&self, name: &Name) -> i64 {
        let (space, text) = (if name.space() == Space::Once { "o" } else { "l" }, name.as_str());
        let idle = (self.now() as i64 - 61_000) * 1000;
        let sql = "SELECT
            (SELECT count(*) FROM tenure.claim c WHERE c.name = n.key)
            + (SELECT count(*) FROM tenure.hold h WHERE h.name = n.key) + (n.number < $3)::int
            FROM tenure.name n WHERE n.space = $1 AND n.name = $2";
        let sweep = "SELECT tenure_v1.sweep(0, 1000000)";
        let rows = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current().block_on(async {
                let known = self.control.query(sql, &[&space, &text, &idle]).await.unwrap();
                if known.iter().all(|row| row.get::<_, i64>(0) == 0) {
                    return known;
                }
                self.control.query(sweep, &[]).await.unwrap();
                self.control.query(sql, &[&space, &text, &idle]).await.unwrap()
            })
        });
        rows.first().map_or(0, |row| row.get(0))
    }

    /// Restores what scripts have changed for others.
    pub(crate) async fn restore(&self) {
        for process in 0..HEARING {
            self.happen(Event::Hear(process)).await;
        }
    }
}

impl Process {
    async fn start(server: &servers::Postgres, control: &Client, number: usize) -> Process {
        let before = locks(control).await;
        let proxy = Proxy::start(server.port()).unwrap();
        let (mut config, _) = PostgresConfig::from_url(&server.url("postgres")).unwrap();
        // For this long, a deaf process does not give up listening, and counts as unreachable.
        config.command_timeout = Duration::from_secs(1200);
        config.listen = Listen::Always;
        config.listen_at = Some(("127.0.0.1".to_owned(), proxy.port()));
        let engine: Arc<dyn Engine> = Arc::new(Postgres::connect(config).await.unwrap());
        let turns = Arc::new(Recorder::default());
        let recorder: Arc<dyn Turns> = turns.clone();
        engine.attach(Arc::downgrade(&recorder));
        let lock = loop {
            let new = locks(control).await.into_iter().find(|lock| !before.contains(lock));
            if let Some(lock) = new {
                break lock;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        engine.health().await.unwrap();
        let process = Process { engine, turns, is_deaf: Mutex::new(false), proxy, lock };
        // The last process only asks.
        if number >= HEARING {
            process.deafen(control).await;
        }
        process
    }

    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        &self.engine
    }

    async fn deafen(&self, control: &Client) {
        if std::mem::replace(&mut *self.is_deaf.lock().unwrap(), true) {
            return;
        }
        self.proxy.refuse().unwrap();
        let sql = "SELECT pg_terminate_backend(pid) FROM pg_locks
            WHERE locktype = 'advisory' AND granted AND ((classid::bigint << 32) | objid::bigint) = $1";
        control.query(sql, &[&self.lock]).await.unwrap();
        self.listens(control, false).await;
    }

    async fn hear(&self, control: &Client) {
        if !std::mem::replace(&mut *self.is_deaf.lock().unwrap(), false) {
            return;
        }
        self.proxy.accept().unwrap();
        self.listens(control, true).await;
        self.engine.health().await.unwrap();
    }

    async fn listens(&self, control: &Client, listens: bool) {
        for _ in 0..10_000 {
            if locks(control).await.contains(&self.lock) == listens {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("the listener did not come or go");
    }
}
