//! What people write: scripts of ethers, viem and web3.py, through relays, on two nodes by different makers.
#![cfg(feature = "relay")]

use crate::probe;

mod order;
mod payments;

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tenure::Tenure;
use tenure_relay::{Config, Gap};
use tenure_testkit::servers::{Anvil, Hardhat, Javascript, Python, RealNode, Redis};

use probe::relays::{Instance, config};

/// The secret of the accounts of both nodes, which everybody knows.
const SECRETS: [&str; 2] = [
    "0xac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80",
    "0x59c6995e998f97a5a0044966f0945389dc9e86dae88c7a8412f4603b6b78690d",
];

/// Relays on one engine, each with a connection of its own.
async fn relays(config: &Config, redis: &Redis, many: usize) -> Vec<Instance> {
    let mut relays = Vec::new();
    for _ in 0..many {
        let tenure = Tenure::connect(&redis.url()).await.unwrap();
        relays.push(Instance::start(config.clone(), &tenure).await);
    }
    relays
}

/// Runs a script with the relays in front of a node; it must say that all is well.
async fn passes(node: &impl RealNode, mut command: Command, secret: &str) {
    let redis = Redis::build().start().unwrap();
    let mut config = config(&node.url());
    config.check_balance = true;
    (config.nonces, config.nonces_for) = (true, Duration::from_secs(10));
    config.gap = Gap::Hold(Duration::from_secs(2));
    let relays = relays(&config, &redis, 3).await;
    let urls: Vec<String> =
        relays.iter().map(|relay| format!("http://{}", relay.address)).collect();
    command.env("RELAYS", urls.join(",")).env("SECRET", secret);
    let ended = tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap();
    let said = String::from_utf8_lossy(&ended.stdout);
    let why = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success() && said.contains("all as expected"), "{said}{why}");
}

fn python() -> Command {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/libraries/web3_script.py");
    Python::command(&script).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ethers_finds_what_it_expects() {
    let script = Javascript::new(include_str!("libraries/ethers.mjs")).unwrap();
    passes(&Anvil::build().start().unwrap(), script.command(), SECRETS[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn viem_finds_what_it_expects() {
    let script = Javascript::new(include_str!("libraries/viem.mjs")).unwrap();
    passes(&Anvil::build().start().unwrap(), script.command(), SECRETS[0]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn web3_py_finds_what_it_expects() {
    passes(&Anvil::build().start().unwrap(), python(), SECRETS[0]).await;
}

/// One node for all of them: it takes seconds to start.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_of_them_find_the_same_on_hardhat() {
    let node = Hardhat::start().unwrap();
    let ethers = Javascript::new(include_str!("libraries/ethers.mjs")).unwrap();
    let viem = Javascript::new(include_str!("libraries/viem.mjs")).unwrap();
    passes(&node, ethers.command(), SECRETS[0]).await;
    passes(&node, viem.command(), SECRETS[1]).await;
    passes(&node, python(), SECRETS[1]).await;
}
