//! Every kind of transaction, through a relay to a real node.

use std::time::Duration;

use serde_json::json;
use tenure_relay::transaction::Unprotected;
use tenure_testkit::servers::{Anvil, eventually};

use crate::probe::client::send;
use crate::probe::relays::{Instance, config};
use crate::probe::wallet::{Kind, Wallet};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_node_gets_every_kind_of_transaction_as_it_was_signed() {
    let node = Anvil::build().arg("--hardfork").arg("prague").start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let mut config = config(&node.url());
    config.rules.unprotected = Unprotected::Take;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    for (nonce, kind) in (0..).zip(Kind::ALL) {
        let raw = wallet.of_kind(kind, nonce);
        let answer = client.ask(&send(nonce, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{kind:?}: {answer}");
    }
    let all = || node.nonce(&wallet.name(), "latest").unwrap() == 6;
    eventually("all are mined", Duration::from_secs(20), all).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_chain_it_is_refused_and_the_node_never_sees_it() {
    let node = Anvil::build().start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let raw = wallet.of_kind(Kind::Unprotected, 0);
    let answer = client.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["error"]["data"]["reason"], json!("unprotected"), "{answer}");
    let raw = Wallet::rich(0, node.chain() + 1).pay(0);
    let answer = client.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["error"]["data"]["reason"], json!("chain_id"), "{answer}");
    assert_eq!(node.nonce(&wallet.name(), "pending").unwrap(), 0);
}
