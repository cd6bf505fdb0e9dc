//! The meaning of a node's error: a refusal is passed on only if the node certainly does not have the transaction.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::node::Conduct;

use crate::probe::client::send;
use crate::probe::gate::Gate;
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const BY_HASH: &str = "eth_getTransactionByHash";
const WITHIN: Duration = Duration::from_millis(300);
/// Longer than a test may take: what ends before it was not cut off.
const LONG: Duration = Duration::from_secs(60);

fn no(text: &str) -> Conduct {
    Conduct::Refuse(-32000, text.to_owned())
}

/// Errors of a node, or of a proxy, that say nothing about the transaction.
fn unsure() -> [(i64, &'static str); 3] {
    [
        (-32002, "request timed out"),
        (-32603, "Internal error"),
        (-32000, "upstream request timeout"),
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_no_of_one_node_says_nothing_about_the_other_that_may_have_it() {
    for text in ["insufficient funds for gas * price + value", "txpool is full", "nonce too low"] {
        let (first, second) = (scripted(), scripted());
        let mut config = config(&first.url());
        config.nodes.push(second.url().parse().unwrap());
        (config.answer_within, config.max_hold) = (WITHIN, LONG);
        let relay = Instance::alone(config).await;
        let mut client = relay.client().await;
        // It has taken it, and is of no use from then on.
        first.at(SEND, 1, Conduct::DoThenHang);
        first.always(SEND, Conduct::Html(502));
        first.always(BY_HASH, Conduct::Html(502));
        second.always(SEND, no(text));
        let raw = Wallet::fresh(1, CHAIN).pay(0);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["error"]["code"], json!(-32050), "{text}: {answer}");
        assert_eq!(answer["error"]["data"]["class"], json!("unknown"), "{answer}");
        assert_eq!(answer["error"]["data"]["hash"], json!(raw.hash), "{answer}");
        assert_eq!(first.sent().len(), 1);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_says_nothing_about_the_transaction_is_looked_into() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let refuse = |(code, text): (i64, &str)| Conduct::DoThenRefuse(code, text.to_owned());
    let mut conducts: Vec<Conduct> = unsure().into_iter().map(refuse).collect();
    conducts.extend([500, 503, 429].map(Conduct::DoThenTrouble));
    for (nonce, conduct) in (0..).zip(conducts) {
        node.next(SEND, conduct.clone());
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{conduct:?}: {answer}");
        assert_eq!(node.calls(SEND) as u64, nonce + 1, "{conduct:?}: it is found, not sent again");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_error_that_stays_is_passed_on_and_the_lane_is_free() {
    let node = scripted();
    let mut config = config(&node.url());
    config.max_hold = LONG;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let refuse = |(code, text): (i64, &str)| (Conduct::Refuse(code, text.to_owned()), text.into());
    let mut conducts: Vec<(Conduct, String)> = unsure().into_iter().map(refuse).collect();
    conducts.extend([500, 503].map(|it| (Conduct::Trouble(it), "service unavailable".into())));
    for (nonce, (conduct, text)) in (0..).zip(conducts) {
        node.always(SEND, conduct.clone());
        let answer = client.ask(&send(1, &wallet.pay_of(nonce, 9).raw)).await;
        assert_eq!(answer["error"]["message"], json!(text), "{conduct:?}: {answer}");
        node.behave();
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "after {conduct:?}: {answer}");
    }
}

/// A node that counts late: it has the transaction, says that the nonce is used, and cannot say by whom.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_used_nonce_is_a_no_only_if_it_is_known_whose_it_is() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let low = || "nonce too low: next nonce 1, tx nonce 0".to_owned();
    node.next(SEND, Conduct::DoThenRefuse(-32000, low()));
    node.always(SEND, no(&low()));
    for _ in 0..3 {
        node.next(BY_HASH, Conduct::Html(502));
    }
    let raw = wallet.pay(0);
    let answer = client.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    assert_eq!(node.sent().len(), 1);
}

/// Where nobody can look it up, it is not sent as fast as the node can say no.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_cannot_look_it_up_is_not_asked_without_a_pause() {
    let node = scripted();
    let mut config = config(&node.url());
    config.max_hold = Duration::from_secs(1);
    config.ttl = config.max_hold;
    let relay = Instance::alone(config).await;
    node.always(SEND, no("nonce too low"));
    node.always(BY_HASH, Conduct::Html(502));
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    let answer = relay.client().await.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["error"]["code"], json!(-32050), "{answer}");
    let calls = node.calls(SEND);
    assert!((2..20).contains(&calls), "{calls}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_type_that_the_node_does_not_know_is_a_no() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    for text in ["unknown transaction type", "Unknown transaction type 4"] {
        node.next(SEND, no(text));
        let answer = client.ask(&send(1, &wallet.pay(0).raw)).await;
        assert_eq!(answer["error"]["message"], json!(text), "{answer}");
    }
    node.next(SEND, Conduct::DoThenRefuse(-32010, "AlreadyKnown".to_owned()));
    let raw = wallet.pay(0);
    assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
}

/// Some nodes say "already known" of a transaction that they have just refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_transaction_that_is_called_known_is_looked_up_before_it_counts_as_accepted() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    node.always(SEND, no("already known"));
    let answer = client.ask(&send(1, &wallet.pay_of(0, 9).raw)).await;
    assert_eq!(answer["error"]["message"], json!("already known"), "{answer}");
    node.behave();
    let raw = wallet.pay(0);
    assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash), "the lane is free");
}

