//! The scripts that the guide prints: four processes of Node.js pay from one wallet through relays, and are
//! killed at random. Every nonce is mined once, none is left out, and every payment is made.

use std::io::{BufRead, BufReader, Lines, Write};
use std::process::{Child, ChildStdin, ChildStdout, Stdio};
use std::time::{Duration, Instant};

use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Javascript, Redis};

use super::{SECRETS, relays};
use crate::probe::payments::{self, Payments};
use crate::probe::relays::{Instance, config};

const SIGNERS: usize = 4;
const PAYMENTS: u64 = 60;
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

/// A script of the guide, as printed.
fn printed(number: usize) -> String {
    let guide = include_str!("../../../../docs/nonces.md");
    let blocks: Vec<&str> = guide.split("```js\n").skip(1).collect();
    blocks[number].split("```").next().unwrap().to_owned()
}

async fn prove(script: Script, many: usize) {
    let (node, redis) = (payments::node(), Redis::build().start().unwrap());
    let mut config = config(&node.url());
    (config.nonces, config.nonces_for) = (true, script.lasts);
    let relays = relays(&config, &redis, many).await;
    let printed = Javascript::new(&printed(script.number)).unwrap();
    tokio::task::block_in_place(|| {
        pay_all(&printed, &relays, script.kills).look_at_the_chain(&node);
    });
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

fn pay_all(script: &Javascript, relays: &[Instance], kills: u64) -> Payments {
    let began = Instant::now();
    let work = Payments::new(PAYMENTS, kills);
    std::thread::scope(|scope| {
        for number in 0..SIGNERS {
            let (work, relay) = (&work, &relays[number % relays.len()]);
            let rng = Rng::new(number as u64);
            scope.spawn(move || pay(script, relay, work, rng));
        }
    });
    let killed = work.killed();
    println!("{} relays: {PAYMENTS} paid, {killed} kills, {:?}", relays.len(), began.elapsed());
    assert_eq!(killed, kills);
    work
}

/// One signer after another, each until it is killed.
fn pay(script: &Javascript, relay: &Instance, work: &Payments, mut rng: Rng) {
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
        work.is_paid();
    }
}
