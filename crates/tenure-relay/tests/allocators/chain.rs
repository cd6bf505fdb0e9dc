//! A minimal chain, which is also the judge: every process reports its nonces to it.

use std::collections::{BTreeMap, HashSet};
use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Instant;

use alloy_primitives::{Address, B256};
use tenure_relay::nonces::ChainError;

use crate::allocators::worker::terms;

/// What everyone said.
#[derive(Debug, Default)]
struct State {
    /// With who sent it.
    sent: BTreeMap<u64, (B256, u32)>,
    /// The owner of each nonce.
    had: Vec<Had>,
    ended: BTreeMap<u32, Instant>,
    /// The processes that were stopped for longer than the others wait.
    stopped: HashSet<u32>,
    faults: Vec<String>,
}

#[derive(Debug)]
struct Had {
    nonce: u64,
    process: u32,
    since: Instant,
    /// When it dropped the nonce without reporting whether it was sent.
    unsaid: Option<Instant>,
}

/// Listens until the test ends.
pub(crate) struct Chain {
    state: Arc<Mutex<State>>,
    address: SocketAddr,
}

impl Chain {
    pub(crate) fn start() -> Chain {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, state) = (listener.local_addr().unwrap(), Arc::<Mutex<State>>::default());
        let shared = state.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let state = shared.clone();
                std::thread::spawn(move || serve(&state, stream));
            }
        });
        Chain { state, address }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn stops(&self, process: u32) {
        self.state.lock().unwrap().stopped.insert(process);
    }

    /// Says how many were sent.
    pub(crate) fn is_sound(&self) -> u64 {
        let state = self.state.lock().unwrap();
        assert!(state.faults.is_empty(), "{:#?}", state.faults);
        state.sent.len() as u64
    }

    pub(crate) fn has_no_gap(&self) -> bool {
        let state = self.state.lock().unwrap();
        state.count() == state.sent.len() as u64
    }
}

fn serve(state: &Mutex<State>, stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    let mut answers = stream.try_clone().unwrap();
    let mut process = 0;
    for line in BufReader::new(stream).lines().map_while(Result::ok) {
        let words: Vec<&str> = line.split(' ').collect();
        let mut state = state.lock().unwrap();
        let answer = match words[..] {
            ["hello", number] => {
                process = number.parse().unwrap();
                "ok".to_owned()
            }
            ["count"] => state.count().to_string(),
            ["knows", hash] => state.knows(hash.parse().unwrap()).to_string(),
            ["issued", nonce] => state.issued(process, nonce.parse().unwrap()),
            // Because it was away for too long, or because it wants to.
            ["lost" | "releasing", nonce] => state.leaving(process, nonce.parse().unwrap()),
            ["forgetting", nonce] => state.forgetting(process, nonce.parse().unwrap()),
            ["send", nonce, hash] => {
                state.send(process, nonce.parse().unwrap(), hash.parse().unwrap())
            }
            _ => panic!("what does {line:?} mean?"),
        };
        drop(state);
        if answers.write_all(format!("{answer}\n").as_bytes()).is_err() {
            break;
        }
    }
    // The connection ends with its process, a moment later.
    state.lock().unwrap().ended.insert(process, Instant::now());
}

impl State {
    fn count(&self) -> u64 {
        (0..).find(|nonce| !self.sent.contains_key(nonce)).unwrap()
    }

    fn knows(&self, hash: B256) -> bool {
        self.sent.values().any(|(known, _)| *known == hash)
    }

    fn issued(&mut self, process: u32, nonce: u64) -> String {
        if self.sent.get(&nonce).is_some_and(|(_, by)| !self.stopped.contains(by)) {
            self.faults.push(format!("{process} was given {nonce}, which was sent"));
        }
        for had in self.had.iter().filter(|had| had.nonce == nonce) {
            let gone = self.ended.get(&had.process).map(Instant::elapsed);
            // A third of the ttl may have passed since it was renewed last.
            let is_forgotten = gone.is_some_and(|gone| gone > terms().ttl / 2)
                || had.unsaid.is_some_and(|unsaid| unsaid.elapsed() >= terms().unknown_for);
            if had.process != process && !is_forgotten && !self.stopped.contains(&had.process) {
                let (who, since) = (had.process, had.since.elapsed());
                let who = format!("{who} has it since {since:?}, or ended {gone:?} ago");
                self.faults.push(format!("{process} was given {nonce}: {who}"));
            }
        }
        self.had.push(Had { nonce, process, since: Instant::now(), unsaid: None });
        "ok".to_owned()
    }

    fn leaving(&mut self, process: u32, nonce: u64) -> String {
        self.had.retain(|had| (had.process, had.nonce) != (process, nonce));
        "ok".to_owned()
    }

    fn forgetting(&mut self, process: u32, nonce: u64) -> String {
        let own = |had: &&mut Had| (had.process, had.nonce) == (process, nonce);
        let unsaid = Some(Instant::now());
        self.had.iter_mut().filter(own).for_each(|had| had.unsaid = unsaid);
        "ok".to_owned()
    }

    fn send(&mut self, process: u32, nonce: u64, hash: B256) -> String {
        if let Some((known, by)) = self.sent.get(&nonce).copied()
            && known != hash
        {
            // A process that was stopped between its last look and its send may be too late, or block others.
            if ![process, by].iter().any(|process| self.stopped.contains(process)) {
                self.faults.push(format!("{process} sent {nonce}, which {by} had sent"));
            }
            return "used".to_owned();
        }
        self.sent.entry(nonce).or_insert((hash, process));
        "ok".to_owned()
    }
}

/// The other end, in a worker. It blocks: there is nothing else to be done meanwhile.
#[derive(Debug)]
pub(crate) struct Client(Mutex<BufReader<TcpStream>>);

impl Client {
    pub(crate) fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_nodelay(true).unwrap();
        let client = Client(Mutex::new(BufReader::new(stream)));
        client.tell(&format!("hello {}", std::process::id()));
        client
    }

    /// Reports to the chain, and returns its answer.
    pub(crate) fn tell(&self, line: &str) -> String {
        let mut stream: MutexGuard<'_, BufReader<TcpStream>> = self.0.lock().unwrap();
        stream.get_mut().write_all(format!("{line}\n").as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

impl tenure_relay::nonces::Chain for Client {
    async fn count(&self, _: Address) -> Result<u64, ChainError> {
        Ok(self.tell("count").parse()?)
    }

    async fn knows(&self, hash: B256) -> Result<bool, ChainError> {
        Ok(self.tell(&format!("knows {hash}")) == "true")
    }
}
