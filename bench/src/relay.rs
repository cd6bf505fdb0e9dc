//! The relay compared with direct access to the node, in one run: 50 concurrent senders, a single one, and one
//! whose transactions arrive all at once, at one relay and at three.
//!
//! Node, Redis, relay and clients share the machine: CPU that the relay uses is missing elsewhere. On a machine
//! with other load, CPU is the figure to compare.
//!
//! A node that makes a block for each transaction falls behind, makes blocks all the time, and takes longer for
//! a count the more transactions wait: the slower a run, the larger this effect. So the concurrent senders are
//! also measured on a node that makes blocks at intervals, as most nodes do.

#[allow(dead_code, clippy::unwrap_used, clippy::panic, reason = "a client of the tests")]
#[path = "../../crates/tenure-relay/tests/probe/client.rs"]
mod client;
#[allow(dead_code, clippy::unwrap_used, reason = "the wallets of the tests")]
#[path = "../../crates/tenure-relay/tests/probe/wallet.rs"]
mod wallet;

use std::fs::File;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use client::Client;
use serde_json::json;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Folder, Mining, Redis};
use wallet::{Raw, Wallet};

use crate::redis::{Goal, Table, median};

const ROUNDS: u64 = 5;
const SENDERS: u64 = 50;
/// The number of transactions per sender, one after the other.
const EACH: u64 = 40;
/// The number of transactions of the single sender.
const ALONE: u64 = 200;
/// The number of transactions that arrive at once.
const BURST: u64 = 1000;

/// When the node makes blocks.
const NODES: [(&str, Mining); 2] = [
    ("a block for each transaction", Mining::Auto),
    ("a block every 100 ms", Mining::Every(Duration::from_millis(100))),
];
/// A kind: no relay, or a relay with these arguments.
const KINDS: [(&str, Option<&[&str]>); 3] = [
    ("direct", None),
    ("relay", Some(&[])),
    ("checks alone", Some(&["--check-fee", "off", "--pending", "off", "--ordering", "off"])),
];
/// The kind that the goals apply to.
const RELAY: usize = 1;

/// The figures of one kind, one per round.
#[derive(Default)]
struct Figures {
    rates: Vec<f64>,
    /// The median of a transaction without other load.
    times: Vec<f64>,
    /// CPU per transaction.
    costs: [Vec<f64>; 4],
}

/// Needs a previous `cargo build --release -p tenure-cli --features relay`.
pub(crate) fn run() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime");
    let mut figures = NODES.map(|_| KINDS.map(|_| Figures::default()));
    for _ in 0..ROUNDS {
        for ((_, mining), figures) in NODES.iter().zip(&mut figures) {
            for ((_, relay), figures) in KINDS.iter().zip(figures) {
                // A new node each time: it gets slower as its chain grows.
                let node = Anvil::build().mining(*mining).start().expect("anvil starts");
                let redis = Redis::build().start().expect("Redis starts");
                let relay = relay.map(|args| Relay::start(&node, &redis, args));
                let direct = ([127, 0, 0, 1], node.port()).into();
                let address = relay.as_ref().map_or(direct, |relay| relay.address);
                let mut purse = Purse { node: &node, wallets: 0 };
                figures.times.push(runtime.block_on(alone(address, purse.payments(ALONE))));
                let crowd = (0..SENDERS).map(|_| purse.payments(EACH)).collect();
                let relay = relay.as_ref().map(|relay| relay.child.id());
                let processes =
                    [Some(std::process::id()), relay, Some(node.pid()), Some(redis.pid())];
                let before = processes.map(cpu);
                figures.rates.push(runtime.block_on(crowded(address, crowd)));
                for (whose, (process, before)) in processes.into_iter().zip(before).enumerate() {
                    let each = (cpu(process) - before) / (SENDERS * EACH) as f64;
                    figures.costs[whose].push(each);
                }
            }
        }
    }
    let bursts = [1, 3].map(|relays| {
        let burst = |round| runtime.block_on(burst(relays, round));
        (0..ROUNDS).map(burst).collect::<Vec<f64>>()
    });
    print(&figures, &bursts);
}

/// The processes whose CPU is measured.
const WHOSE: [&str; 4] = ["clients", "relay", "node", "Redis"];
const NODE: usize = 2;

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

fn print(figures: &[[Figures; 3]; 2], bursts: &[Vec<f64>; 2]) {
    let mut table = Table::default();
    for ((node, mining), figures) in NODES.iter().zip(figures) {
        table.heading(&format!("{SENDERS} senders in parallel, {node}, {ROUNDS} rounds"));
        crowd(&mut table, figures, *mining == Mining::Auto);
    }
    table.heading("one sender alone, a block for each transaction");
    let [direct, ..] = &figures[0];
    for ((kind, _), of) in KINDS.iter().zip(&figures[0]) {
        table.row(kind, "median ms of a transaction", None, &of.times);
    }
    for (at, ((kind, _), of)) in KINDS.iter().zip(&figures[0]).enumerate().skip(1) {
        let added: Vec<f64> = of.times.iter().zip(&direct.times).map(|(it, to)| it - to).collect();
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

/// The concurrent senders, on one kind of node.
fn crowd(table: &mut Table, figures: &[Figures; 3], has_goal: bool) {
    let [direct, ..] = figures;
    for ((kind, _), of) in KINDS.iter().zip(figures) {
        table.row(kind, "transactions a second", None, &of.rates);
    }
    let all = |of: &Figures, round: usize| -> f64 { of.costs.iter().map(|it| it[round]).sum() };
    let node = |of: &Figures, round: usize| of.costs[NODE][round];
    for (at, ((kind, _), of)) in KINDS.iter().zip(figures).enumerate().skip(1) {
        let share = |cost: &dyn Fn(&Figures, usize) -> f64| -> Vec<f64> {
            (0..ROUNDS as usize).map(|round| cost(direct, round) / cost(of, round)).collect()
        };
        let rates: Vec<f64> = of.rates.iter().zip(&direct.rates).map(|(it, of)| it / of).collect();
        let goal = (at == RELAY && has_goal).then_some(Goal::AtLeast(0.8));
        table.row(kind, "of direct", goal, &rates);
        table.row(kind, "of direct, by CPU", None, &share(&all));
        // The remaining share of the rate if the relay and Redis have processors of their own.
        table.row(kind, "of direct, by CPU of the node", None, &share(&node));
    }
    for ((kind, _), of) in KINDS.iter().zip(figures) {
        for (whose, values) in WHOSE.iter().zip(&of.costs) {
            table.row(kind, &format!("us of CPU a transaction, {whose}"), None, values);
        }
    }
}

/// Transactions per second of one sender, each sent to a relay in turn before any is answered.
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

/// Transactions per second of all senders together.
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

/// New wallets.
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

/// `tenure relay`, whose log goes to a file. Killed on drop.
struct Relay {
    child: Child,
    address: SocketAddr,
    _folder: Folder,
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
        let folder = Folder::new("relay").expect("a folder");
        let log = File::create(folder.path().join("log")).expect("a file");
        command.env("TENURE_URL", redis.url()).stdout(Stdio::piped()).stderr(log);
        let mut child = command.spawn().expect("it starts");
        let mut line = String::new();
        let output = child.stdout.take().expect("its output");
        BufReader::new(output).read_line(&mut line).expect("it says where it listens");
        let address = line.split("http://").nth(1).and_then(|rest| rest.split(',').next());
        let address = address.and_then(|address| address.parse().ok());
        let address = address.expect("it says where it listens");
        let relay = Relay { child, address, _folder: folder };
        // Excludes one-time work from the measurement.
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
