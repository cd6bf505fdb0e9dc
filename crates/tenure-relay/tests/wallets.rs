//! The wallets of the tests, against a real node: each kind of transaction is taken as signed.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

mod probe;

use std::time::Duration;

use probe::client::Client;
use probe::wallet::{Kind, Wallet};
use serde_json::json;
use tenure_testkit::servers::{Anvil, eventually};

#[tokio::test]
async fn a_real_node_takes_every_kind_of_transaction() {
    let node = Anvil::build().arg("--hardfork").arg("prague").start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let accounts = node.rpc("eth_accounts", json!([])).unwrap();
    assert_eq!(accounts[0].as_str(), Some(wallet.name().as_str()));
    let mut client = Client::connect(([127, 0, 0, 1], node.port()).into()).await;
    for (nonce, kind) in (0..).zip(Kind::ALL) {
        let raw = wallet.of_kind(kind, nonce);
        let answer = client.call("eth_sendRawTransaction", json!([raw.raw])).await;
        assert_eq!(answer["result"], json!(raw.hash), "{kind:?}: {answer}");
    }
    let all = || node.nonce(&wallet.name(), "latest").unwrap() == 6;
    eventually("all are mined", Duration::from_secs(20), all).unwrap();
}
