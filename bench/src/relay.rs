//! The relay beside the way to the node without it, in one run: 50 senders in parallel, one alone, and one whose
//! transactions come all at once, to one relay and to three.
//!
//! Node, Redis, relay and clients share the machine: what the relay costs in CPU, the others lack. On a machine that
//! is busy with other things, CPU is the figure to go by.

#[allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "a client of the tests")]
#[path = "../../crates/tenure-relay/tests/probe/client.rs"]
mod client;
#[allow(dead_code, clippy::unwrap_used, reason = "the wallets of the tests")]
#[path = "../../crates/tenure-relay/tests/probe/wallet.rs"]
mod wallet;

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use serde_json::json;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Redis};
use wallet::{Raw, Wallet};

use crate::redis::{Goal, Table, median};

const ROUNDS: u64 = 5;
const SENDERS: u64 = 50;
/// How many each sends, one after the other.
const EACH: u64 = 40;
/// How many the one alone sends.
const ALONE: u64 = 200;
/// How many come at once.
const BURST: u64 = 1000;

/// What is measured: no relay, or a relay with these arguments.
const KINDS: [(&str, Option<&[&str]>); 5] = [
    ("direct", None),
    ("relay", Some(&[])),
    ("no fee check", Some(&["--check-fee", "off"])),
    ("no pending set", Some(&["--check-fee", "off", "--pending", "off"])),
    ("no order", Some(&["--check-fee", "off", "--pending", "off", "--ordering", "off"])),
];
/// One figure a round, for each of them.
type Figures = [Vec<f64>; 5];
/// The one that the goals are for.
const RELAY: usize = 1;

/// Needs `cargo build --release -p tenure-cli --features relay` before.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut rates = KINDS.map(|_| Vec::new());
    let mut times = KINDS.map(|_| Vec::new());
    let mut costs = KINDS.map(|_| WHOSE.map(|_| Vec::new()));
    for _ in 0..ROUNDS {
        for (at, (_, relay)) in KINDS.iter().enumerate() {
            // A new one each time: the longer its chain is, the slower it is.
            let node = Anvil::build().start().expect("anvil starts");
            let redis = Redis::build().start().expect("Redis starts");
            let relay = relay.map(|args| Relay::start(&node, &redis, args));
            let direct = ([127, 0, 0, 1], node.port()).into();
            let address = relay.as_ref().map_or(direct, |relay| relay.address);
            let mut purse = Purse { node: &node, wallets: 0 };
            times[at].push(runtime.block_on(alone(address, purse.payments(ALONE))));
            let crowd = (0..SENDERS).map(|_| purse.payments(EACH)).collect();
            let relay = relay.as_ref().map(|relay| relay.child.id());
            let processes = [Some(std::process::id()), relay, Some(node.pid()), Some(redis.pid())];
            let before = processes.map(cpu);
            rates[at].push(runtime.block_on(crowded(address, crowd)));
            for (whose, (process, before)) in processes.into_iter().zip(before).enumerate() {
                let each = (cpu(process) - before) / (SENDERS * EACH) as f64;
                costs[at][whose].push(each);
            }
        }
    }
    let bursts = [1, 3].map(|relays| {
        let burst = |round| runtime.block_on(burst(relays, round));
        (0..ROUNDS).map(burst).collect::<Vec<f64>>()
    });
    print(&rates, &times, &costs, &bursts);
}

/// Whose CPU is looked at.
const WHOSE: [&str; 4] = ["clients", "relay", "node", "Redis"];

/// Microseconds of CPU that a process has used.
fn cpu(process: Option<u32>) -> f64 {
    let Some(process) = process else { return 0.0 };
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    let fields = stat.rsplit_once(')').map(|(_, rest)| rest.split_whitespace().collect::<Vec<_>>());
    let fields = fields.unwrap_or_default();
    let ticks = |at: usize| fields.get(at).and_then(|ticks| ticks.parse::<f64>().ok());
    // A hundred a second, on every Linux.
    (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) * 1e4
}

