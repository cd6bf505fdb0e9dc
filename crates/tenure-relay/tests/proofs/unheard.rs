//! Answers that do not say what became of a transaction, and what they must not be taken for.

use std::time::Duration;

use serde_json::json;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::{Anvil, Mining, eventually};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const LOOK: &str = "eth_getTransactionByHash";
const SOON: Duration = Duration::from_secs(60);

/// The first node has it and falls silent; the second, asked next, would not take it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_of_another_node_after_silence_does_not_free_the_nonce() {
    let (silent, other) = (scripted(), scripted());
    let mut config = config(&silent.url());
    config.nodes.push(other.url().parse().unwrap());
    config.answer_within = Duration::from_millis(200);
    (config.max_hold, config.ttl) = (Duration::from_secs(3), Duration::from_secs(3));
    let relay = Instance::alone(config).await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    silent.next(SEND, Conduct::DoThenHang);
    other.always(SEND, Conduct::Refuse(-32000, "insufficient funds".to_owned()));
    let mut client = relay.client().await;
    client.write(&send(1, &raw.raw).to_string()).await.unwrap();
    eventually("the first has it", SOON, || silent.hanging() == 1).unwrap();
    for method in [SEND, COUNT, LOOK, "eth_chainId"] {
        silent.always(method, Conduct::Close);
    }
    let answer = client.read().await.unwrap().json();
    assert_eq!(answer["error"]["code"], json!(-32050), "{answer}");
    assert_eq!(answer["error"]["data"]["class"], json!("unknown"), "{answer}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_is_no_no_is_looked_into() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let conducts = [
        Conduct::DoThenRefuse(-32002, "request timed out".to_owned()),
        Conduct::DoThenRefuse(-32000, "context deadline exceeded".to_owned()),
        Conduct::DoThenRefuse(-32603, "internal error".to_owned()),
        // As if the one before had been sent by somebody else.
        Conduct::DoThenRefuse(-32000, "nonce too low".to_owned()),
        Conduct::DoThenRefuse(-32000, "already known".to_owned()),
        Conduct::OtherResult("0x00".to_owned()),
    ];
    for (nonce, conduct) in (0..).zip(conducts) {
        node.next(SEND, conduct.clone());
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(nonce, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{conduct:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_no_comes_back_as_it_was_said() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    for no in ["unknown transaction type", "txpool is full", "transaction underpriced"] {
        node.next(SEND, Conduct::Refuse(-32000, no.to_owned()));
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["error"]["message"], json!(no), "{answer}");
        assert_eq!(node.sent().len(), 0);
    }
    assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
}

/// Who pays more may take the place of what waits: the node judges that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_waits_can_be_replaced() {
    let node = Anvil::build().mining(Mining::Never).start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let (first, second) = (wallet.pay(0), wallet.pay_at(0, 2, 2));
    assert_eq!(client.ask(&send(1, &first.raw)).await["result"], json!(first.hash));
    let cheap = client.ask(&send(2, &wallet.pay_of(0, 3).raw)).await;
    assert!(cheap["error"]["message"].as_str().unwrap().contains("underpriced"), "{cheap}");
    let answer = client.ask(&send(3, &second.raw)).await;
    assert_eq!(answer["result"], json!(second.hash), "{answer}");
    node.mine(1).unwrap();
    let receipt = |hash: &str| node.rpc("eth_getTransactionReceipt", json!([hash])).unwrap();
    assert!(receipt(&second.hash).is_object() && receipt(&first.hash).is_null());
    // What is in a block cannot be.
    let late = client.ask(&send(4, &wallet.pay_at(0, 4, 4).raw)).await;
    assert!(late["error"]["message"].as_str().unwrap().contains("nonce too low"), "{late}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_asks_is_asked_of_another_node() {
    let (first, second) = (scripted(), scripted());
    let mut config = config(&first.url());
    config.nodes.push(second.url().parse().unwrap());
    config.answer_within = Duration::from_millis(500);
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    for (number, conduct) in (1..).zip([Conduct::Close, Conduct::Hang, Conduct::Html(502)]) {
        first.next(COUNT, conduct.clone());
        let raw = Wallet::fresh(number, CHAIN).pay(0);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{conduct:?}: {answer}");
    }
    assert!(second.calls(COUNT) > 0);
    assert_eq!(first.sent().len() + second.sent().len(), 3);
}
