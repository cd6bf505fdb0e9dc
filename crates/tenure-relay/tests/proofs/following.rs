//! A sender's next transaction goes to the node in one request with the question whether it was next.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::{Anvil, eventually};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const LONG: Duration = Duration::from_secs(60);

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_default()
}

/// Whoever sends one after the other waits for one answer of the node each time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_is_sent_in_one_request_with_the_question_whether_it_was_next() {
    let node = scripted();
    let mut config = config(&node.url());
    // It would be asked for once a second, in a request of its own.
    config.check_fee = false;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    for raw in Wallet::fresh(1, CHAIN).pay_many(5) {
        assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
    }
    let asked: Vec<String> = node.arrivals().into_iter().map(|arrival| arrival.method).collect();
    let is_told = |method: &&str| [SEND, COUNT].contains(method);
    let asked: Vec<&str> = asked.iter().map(String::as_str).filter(is_told).collect();
    assert_eq!(asked, [&[COUNT, SEND][..], &[SEND, COUNT].repeat(4)].concat());
}

/// The node has lost what it took a moment ago, and keeps what comes behind the gap. Nobody is told that this was sent
/// before the gap is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_sent_behind_a_gap_is_not_called_sent_before_the_gap_is_closed() {
    const WINDOW: Duration = Duration::from_secs(1);
    for is_closed in [false, true] {
        let node = Anvil::build().start().unwrap();
        let wallet = Wallet::rich(0, node.chain());
        let raws = wallet.pay_many(2);
        let mut config = config(&node.url());
        config.gap = Gap::Hold(if is_closed { LONG } else { WINDOW });
        config.check_fee = false;
        let relay = Instance::alone(config).await;
        let mut client = relay.client().await;
        let snapshot = node.rpc("evm_snapshot", json!([])).unwrap();
        assert_eq!(client.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
        let count = |at| node.nonce(&wallet.name(), at).unwrap();
        eventually("it is mined", LONG, || count("latest") == 1).unwrap();
        assert_eq!(node.rpc("evm_revert", json!([snapshot])).unwrap(), json!(true));
        client.write(&send(2, &raws[1].raw).to_string()).await.unwrap();
        let is_queued = || node.rpc("txpool_status", json!([])).unwrap()["queued"] == json!("0x1");
        eventually("the node keeps it", LONG, is_queued).unwrap();
        let mut other = relay.client().await;
        if is_closed {
            assert_eq!(other.ask(&send(3, &raws[0].raw)).await["result"], json!(raws[0].hash));
            let answer = client.read().await.unwrap().json();
            assert_eq!(answer["result"], json!(raws[1].hash), "{answer}");
        } else {
            let answer = client.read().await.unwrap().json();
            assert_eq!(reason(&answer), "outcome_unknown", "{answer}");
            assert_eq!(count("pending"), 0);
            assert_eq!(other.ask(&send(3, &raws[0].raw)).await["result"], json!(raws[0].hash));
        }
        eventually("both are mined", LONG, || count("latest") == 2).unwrap();
    }
}

/// A node that refuses the one that follows is heard as at any other time.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_and_is_refused_is_rejected_in_the_words_of_the_node() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    for (number, said) in (1..).zip(["insufficient funds", "the moon is full"]) {
        let raws = Wallet::fresh(number, CHAIN).pay_many(2);
        assert_eq!(client.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
        node.always(SEND, Conduct::Refuse(-32000, said.to_owned()));
        let answer = client.ask(&send(2, &raws[1].raw)).await;
        assert_eq!(answer["error"]["message"], json!(said), "{answer}");
        node.behave();
        assert_eq!(client.ask(&send(3, &raws[1].raw)).await["result"], json!(raws[1].hash));
    }
}

/// The connection breaks after the node took it: it is found, and not taken for another's.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_follows_and_is_not_answered_is_looked_for() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let unanswered = [Conduct::DoThenClose, Conduct::DoThenTrouble(502), Conduct::Close];
    for (number, conduct) in (1..).zip(unanswered) {
        let raws = Wallet::fresh(number, CHAIN).pay_many(2);
        assert_eq!(client.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
        node.next(SEND, conduct.clone());
        let answer = client.ask(&send(2, &raws[1].raw)).await;
        assert_eq!(answer["result"], json!(raws[1].hash), "{conduct:?}: {answer}");
    }
    assert_eq!(node.sent().len(), 6);
}
