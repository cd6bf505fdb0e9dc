//! One real server whose time stands still, and the processes that talk to it.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::engine::{
    ClaimId, Engine, Moment, Name, Scope, Space, SystemWorld, Turn, Turns, World,
};
use tenure::engines::redis::{Redis, RedisConfig};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::{self, Clock, Connection, Flavour};

use super::plan::{Event, HEARING};

/// The number of partitions, each with its own counter.
const PARTITIONS: u64 = 256;

pub(crate) struct Environment {
    pub(crate) processes: Vec<Process>,
    control: Mutex<Connection>,
    clock: Clock,
    _server: servers::Redis,
}

/// One process: two connections with the same process id, only the first of which receives pushes.
pub(crate) struct Process {
    hearing: Arc<dyn Engine>,
    asking: Arc<dyn Engine>,
    pub(crate) turns: Arc<Recorder>,
    is_deaf: Mutex<bool>,
    proxy: Option<Proxy>,
    channel: String,
    client: String,
}

/// The pushes, by name.
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

impl Environment {
    pub(crate) async fn new(flavour: Flavour) -> Environment {
        let clock = Clock::new().unwrap();
        clock.freeze().unwrap();
        // Whole milliseconds, as the rest of the test counts in them.
        clock.freeze_at(clock.unix_millis()).unwrap();
        let server = servers::Redis::build().flavour(flavour).clock(&clock).start().unwrap();
        let mut control = server.connect().unwrap();
        let mut processes = Vec::new();
        for number in 0..=HEARING {
            processes.push(Process::start(&server, &mut control, number).await);
        }
        let environment =
            Environment { processes, control: Mutex::new(control), clock, _server: server };
        // Right after a server has come up nobody is set aside: let that time pass everywhere.
        environment.meet_all_partitions().await;
        environment.clock.advance(2000).unwrap();
        environment
    }

    async fn meet_all_partitions(&self) {
        for part in 0..PARTITIONS {
            let mut names = (0..).map(|n| Name::new(Space::Lock, &format!("meet{n}")).unwrap());
            let name = names.find(|name| partition(name) == part).unwrap();
            for process in &self.processes {
                process.engine().inspect(&Scope::Name(name.clone())).await.unwrap();
            }
        }
    }

    /// The server's time, in milliseconds.
    pub(crate) fn now(&self) -> u64 {
        self.clock.unix_millis() as u64
    }

    /// Whether the engine can hand over.
    pub(crate) const HANDS_OVER: bool = true;

    /// The last number that was given in the name's part, and the clock that blocks of fences are not above.
    pub(crate) fn numbers(&self, name: &Name) -> (u64, u64) {
        (self.counter(name), self.now() * 1000)
    }

    pub(crate) fn counter(&self, name: &Name) -> u64 {
        self.command(&["HGET", &part(name), "n"]).int().unwrap_or_default() as u64
    }

    pub(crate) fn is_deaf(&self, process: usize) -> bool {
        *self.processes[process].is_deaf.lock().unwrap()
    }

    pub(crate) async fn happen(&self, event: Event) {
        match event {
            Event::Pass(millis) => self.clock.advance(millis).unwrap(),
            Event::Deafen(process) => self.deafen(&self.processes[process]).await,
            Event::Hear(process) => self.hear(&self.processes[process]).await,
        }
    }

    async fn deafen(&self, process: &Process) {
        if std::mem::replace(&mut *process.is_deaf.lock().unwrap(), true) {
            return;
        }
        // This one stays, so it must be connected before nobody is let in any more.
        process.asking.health().await.unwrap();
        process.proxy.as_ref().unwrap().refuse().unwrap();
        let clients = self.command(&["CLIENT", "LIST", "TYPE", "pubsub"]);
        let clients = clients.text().unwrap_or_default().to_owned();
        let name = format!(" name={} ", process.client);
        let line = clients.lines().find(|line| line.contains(&name)).unwrap();
        let id = line.split_once("id=").unwrap().1.split(' ').next().unwrap();
        self.command(&["CLIENT", "KILL", "ID", id]);
        self.await_listeners(process, 0).await;
    }

