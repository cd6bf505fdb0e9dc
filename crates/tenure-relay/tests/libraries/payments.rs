//! The scripts that the guide prints: four processes of Node.js pay from one wallet through relays, and are
//! killed at random. Every nonce is mined once, none is left out, and every payment is made.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Javascript, Redis};

use super::{SECRETS, relays};
use crate::probe::relays::{Instance, config};

const SIGNERS: usize = 4;
const PAYMENTS: u64 = 60;
const WALLET: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
const PAID: &str = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";

/// A script of the guide.
#[derive(Clone, Copy)]
struct Script {
    /// Which one it is, by their order.
    number: usize,
    kills: u64,
    /// How long a nonce stays reserved. Whoever reserves and is too slow, on a busy machine, begins anew;
    /// whoever asks for a count fails.
    lasts: Duration,
}

const RESERVES: Script = Script { number: 0, kills: 5, lasts: Duration::from_secs(2) };
const COUNTS: Script = Script { number: 1, kills: 2, lasts: Duration::from_secs(10) };

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signers_that_reserve_and_are_killed_leave_no_gap_at_one_relay() {
    prove(RESERVES, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signers_that_reserve_and_are_killed_leave_no_gap_at_three_relays() {
    prove(RESERVES, 3).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_ask_for_a_count_and_are_killed_leave_no_gap_at_one_relay() {
    prove(COUNTS, 1).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn programs_that_ask_for_a_count_and_are_killed_leave_no_gap_at_three_relays() {
    prove(COUNTS, 3).await;
}

/// A script of the guide, as it is printed.
fn printed(number: usize) -> String {
    let guide = include_str!("../../../../docs/nonces.md");
    let blocks: Vec<&str> = guide.split("```js\n").skip(1).collect();
    blocks[number].split("```").next().unwrap().to_owned()
}

async fn prove(script: Script, many: usize) {
    let (node, redis) = (Anvil::build().start().unwrap(), Redis::build().start().unwrap());
    let mut config = config(&node.url());
    (config.nonces, config.nonces_for) = (true, script.lasts);
    let relays = relays(&config, &redis, many).await;
    let printed = Javascript::new(&printed(script.number)).unwrap();
    tokio::task::block_in_place(|| pay_all(&printed, &relays, script.kills));
    look_at_the_chain(&node, script.kills);
}

/// A process of the script; killed on drop.
struct Signer {
    child: Child,
    payments: ChildStdin,
    said: Lines<BufReader<ChildStdout>>,
}

impl Signer {
    fn start(script: &Javascript, relay: &Instance) -> Signer {
        let mut command = script.command();
        command.env("RELAY_URL", format!("http://{}/?nonces=reserve", relay.address));
        command.env("SIGNER_SECRET", SECRETS[0]);
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (payments, said) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        Signer { child, payments, said: BufReader::new(said).lines() }
    }

    /// Whether it said that it had paid before it ended.
    fn pays(&mut self, amount: u64) -> bool {
        let asked = writeln!(self.payments, "{PAID} {amount}");
        match asked.ok().and_then(|()| self.said.next()?.ok()) {
            Some(said) if said.starts_with(&format!("paid {amount} ")) => true,
            Some(said) => panic!("a signer said {said:?}"),
            None => false,
        }
    }

    fn pays_while_it_is_killed(&mut self, amount: u64, life: Duration) -> bool {
        let pid = rustix::process::Pid::from_child(&self.child);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                std::thread::sleep(life);
                // Not waited for before the scope ends, so the id is still its own.
                let _ = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            });
            self.pays(amount)
        })
    }
}

impl Drop for Signer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What is left to be paid, and what was.
struct Work {
    amounts: Mutex<Vec<u64>>,
    paid: AtomicU64,
    killed: AtomicU64,
    kills: u64,
}

impl Work {
    fn take(&self) -> Option<u64> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Whether it is time for a kill: they are spread over the payments.
    fn is_kill_due(&self) -> bool {
        let due = |killed: u64| {
            let at = (killed + 1) * PAYMENTS / (self.kills + 1);
            (killed < self.kills && self.paid.load(Ordering::Relaxed) >= at).then_some(killed + 1)
        };
        self.killed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

fn pay_all(script: &Javascript, relays: &[Instance], kills: u64) {
    let began = Instant::now();
    let (paid, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = Work { amounts: Mutex::new((1..=PAYMENTS).rev().collect()), paid, killed, kills };
    std::thread::scope(|scope| {
        for number in 0..SIGNERS {
            let (work, relay) = (&work, &relays[number % relays.len()]);
            let rng = Rng::new(number as u64);
            scope.spawn(move || pay(script, relay, work, rng));
        }
    });
    let killed = work.killed.load(Ordering::Relaxed);
    println!("{} relays: {PAYMENTS} paid, {killed} kills, {:?}", relays.len(), began.elapsed());
    assert_eq!(killed, kills);
}

/// One signer after another, each until it is killed.
fn pay(script: &Javascript, relay: &Instance, work: &Work, mut rng: Rng) {
    let mut signer = Signer::start(script, relay);
    while let Some(amount) = work.take() {
        if work.is_kill_due() {
            let is_paid = signer.pays_while_it_is_killed(amount, rng.micros(0, 120_000));
            signer = Signer::start(script, relay);
            if !is_paid {
                assert!(signer.pays(amount), "it ended before it had paid");
            }
        } else {
            assert!(signer.pays(amount), "it ended before it had paid");
        }
        work.paid.fetch_add(1, Ordering::Relaxed);
    }
}

/// Every nonce once, every payment, nothing that waits.
fn look_at_the_chain(node: &Anvil, killed: u64) {
    let number = |value: &Value| {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let pool = node.rpc("txpool_status", json!([])).unwrap();
    assert_eq!((&pool["pending"], &pool["queued"]), (&json!("0x0"), &json!("0x0")), "{pool}");
    let (mut nonces, mut amounts) = (Vec::new(), BTreeMap::new());
    let last = number(&node.rpc("eth_blockNumber", json!([])).unwrap());
    for block in 0..=last {
        let block = node.rpc("eth_getBlockByNumber", json!([format!("{block:#x}"), true])).unwrap();
        for transaction in block["transactions"].as_array().unwrap() {
            assert_eq!(transaction["from"], WALLET);
            nonces.push(number(&transaction["nonce"]));
            *amounts.entry(number(&transaction["value"])).or_insert(0_u64) += 1;
        }
    }
    assert_eq!(nonces, (0..nonces.len() as u64).collect::<Vec<_>>());
    assert!(amounts.keys().copied().eq(1..=PAYMENTS), "{amounts:?}");
    // Whoever was killed may have paid before it could say so.
    let twice: u64 = amounts.values().map(|times| times - 1).sum();
    assert!(twice <= killed, "{twice} were paid twice");
}
