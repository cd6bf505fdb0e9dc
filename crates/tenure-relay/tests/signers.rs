//! Four processes of the signer example pay from one wallet on a real node, and are killed at random: every
//! nonce is mined once, and no gap is left.
//!
//! `TENURE_SLOW=1` kills them more often.
#![cfg(feature = "alloy")]
#![allow(clippy::print_stderr, reason = "the figures of a run are worth reading")]

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Folder, Redis};

use crate::probe::payments::{self, Payments};

const SIGNERS: usize = 4;
const PAYMENTS: u64 = 500;
/// The secret of anvil's first account, which everybody knows.
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

    /// Whether it said that it had paid before it was killed.
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

fn prove(engine: &str, seed: u64) {
    let began = Instant::now();
    let node = payments::node();
    let work = Payments::new(PAYMENTS, kills());
    std::thread::scope(|scope| {
        for number in 0..SIGNERS {
            let (work, node) = (&work, &node);
            let rng = Rng::new(seed * 100 + number as u64);
            scope.spawn(move || pay(engine, node, work, rng));
        }
    });
    let (mined, killed) = (work.look_at_the_chain(&node), work.killed());
    let what = engine.split(':').next().unwrap();
    eprintln!("{what}: {mined} mined, {killed} kills, {:?}", began.elapsed());
}

/// One signer after another, each until it is killed.
fn pay(engine: &str, node: &Anvil, work: &Payments, mut rng: Rng) {
    let mut signer = Signer::start(engine, node);
    while let Some(amount) = work.take() {
        let mut is_paid = false;
        while !is_paid {
            let victim = work.is_kill_due().then(|| rng.micros(0, 30_000));
            is_paid = match victim {
                None => {
                    assert!(signer.pays(amount), "a signer ended by itself");
                    true
                }
                Some(life) => {
                    let paid = pays_while_it_is_killed(&mut signer, amount, life);
                    signer = Signer::start(engine, node);
                    paid
                }
            };
        }
        work.is_paid();
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
