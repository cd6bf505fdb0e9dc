//! Four processes of the signer example pay from one wallet on a real node, and are killed at random: every
//! nonce is mined once, and no gap is left.
//!
//! `TENURE_SLOW=1` kills them more often.
#![cfg(feature = "alloy")]
#![allow(clippy::print_stderr, reason = "the figures of a run are worth reading")]

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Folder, Redis};

const SIGNERS: usize = 4;
const PAYMENTS: u64 = 500;
/// Anvil's first account, whose secret everybody knows.
const WALLET: &str = "0xf39fd6e51aad88f6f4ce6ab8827279cfffb92266";
const SECRET: &str = "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80";
const PAID: &str = "0x70997970c51812dc3a010c7d01b50e0d17dc79c8";

fn kills() -> u64 {
    if std::env::var_os("TENURE_SLOW").is_some() { 60 } else { 10 }
}

#[test]
fn signers_that_are_killed_leave_no_gap_and_use_no_nonce_twice_on_a_file() {
    let folder = Folder::new("signers").unwrap();
    prove(&format!("file:{}", folder.path().join("locks.db").display()), 3);
}

#[test]
fn signers_that_are_killed_leave_no_gap_and_use_no_nonce_twice_on_redis() {
    let redis = Redis::build().start().unwrap();
    prove(&redis.url(), 4);
}

/// A process of the example; killed on drop.
struct Signer {
    child: Child,
    payments: Option<ChildStdin>,
    said: Lines<BufReader<ChildStdout>>,
}

impl Signer {
    fn start(engine: &str, node: &Anvil) -> Signer {
        // Cargo builds the examples along with the tests, beside the folder of the test programs.
        let tests = std::env::current_exe().unwrap();
        let program = tests.ancestors().nth(2).unwrap().join("examples/signer");
        let build = "cargo build -p tenure-relay --example signer --features alloy";
        assert!(program.exists(), "run `{build}` first: no {program:?}");
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL"]).arg(program);
        command.env("TENURE_URL", engine).env("NODE_URL", node.url());
        command.env("SIGNER_SECRET", SECRET).env("SIGNER_UNKNOWN_FOR", "2");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (payments, said) = (child.stdin.take(), child.stdout.take().unwrap());
        Signer { child, payments, said: BufReader::new(said).lines() }
    }

    /// Whether it said that it had paid before it ended.
    fn pays(&mut self, amount: u64) -> bool {
        let asked = writeln!(self.payments.as_mut().unwrap(), "{PAID} {amount}");
        let said = asked.ok().and_then(|()| self.said.next()?.ok());
        match said {
            Some(said) if said.starts_with(&format!("paid {amount} ")) => true,
            Some(said) => panic!("a signer said {said:?}"),
            None => false,
        }
    }

    /// Lets it come to its end, which fills gaps.
    fn ends(mut self) {
        drop(self.payments.take());
        let rest: Vec<String> = self.said.by_ref().map_while(Result::ok).collect();
        assert!(rest.iter().all(|line| line.starts_with("filled ")), "{rest:?}");
        assert!(self.child.wait().unwrap().success());
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
}

impl Work {
    fn take(&self) -> Option<u64> {
        self.amounts.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    /// Whether it is time for a kill: they are spread over the payments.
    fn is_kill_due(&self) -> bool {
        let due = |killed: u64| {
            let at = (killed + 1) * PAYMENTS / (kills() + 1);
            (killed < kills() && self.paid.load(Ordering::Relaxed) >= at).then_some(killed + 1)
        };
        self.killed.fetch_update(Ordering::Relaxed, Ordering::Relaxed, due).is_ok()
    }
}

fn prove(engine: &str, seed: u64) {
    let began = Instant::now();
    let node = Anvil::build().start().unwrap();
    let (paid, killed) = (AtomicU64::new(0), AtomicU64::new(0));
    let work = Work { amounts: Mutex::new((1..=PAYMENTS).rev().collect()), paid, killed };
    std::thread::scope(|scope| {
        for number in 0..SIGNERS {
            let (work, node) = (&work, &node);
            let rng = Rng::new(seed * 100 + number as u64);
            scope.spawn(move || pay(engine, node, work, rng));
        }
    });
    let killed = work.killed.load(Ordering::Relaxed);
    let mined = look_at_the_chain(&node, killed);
    let what = engine.split(':').next().unwrap();
    eprintln!("{what}: {mined} mined, {killed} kills, {:?}", began.elapsed());
}

/// One signer after another, each until it is killed.
fn pay(engine: &str, node: &Anvil, work: &Work, mut rng: Rng) {
    let mut signer = Signer::start(engine, node);
    while let Some(amount) = work.take() {
        let mut is_paid = false;
        while !is_paid {
            let victim = work.is_kill_due().then(|| rng.micros(0, 30_000));
            is_paid = match victim {
                None => signer.pays(amount),
                Some(life) => {
                    let paid = pays_while_it_is_killed(&mut signer, amount, life);
                    signer = Signer::start(engine, node);
                    paid
                }
            };
        }
        work.paid.fetch_add(1, Ordering::Relaxed);
    }
    signer.ends();
}

fn pays_while_it_is_killed(signer: &mut Signer, amount: u64, life: Duration) -> bool {
    let pid = rustix::process::Pid::from_child(&signer.child);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(life);
            // Not waited for before the scope ends, so the id is still its own.
            rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
        });
        signer.pays(amount)
    })
}

/// Every nonce once, every payment, nothing that waits. Returns how many were mined.
fn look_at_the_chain(node: &Anvil, killed: u64) -> u64 {
    let pool = node.rpc("txpool_status", json!([])).unwrap();
    assert_eq!((&pool["pending"], &pool["queued"]), (&json!("0x0"), &json!("0x0")), "{pool}");
    let mined = node.nonce(WALLET, "latest").unwrap();
    assert_eq!(node.nonce(WALLET, "pending").unwrap(), mined);
    let (mut nonces, mut amounts) = (BTreeMap::new(), BTreeMap::new());
    let last = number(&node.rpc("eth_blockNumber", json!([])).unwrap());
    for block in 0..=last {
        let block = node.rpc("eth_getBlockByNumber", json!([format!("{block:#x}"), true])).unwrap();
        for transaction in block["transactions"].as_array().unwrap() {
            assert_eq!(transaction["from"], WALLET);
            *nonces.entry(number(&transaction["nonce"])).or_insert(0) += 1;
            *amounts.entry(number(&transaction["value"])).or_insert(0) += 1;
        }
    }
    assert!(nonces.values().all(|times| *times == 1), "{nonces:?}");
    assert!(nonces.keys().copied().eq(0..mined), "{nonces:?}");
    // Whoever was killed may have paid before it could say so; what fills gaps pays nothing.
    amounts.remove(&0);
    assert!(amounts.keys().copied().eq(1..=PAYMENTS), "{amounts:?}");
    let twice: u64 = amounts.values().map(|times| times - 1).sum();
    assert!(twice <= killed, "{twice} were paid twice");
    mined
}

fn number(value: &Value) -> u64 {
    u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}