/// An unlisted phrase: the state of the chain decides.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unlisted_no_is_looked_up_by_hash_and_nonce() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let words = || "computer says no".to_owned();
    node.next(SEND, Conduct::DoThenRefuse(-32000, words()));
    let taken = wallet.pay(0);
    assert_eq!(client.ask(&send(1, &taken.raw)).await["result"], json!(taken.hash));
    node.next(SEND, no(&words()));
    let sent = node.calls(SEND);
    let answer = client.ask(&send(1, &wallet.pay(1).raw)).await;
    assert_eq!(answer["error"]["message"], json!(words()), "{answer}");
    assert_eq!(node.calls(SEND), sent + 1, "the nonce is free, so the node has decided");
    // It has it, counts it, and finds it a little later.
    node.next(SEND, Conduct::DoThenRefuse(-32000, words()));
    node.next(BY_HASH, Conduct::Say(Value::Null));
    let late = wallet.pay(1);
    assert_eq!(client.ask(&send(1, &late.raw)).await["result"], json!(late.hash));
}

/// Whatever else the node returns as a result, the relay looks for the transaction, and sends it if it is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_that_is_not_the_hash_is_not_believed() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    let others = [Value::Null, json!(wallet.pay(7).hash), json!("0x"), json!(true)];
    for (nonce, other) in (0..).zip(others) {
        node.next(SEND, Conduct::Say(other.clone()));
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{other}: {answer}");
        assert_eq!(node.sent().len() as u64, nonce + 1, "{other}: the node has it");
    }
}

/// The answer is out: a node that cannot be reached for a moment must not make it untrue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_answered_early_is_sent_in_the_end() {
    let node = scripted();
    for method in ["eth_chainId", COUNT] {
        node.always(method, Conduct::AnswerAndClose);
    }
    // One connection for the chain id, one for the checks, none for the submission.
    let gate = Gate::open(node.port(), 2);
    let mut config = config(&gate.url());
    (config.answer_early, config.max_hold) = (true, LONG);
    let relay = Instance::alone(config).await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    let answer = relay.client().await.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    tokio::time::sleep(WITHIN).await;
    assert_eq!(node.calls(SEND), 0, "it cannot be reached");
    gate.open_again();
    node.wait_for_calls(SEND, 1).unwrap();
    tokio::time::sleep(WITHIN).await;
    assert_eq!((node.sent().len(), node.calls(SEND)), (1, 1));
}

/// Without the early answer nothing is promised, so the sender is told: its nonce is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_could_not_be_sent_is_rejected_and_says_so() {
    let node = scripted();
    for method in ["eth_chainId", COUNT] {
        node.always(method, Conduct::AnswerAndClose);
    }
    let gate = Gate::open(node.port(), 2);
    let mut config = config(&gate.url());
    config.answer_within = WITHIN;
    let relay = Instance::alone(config).await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    for _ in 0..2 {
        let answer = relay.client().await.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["error"]["code"], json!(-32002), "{answer}");
        let data = &answer["error"]["data"];
        assert_eq!(data["reason"], json!("node_unreachable"), "{answer}");
        assert_eq!((&data["class"], &data["hash"]), (&json!("rejected"), &json!(raw.hash)));
    }
}
