//! The central proofs of order on a second node, which refuses every nonce that is not next.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_relay::Gap;
use tenure_testkit::servers::{Hardhat, RealNode, Redis, eventually};

use super::relays;
use crate::probe::client::{Client, send};
use crate::probe::relays::config;
use crate::probe::wallet::{Raw, Wallet};

const SOON: Duration = Duration::from_secs(60);
const MANY: u64 = 40;

/// Writes each to the next address, before the one before is answered; how many were refused.
async fn refused(addresses: &[std::net::SocketAddr], raws: &[Raw]) -> usize {
    let mut clients = Vec::new();
    for at in 0..raws.len() {
        clients.push(Client::connect(addresses[at % addresses.len()]).await);
    }
    for (client, raw) in clients.iter_mut().zip(raws) {
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
    }
    let mut refused = 0;
    for (client, raw) in clients.iter_mut().zip(raws) {
        let answer = client.read().await.unwrap().json();
        refused += usize::from(answer["result"] != json!(raw.hash));
    }
    refused
}

/// The nonces of a sender, in the order of the blocks.
fn mined(node: &Hardhat, wallet: &Wallet) -> Vec<u64> {
    let number = |value: &Value| {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let last = number(&node.rpc("eth_blockNumber", json!([])).unwrap());
    let blocks = (0..=last)
        .map(|at| node.rpc("eth_getBlockByNumber", json!([format!("{at:#x}"), true])).unwrap());
    let transactions = blocks.flat_map(|block| block["transactions"].as_array().unwrap().clone());
    let own = transactions.filter(|one| one["from"] == json!(wallet.name()));
    own.map(|one| number(&one["nonce"])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_and_three_relays_keep_the_order_of_one_sender_on_hardhat() {
    let (node, redis) = (Hardhat::start().unwrap(), Redis::build().start().unwrap());
    // In reverse order, so that speed does not matter: all but the first arrive too early.
    let backwards = |number| {
        let mut raws = Wallet::rich(number, node.chain()).pay_many(MANY);
        raws.reverse();
        raws
    };
    let direct =
        refused(&[(std::net::Ipv4Addr::LOCALHOST, node.port()).into()], &backwards(0)).await;
    println!("directly: {direct} of {MANY} refused");
    assert!(direct > 0, "the danger is not there");
    let mut config = config(&node.url());
    config.gap = Gap::Hold(SOON);
    for (many, number) in [(1, 1), (3, 2)] {
        let relays = relays(&config, &redis, many).await;
        let addresses: Vec<_> = relays.iter().map(|relay| relay.address).collect();
        let wallet = Wallet::rich(number, node.chain());
        let refused = refused(&addresses, &backwards(number)).await;
        println!("{many} relays: {refused} of {MANY} refused");
        assert_eq!(refused, 0);
        let all = || node.nonce(&wallet.name(), "latest").unwrap() == MANY;
        eventually("all are mined", SOON, all).unwrap();
        assert_eq!(mined(&node, &wallet), (0..MANY).collect::<Vec<_>>());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_nonce_and_a_repetition_are_told_apart_on_hardhat() {
    let (node, redis) = (Hardhat::start().unwrap(), Redis::build().start().unwrap());
    let wallet = Wallet::rich(0, node.chain());
    let relays = relays(&config(&node.url()), &redis, 2).await;
    let first = wallet.pay(0);
    let mut known = Client::connect(relays[0].address).await.known_by("one");
    assert_eq!(known.ask(&send(1, &first.raw)).await["result"], json!(first.hash));
    // The same client, at another relay: its own transaction.
    let mut again = Client::connect(relays[1].address).await.known_by("one");
    assert_eq!(again.ask(&send(1, &first.raw)).await["result"], json!(first.hash));
    // Another client gets the node's answer.
    let mut other = Client::connect(relays[1].address).await;
    let collided = other.ask(&send(1, &first.raw)).await;
    assert!(collided["error"]["message"].is_string(), "{collided}");
    // Another transaction with a used nonce, and one that cannot be paid for.
    let used = other.ask(&send(1, &wallet.pay_of(0, 2).raw)).await;
    assert_eq!(used["error"]["data"]["reason"], json!("nonce_too_low"), "{used}");
    let poor = other.ask(&send(1, &Wallet::fresh(7, node.chain()).pay(0).raw)).await;
    assert!(poor["error"]["message"].is_string(), "{poor}");
    let next = wallet.pay(1);
    assert_eq!(other.ask(&send(1, &next.raw)).await["result"], json!(next.hash));
    assert_eq!(mined(&node, &wallet), [0, 1]);
}
