//! A node of Ethereum that misbehaves on command.
//!
//! It has a tiny chain in memory and speaks HTTP by hand, so that it can do what no real node can be
//! made to do: accept a transaction and never say so, answer with a page of HTML, with somebody
//! else's id, a byte at a time. It has a thread of its own, as a node has, and writes down every
//! request in the order of arrival. What a transaction is, the test says: see [`Decoder`].

mod chain;
mod conduct;
mod serve;
mod squeeze;
mod wire;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use chain::{Decoder, Sent};
pub use conduct::Conduct;

use crate::rng::Rng;
use crate::servers::{ServerError, eventually};
use chain::Chain;

/// One request as it arrived.
#[derive(Clone, Debug)]
pub struct Arrival {
    /// Which connection it came on, by the order of their coming.
    pub connection: u64,
    /// What followed the host in the URL.
    pub path: String,
    /// The lines of its head after the first, as they were.
    pub head: String,
    /// What was called; each call of a batch is an arrival of its own.
    pub method: String,
    /// With what.
    pub params: Value,
}

/// What happens to calls of one method.
#[derive(Debug, Default)]
struct Script {
    calls: u64,
    /// How many are being treated now, and were at most.
    at_once: usize,
    most_at_once: usize,
    /// By the number of the call, from 1.
    at: HashMap<u64, Conduct>,
    next: VecDeque<Conduct>,
    always: Conduct,
}

#[derive(Debug)]
struct State {
    chain: Chain,
    scripts: HashMap<String, Script>,
    arrivals: Vec<Arrival>,
    connections: u64,
    hanging: usize,
    hung_up: usize,
    rng: Rng,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// Rises when those that hang are let go.
    let_go: watch::Sender<u64>,
    /// Rises when every connection is to be cut.
    cut: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node on the loopback address. Dropping it cuts everything.
#[derive(Debug)]
pub struct ScriptedNode {
    port: u16,
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedNode {
    /// Listens on a free port, and behaves until told otherwise.
    pub fn start(chain: u64, decoder: Decoder) -> io::Result<ScriptedNode> {
        let listener = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let port = listener.local_addr()?.port();
        listener.set_nonblocking(true)?;
        let state = State {
            chain: Chain::new(chain, decoder),
            scripts: HashMap::new(),
            arrivals: Vec::new(),
            connections: 0,
            hanging: 0,
            hung_up: 0,
            rng: Rng::new(u64::from(port)),
        };
        let (let_go, cut) = (watch::Sender::new(0), watch::Sender::new(0));
        let shared = Arc::new(Shared { state: Mutex::new(state), let_go, cut });
        let (end, ended) = watch::channel(false);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let served = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("node".to_owned()).spawn(move || {
            runtime.block_on(async move {
                if let Ok(listener) = TcpListener::from_std(listener) {
                    serve::run(listener, served, ended).await;
                }
            });
        })?;
        Ok(ScriptedNode { port, shared, end, thread: Some(thread) })
    }

    /// Where it listens, on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Where clients find it: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// What happens to all calls of a method from now on.
    pub fn always(&self, method: &str, conduct: Conduct) {
        self.script(method, |script| script.always = conduct);
    }

    /// What happens to the next call of a method for which nothing else was said; to the one after
    /// that, when said twice.
    pub fn next(&self, method: &str, conduct: Conduct) {
        self.script(method, |script| script.next.push_back(conduct));
    }

    /// What happens to the call with this number, from 1, counted since the start.
    pub fn at(&self, method: &str, call: u64, conduct: Conduct) {
        self.script(method, |script| {
            script.at.insert(call, conduct);
        });
    }

    /// Behaves again, in all that comes; what hangs goes on to hang.
    pub fn behave(&self) {
        for script in self.shared.state().scripts.values_mut() {
            script.at.clear();
            script.next.clear();
            script.always = Conduct::Answer;
        }
    }

    /// Those that hang go on: they are answered, as if they had only been slow.
    pub fn let_go(&self) {
        self.shared.let_go.send_modify(|count| *count += 1);
    }

    /// Cuts all present connections.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
    }

    /// How many requests hang now, and are still waited for.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.shared.state().hanging
    }

    /// How many that hung were given up by whoever had asked.
    #[must_use]
    pub fn hung_up(&self) -> usize {
        self.shared.state().hung_up
    }

    /// Whether transactions go into a block at once, as they do unless told otherwise; else they
    /// wait, and count as pending only.
    pub fn mines(&self, at_once: bool) {
        self.shared.state().chain.mines(at_once);
    }

    /// Whether a transaction ahead of its turn is kept until then, as it is unless told otherwise;
    /// else it is refused.
    pub fn keeps_gaps(&self, keeps: bool) {
        self.shared.state().chain.keeps_gaps(keeps);
    }

    /// What came so far, in the order of arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.state().arrivals.clone()
    }

    /// How often a method was called so far.
    #[must_use]
    pub fn calls(&self, method: &str) -> usize {
        let state = self.shared.state();
        state.arrivals.iter().filter(|arrival| arrival.method == method).count()
    }

    /// How many calls of a method it has had in hand at the same time, at most.
    #[must_use]
    pub fn most_at_once(&self, method: &str) -> usize {
        self.shared.state().scripts.get(method).map_or(0, |script| script.most_at_once)
    }

    /// The transactions that it took, in the order in which it took them.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.state().chain.sent().to_vec()
    }

    /// How many connections came so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// Waits until a method was called so often; blocks.
    pub fn wait_for_calls(&self, method: &str, many: usize) -> Result<(), ServerError> {
        let what = format!("{method} is called {many} times");
        eventually(&what, PATIENCE, || self.calls(method) >= many)
    }

    fn script(&self, method: &str, change: impl FnOnce(&mut Script)) {
        change(self.shared.state().scripts.entry(method.to_owned()).or_default());
    }
}

/// How long a test waits for what must come.
const PATIENCE: Duration = Duration::from_secs(20);

impl Drop for ScriptedNode {
    fn drop(&mut self) {
        self.end.send_replace(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl State {
    /// Writes down a call, and says what happens to it.
    fn arrived(&mut self, arrival: Arrival) -> Conduct {
        let script = self.scripts.entry(arrival.method.clone()).or_default();
        self.arrivals.push(arrival);
        script.calls += 1;
        script.at_once += 1;
        script.most_at_once = script.most_at_once.max(script.at_once);
        let told = script.at.remove(&script.calls).or_else(|| script.next.pop_front());
        told.unwrap_or_else(|| script.always.clone())
    }

    fn treated(&mut self, method: &str) {
        if let Some(script) = self.scripts.get_mut(method) {
            script.at_once -= 1;
        }
    }
}
