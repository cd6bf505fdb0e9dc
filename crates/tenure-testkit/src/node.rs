//! An Ethereum node that misbehaves on command.
//!
//! It has a tiny chain in memory and its own HTTP implementation, so that it can do what no real node can be
//! made to do: accept a transaction and never answer, answer with a page of HTML, with the id of another
//! request, or one byte at a time. It runs on its own thread, and records every request in the order of
//! arrival. The test decides what a transaction is: see [`Decoder`].

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
    /// The number of its connection, in the order of arrival.
    pub connection: u64,
    /// The part of the URL after the host.
    pub path: String,
    /// The lines of its head after the first, unchanged.
    pub head: String,
    /// The method; each call of a batch is a separate arrival.
    pub method: String,
    /// The parameters.
    pub params: Value,
}

/// The conduct for calls of one method.
#[derive(Debug, Default)]
struct Script {
    calls: u64,
    /// The number of calls that are being handled now, and the maximum so far.
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
    /// Rises when hanging requests are released.
    let_go: watch::Sender<u64>,
    /// Rises when all connections are to be cut.
    cut: watch::Sender<u64>,
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A node on the loopback address. Dropping it cuts all connections.
#[derive(Debug)]
pub struct ScriptedNode {
    port: u16,
    shared: Arc<Shared>,
    end: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl ScriptedNode {
    /// Listens on a free port, and behaves normally until told otherwise.
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

    /// Its port on the loopback address.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its URL: `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Sets the conduct for all further calls of a method.
    pub fn always(&self, method: &str, conduct: Conduct) {
        self.script(method, |script| script.always = conduct);
    }

    /// Sets the conduct for the next call of a method that has none yet; called twice, for the call after that,
    /// too.
    pub fn next(&self, method: &str, conduct: Conduct) {
        self.script(method, |script| script.next.push_back(conduct));
    }

    /// Sets the conduct for the call with this number, from 1, counted since the start.
    pub fn at(&self, method: &str, call: u64, conduct: Conduct) {
        self.script(method, |script| {
            script.at.insert(call, conduct);
        });
    }

    /// Behaves normally for all further requests; hanging requests keep hanging.
    pub fn behave(&self) {
        for script in self.shared.state().scripts.values_mut() {
            script.at.clear();
            script.next.clear();
            script.always = Conduct::Answer;
        }
    }

    /// Releases hanging requests: they are answered, as if they had only been slow.
    pub fn let_go(&self) {
        self.shared.let_go.send_modify(|count| *count += 1);
    }

    /// Cuts all current connections.
    pub fn cut(&self) {
        self.shared.cut.send_modify(|count| *count += 1);
    }

    /// The number of requests that hang now and whose clients still wait.
    #[must_use]
    pub fn hanging(&self) -> usize {
        self.shared.state().hanging
    }

    /// The number of hanging requests whose clients gave up.
    #[must_use]
    pub fn hung_up(&self) -> usize {
        self.shared.state().hung_up
    }

    /// Whether a transaction goes into a block at once, as by default; otherwise it waits, and counts only as
    /// pending.
    pub fn mines(&self, at_once: bool) {
        self.shared.state().chain.mines(at_once);
    }

    /// Whether a transaction with a nonce that is too high is kept until its turn, as by default; otherwise it
    /// is refused.
    pub fn keeps_gaps(&self, keeps: bool) {
        self.shared.state().chain.keeps_gaps(keeps);
    }

    /// The requests so far, in the order of arrival.
    #[must_use]
    pub fn arrivals(&self) -> Vec<Arrival> {
        self.shared.state().arrivals.clone()
    }

    /// The number of calls of a method so far.
    #[must_use]
    pub fn calls(&self, method: &str) -> usize {
        let state = self.shared.state();
        state.arrivals.iter().filter(|arrival| arrival.method == method).count()
    }

    /// The maximum number of concurrent calls of a method so far.
    #[must_use]
    pub fn most_at_once(&self, method: &str) -> usize {
        self.shared.state().scripts.get(method).map_or(0, |script| script.most_at_once)
    }

    /// The transactions that it accepted, in that order.
    #[must_use]
    pub fn sent(&self) -> Vec<Sent> {
        self.shared.state().chain.sent().to_vec()
    }

    /// The number of connections so far.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.shared.state().connections
    }

    /// Waits until a method was called this often; blocks.
    pub fn wait_for_calls(&self, method: &str, many: usize) -> Result<(), ServerError> {
        let what = format!("{method} is called {many} times");
        eventually(&what, PATIENCE, || self.calls(method) >= many)
    }

    fn script(&self, method: &str, change: impl FnOnce(&mut Script)) {
        change(self.shared.state().scripts.entry(method.to_owned()).or_default());
    }
}

/// How long a test waits for something that must happen.
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
    /// Records a call, and returns its conduct.
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