fn print(rates: &Figures, times: &Figures, costs: &[[Vec<f64>; 4]; 5], bursts: &[Vec<f64>; 2]) {
    let mut table = Table::default();
    table.heading(&format!("{SENDERS} senders in parallel, {ROUNDS} rounds"));
    for (at, (kind, _)) in KINDS.iter().enumerate() {
        table.row(kind, "transactions a second", None, &rates[at]);
    }
    for (at, (kind, _)) in KINDS.iter().enumerate().skip(1) {
        let share: Vec<f64> = rates[at].iter().zip(&rates[0]).map(|(it, of)| it / of).collect();
        table.row(kind, "of direct", (at == RELAY).then_some(Goal::AtLeast(0.8)), &share);
    }
    let all =
        |costs: &[Vec<f64>; 4], round: usize| -> f64 { costs.iter().map(|it| it[round]).sum() };
    for (at, (kind, _)) in KINDS.iter().enumerate().skip(1) {
        let share = |round| all(&costs[0], round) / all(&costs[at], round);
        let shares: Vec<f64> = (0..ROUNDS as usize).map(share).collect();
        table.row(kind, "of direct, by CPU", None, &shares);
    }
    for (kind, costs) in KINDS.iter().zip(costs) {
        for (whose, values) in WHOSE.iter().zip(costs) {
            table.row(kind.0, &format!("us of CPU a transaction, {whose}"), None, values);
        }
    }
    table.heading("one sender alone");
    for (at, (kind, _)) in KINDS.iter().enumerate() {
        table.row(kind, "median ms of a transaction", None, &times[at]);
    }
    for (at, (kind, _)) in KINDS.iter().enumerate().skip(1) {
        let added: Vec<f64> = times[at].iter().zip(&times[0]).map(|(it, to)| it - to).collect();
        table.row(kind, "ms added", (at == RELAY).then_some(Goal::AtMost(0.5)), &added);
    }
    let [one, three] = bursts;
    table.heading(&format!("one sender, {BURST} transactions at once"));
    table.row("one relay", "transactions a second", None, one);
    table.row("three relays", "transactions a second", Some(Goal::AtLeast(1000.0)), three);
    let share: Vec<f64> = three.iter().zip(one).map(|(three, one)| three / one).collect();
    table.row("three relays", "of one relay", Some(Goal::AtLeast(1.0 / 3.0)), &share);
    table.end();
}

/// Transactions a second of one sender, each written to a relay of its own choice before any is answered.
async fn burst(relays: usize, round: u64) -> f64 {
    let node = Anvil::build().start().expect("anvil starts");
    let redis = Redis::build().start().expect("Redis starts");
    let relays: Vec<Relay> = (0..relays).map(|_| Relay::start(&node, &redis, &[])).collect();
    let (raws, mut rng) = (Purse { node: &node, wallets: 0 }.payments(BURST), Rng::new(round));
    let mut clients = Vec::new();
    for raw in &raws {
        let at = rng.between(0, relays.len() as u64 - 1) as usize;
        let mut client = Client::connect(relays[at].address).await;
        client.call("eth_chainId", json!([])).await;
        clients.push((client, raw));
    }
    let began = Instant::now();
    for (client, raw) in &mut clients {
        client.write(&client::send(raw.nonce, &raw.raw).to_string()).await.expect("it is written");
    }
    for (client, raw) in &mut clients {
        let answer = client.read().await.expect("an answer").json();
        assert_eq!(answer["result"], json!(raw.hash), "{}: {answer}", raw.nonce);
    }
    BURST as f64 / began.elapsed().as_secs_f64()
}

/// Transactions a second of all senders together.
async fn crowded(address: SocketAddr, crowd: Vec<Vec<Raw>>) -> f64 {
    let mut clients = Vec::new();
    for raws in crowd {
        let mut client = Client::connect(address).await;
        client.call("eth_chainId", json!([])).await;
        clients.push((client, raws));
    }
    let began = Instant::now();
    let mut tasks = Vec::new();
    for (mut client, raws) in clients {
        tasks.push(tokio::spawn(async move {
            for raw in &raws {
                pay(&mut client, raw).await;
            }
        }));
    }
    for task in tasks {
        task.await.expect("it is sent");
    }
    (SENDERS * EACH) as f64 / began.elapsed().as_secs_f64()
}

/// The median of one transaction, in milliseconds.
async fn alone(address: SocketAddr, raws: Vec<Raw>) -> f64 {
    let mut client = Client::connect(address).await;
    let mut times = Vec::new();
    for raw in &raws {
        let began = Instant::now();
        pay(&mut client, raw).await;
        times.push(began.elapsed().as_secs_f64() * 1e3);
    }
    median(times)
}

async fn pay(client: &mut Client, raw: &Raw) {
    let answer = client.ask(&client::send(raw.nonce, &raw.raw)).await;
    assert_eq!(answer["result"], json!(raw.hash), "{answer}");
}

/// Wallets that nobody has used.
struct Purse<'a> {
    node: &'a Anvil,
    wallets: u64,
}

impl Purse<'_> {
    fn payments(&mut self, many: u64) -> Vec<Raw> {
        self.wallets += 1;
        let wallet = Wallet::fresh(self.wallets, self.node.chain());
        self.node.fund(&wallet.name()).expect("anvil gives money");
        wallet.pay_many(many)
    }
}

/// `tenure relay`. Killed on drop.
struct Relay {
    child: Child,
    address: SocketAddr,
}

impl Relay {
    fn start(node: &Anvil, redis: &Redis, args: &[&str]) -> Relay {
        let tenure = std::env::current_exe().expect("a path").with_file_name("tenure");
        assert!(
            tenure.exists(),
            "run `cargo build --release -p tenure-cli --features relay` first"
        );
        let mut command = Command::new(tenure);
        command.args(["relay", "--listen", "127.0.0.1:0", "--upstream", &node.url()]).args(args);
        command.env("TENURE_URL", redis.url()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.and_then(|address| address.parse().ok());
        let relay = Relay { child, address: address.expect("it says where it listens") };
        // So that what it does once is not measured.
        std::thread::sleep(Duration::from_millis(100));
        relay
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