    async fn hear(&self, process: &Process) {
        if !std::mem::replace(&mut *process.is_deaf.lock().unwrap(), false) {
            return;
        }
        process.proxy.as_ref().unwrap().accept().unwrap();
        self.await_listeners(process, 1).await;
        process.hearing.health().await.unwrap();
    }

    async fn await_listeners(&self, process: &Process, count: i64) {
        for _ in 0..10_000 {
            let reply = self.command(&["PUBSUB", "NUMSUB", &process.channel]);
            if reply.list()[1].int() == Some(count) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        panic!("{count} listeners on {} did not come about", process.channel);
    }

    pub(crate) fn command(&self, words: &[&str]) -> servers::Reply {
        self.control.lock().unwrap().command(words).unwrap()
    }

    /// Everything that was pushed until now has arrived.
    pub(crate) async fn settle(&self) {
        for process in &self.processes {
            process.engine().health().await.unwrap();
        }
    }

    /// How many of the keys of a name there are.
    pub(crate) fn keys_of(&self, name: &Name) -> i64 {
        let [own, line] = keys(name);
        self.command(&["EXISTS", &own, &line]).int().unwrap()
    }

    /// Restores what scripts have changed for others.
    pub(crate) async fn restore(&self) {
        for process in 0..HEARING {
            self.happen(Event::Hear(process)).await;
        }
    }
}

impl Process {
    async fn start(server: &servers::Redis, control: &mut Connection, number: usize) -> Process {
        let channels = |control: &mut Connection| {
            let reply = control.command(&["PUBSUB", "CHANNELS"]).unwrap();
            let all = reply.list().iter().map(|it| it.text().unwrap().to_owned());
            all.collect::<Vec<_>>()
        };
        let before = channels(control);
        // The process that can stop and resume receiving is behind a proxy.
        let proxy = (number == HEARING - 1).then(|| Proxy::start(server.port()).unwrap());
        let port = proxy.as_ref().map_or(server.port(), Proxy::port);
        let url = format!("redis://127.0.0.1:{port}");
        let (mut config, _) = RedisConfig::from_url(&url).unwrap();
        config.command_timeout = Duration::from_secs(30);
        config.client_name = format!("process{number}");
        let client = config.client_name.clone();
        let hearing: Arc<dyn Engine> = Arc::new(Redis::connect(config).await.unwrap());
        let asking = hearing.lifeline().unwrap();
        let turns = Arc::new(Recorder::default());
        let recorder: Arc<dyn Turns> = turns.clone();
        hearing.attach(Arc::downgrade(&recorder));
        hearing.health().await.unwrap();
        let channel = channels(control).into_iter().find(|it| !before.contains(it)).unwrap();
        // The last process only asks.
        let is_deaf = number >= HEARING;
        if is_deaf {
            hearing.close().await.unwrap();
            while channels(control).contains(&channel) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        Process { hearing, asking, turns, is_deaf: Mutex::new(is_deaf), proxy, channel, client }
    }

    /// The connection that its steps use.
    pub(crate) fn engine(&self) -> &Arc<dyn Engine> {
        if *self.is_deaf.lock().unwrap() { &self.asking } else { &self.hearing }
    }
}

/// Where the server keeps a name: its own key, and its line.
pub(crate) fn keys(name: &Name) -> [String; 2] {
    let (part, letter, text) = (partition(name), letter(name), name.as_str());
    [format!("tenure:{{{part}}}:{letter}:{text}"), format!("tenure:{{{part}}}:z:{letter}:{text}")]
}

/// The key of the part that a name is kept in; its field `n` is the last number that was given.
pub(crate) fn part(name: &Name) -> String {
    format!("tenure:{{{}}}:p", partition(name))
}

fn letter(name: &Name) -> char {
    if name.space() == Space::Once { 'o' } else { 'l' }
}

fn partition(name: &Name) -> u64 {
    let text = format!("{}{}", letter(name), name.as_str());
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 32 ^ hash) % PARTITIONS
}
