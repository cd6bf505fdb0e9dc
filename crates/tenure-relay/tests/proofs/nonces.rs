//! Wrong nonces and gaps: who gets which error, who waits, and that nobody else is delayed.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::{Anvil, Mining, Redis, eventually};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::{Raw, Wallet};

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const LONG: Duration = Duration::from_secs(60);

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s132_a_used_nonce_is_an_error_to_its_caller_alone_and_the_next_goes_on() {
    let node = Anvil::build().start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let first = wallet.pay(0);
    assert_eq!(client.ask(&send(1, &first.raw)).await["result"], json!(first.hash));
    let mined = || node.nonce(&wallet.name(), "latest").unwrap() == 1;
    eventually("it is mined", LONG, mined).unwrap();
    let other = client.ask(&send(2, &wallet.pay_of(0, 2).raw)).await;
    assert_eq!(other["error"]["code"], json!(-32000), "{other}");
    assert!(other["error"]["message"].as_str().unwrap().contains("nonce too low"), "{other}");
    assert_eq!(other["error"]["data"]["expected_nonce"], json!("0x1"), "{other}");
    // The same transaction again has one effect, and its sender gets the node's answer.
    let again = client.ask(&send(3, &first.raw)).await;
    assert!(again["error"]["message"].as_str().unwrap().contains("nonce too low"), "{again}");
    let next = wallet.pay(1);
    assert_eq!(client.ask(&send(4, &next.raw)).await["result"], json!(next.hash));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s132_a_transaction_that_the_node_refuses_uses_no_nonce() {
    let node = scripted();
    let wallet = Wallet::fresh(1, CHAIN);
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    for no in ["insufficient funds for gas * price + value", "nonce too low"] {
        node.next(SEND, Conduct::Refuse(-32000, no.to_owned()));
        let refused = client.ask(&send(1, &wallet.pay_of(0, 9).raw)).await;
        assert_eq!(refused["error"]["message"], json!(no), "{refused}");
    }
    // Its nonce is still the next one, for another transaction too.
    for raw in wallet.pay_many(3) {
        assert_eq!(client.ask(&send(2, &raw.raw)).await["result"], json!(raw.hash));
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1, 2]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_what_comes_early_is_held_until_those_before_it_have_come() {
    let node = scripted();
    let wallet = Wallet::fresh(1, CHAIN);
    let mut config = config(&node.url());
    config.gap = Gap::Hold(LONG);
    let relay = Instance::alone(config).await;
    let raws = wallet.pay_many(4);
    let mut clients = Vec::new();
    for nonce in [3, 2, 1] {
        let mut client = relay.client().await;
        client.write(&send(nonce, &raws[nonce as usize].raw).to_string()).await.unwrap();
        clients.push((client, nonce));
    }
    // Another sender is not held up by that, and nothing was sent yet.
    let mut other = relay.client().await;
    let paid = Wallet::fresh(2, CHAIN).pay(0);
    assert_eq!(other.ask(&send(1, &paid.raw)).await["result"], json!(paid.hash));
    assert_eq!(node.sent().len(), 1);
    assert_eq!(other.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    for (mut client, nonce) in clients {
        let answer = client.read().await.unwrap().json();
        assert_eq!(answer["result"], json!(raws[nonce as usize].hash), "{answer}");
    }
    let sent = node.sent();
    let nonces: Vec<u64> = sent.iter().skip(1).map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1, 2, 3]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_the_window_ends_with_an_error_and_the_lane_is_not_blocked() {
    let node = scripted();
    let wallet = Wallet::fresh(1, CHAIN);
    let mut config = config(&node.url());
    config.gap = Gap::Hold(Duration::from_millis(100));
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let raws = wallet.pay_many(3);
    let early = client.ask(&send(1, &raws[2].raw)).await;
    assert_eq!(reason(&early), "nonce_gap", "{early}");
    assert_eq!(early["error"]["data"]["expected_nonce"], json!("0x0"), "{early}");
    for raw in &raws {
        assert_eq!(client.ask(&send(2, &raw.raw)).await["result"], json!(raw.hash));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_a_gap_is_refused_or_forwarded_where_that_is_the_policy() {
    let node = scripted();
    let raws = Wallet::fresh(1, CHAIN).pay_many(3);
    let with = |gap| {
        let mut config = config(&node.url());
        config.gap = gap;
        config
    };
    let (refuses, forwards) =
        (Instance::alone(with(Gap::Refuse)).await, Instance::alone(with(Gap::Forward)).await);
    let (mut refused, mut forwarded) = (refuses.client().await, forwards.client().await);
    let early = refused.ask(&send(1, &raws[2].raw)).await;
    assert_eq!(reason(&early), "nonce_gap", "{early}");
    assert_eq!(node.calls(SEND), 0);
    for at in [2, 0] {
        let answer = forwarded.ask(&send(1, &raws[at].raw)).await;
        assert_eq!(answer["result"], json!(raws[at].hash), "{answer}");
    }
    // The node keeps the early transaction, and processes it later.
    let last = refused.ask(&send(1, &raws[1].raw)).await;
    assert_eq!(last["result"], json!(raws[1].hash), "{last}");
    assert_eq!(node.sent().len(), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_the_missing_one_may_come_by_another_relay() {
    let node = scripted();
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    let tenure = tenure::Tenure::connect("memory:").await.unwrap();
    let mut config = config(&node.url());
    config.gap = Gap::Hold(LONG);
    let one = Instance::start(config.clone(), &tenure).await;
    let two = Instance::start(config, &tenure).await;
    let (mut early, mut late) = (one.client().await, two.client().await);
    early.write(&send(1, &raws[1].raw).to_string()).await.unwrap();
    node.wait_for_calls("eth_getTransactionCount", 1).unwrap();
    assert_eq!(late.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    assert_eq!(early.read().await.unwrap().json()["result"], json!(raws[1].hash));
}

/// The one way to get a transaction moving again that pays too little.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s137_a_pending_transaction_is_replaced_by_one_that_pays_more() {
    let node = Anvil::build().mining(Mining::Never).start().unwrap();
    let wallet = Wallet::rich(0, node.chain());
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    let stuck = wallet.pay(0);
    assert_eq!(client.ask(&send(1, &stuck.raw)).await["result"], json!(stuck.hash));
    // Another for the same fee is refused by the node, in its own words.
    let same = client.ask(&send(2, &wallet.pay_of(0, 2).raw)).await;
    let text = same["error"]["message"].as_str().unwrap_or_default();
    assert!(text.contains("replacement transaction underpriced"), "{same}");
    assert_eq!(reason(&same), "", "it is the node's answer: {same}");
    let faster = wallet.pay_more(0, 2);
    let answer = client.ask(&send(3, &faster.raw)).await;
    assert_eq!(answer["result"], json!(faster.hash), "{answer}");
    let next = wallet.pay(1);
    assert_eq!(client.ask(&send(4, &next.raw)).await["result"], json!(next.hash));
    node.mine(1).unwrap();
    let is_mined = |raw: &Raw| {
        let receipt = node.rpc("eth_getTransactionReceipt", json!([raw.hash])).unwrap();
        receipt["blockNumber"].is_string()
    };
    assert!(is_mined(&faster) && is_mined(&next) && !is_mined(&stuck));
    // In a block, it is past replacing.
    let late = client.ask(&send(5, &wallet.pay_more(0, 4).raw)).await;
    assert_eq!(reason(&late), "nonce_too_low", "{late}");
}

/// The node hangs while it is asked again whether the gap is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_a_node_that_hangs_keeps_nobody_beyond_the_window() {
    let node = scripted();
    node.at(COUNT, 3, Conduct::Hang);
    let mut config = config(&node.url());
    config.gap = Gap::Hold(Duration::from_millis(300));
    (config.answer_within, config.max_hold) = (LONG, LONG);
    let relay = Instance::alone(config).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    let began = Instant::now();
    let early = relay.client().await.ask(&send(1, &raws[1].raw)).await;
    assert_eq!(reason(&early), "nonce_gap", "{early}");
    assert!(began.elapsed() < LONG / 2, "it waited for the node: {:?}", began.elapsed());
    assert_eq!(node.calls(COUNT), 3);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_what_was_sent_here_is_known_while_the_node_hangs() {
    let node = scripted();
    node.at(COUNT, 3, Conduct::Hang);
    let mut config = config(&node.url());
    config.gap = Gap::Hold(LONG);
    (config.answer_within, config.max_hold) = (LONG, LONG);
    let relay = Instance::alone(config).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    let mut early = relay.client().await;
    early.write(&send(1, &raws[1].raw).to_string()).await.unwrap();
    eventually("it asks for the gap", LONG, || node.hanging() == 1).unwrap();
    let answer = relay.client().await.ask(&send(1, &raws[0].raw)).await;
    assert_eq!(answer["result"], json!(raws[0].hash), "{answer}");
    let answer = tokio::time::timeout(LONG / 2, early.read()).await.expect("it is told");
    assert_eq!(answer.unwrap().json()["result"], json!(raws[1].hash));
}

/// A test chain that is reset: a transaction that was sent a moment ago is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_revert_the_node_is_asked_and_not_remembered() {
    let node = Anvil::build().start().unwrap();
    let raws = Wallet::rich(0, node.chain()).pay_many(2);
    let mut config = config(&node.url());
    config.gap = Gap::Refuse;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let snapshot = node.rpc("evm_snapshot", json!([])).unwrap();
    assert_eq!(client.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    let mined = || node.nonce(&Wallet::rich(0, node.chain()).name(), "latest").unwrap() == 1;
    eventually("it is mined", LONG, mined).unwrap();
    assert_eq!(node.rpc("evm_revert", json!([snapshot])).unwrap(), json!(true));
    let answer = client.ask(&send(2, &raws[1].raw)).await;
    assert_eq!(reason(&answer), "nonce_gap", "{answer}");
    assert_eq!(answer["error"]["data"]["expected_nonce"], json!("0x0"), "{answer}");
    for raw in &raws {
        assert_eq!(client.ask(&send(3, &raw.raw)).await["result"], json!(raw.hash));
    }
}

/// The transactions behind a refused one wait until another has filled its nonce.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_a_refused_transaction_go_on_with_another_in_its_place() {
    let node = scripted();
    let mut config = config(&node.url());
    config.gap = Gap::Hold(LONG);
    let relay = Instance::alone(config).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let raws = wallet.pay_many(4);
    node.next(SEND, Conduct::Refuse(-32000, "insufficient funds".to_owned()));
    let all: Vec<Value> = raws.iter().map(|raw| send(raw.nonce, &raw.raw)).collect();
    let mut behind = relay.client().await;
    behind.write(&Value::Array(all).to_string()).await.unwrap();
    node.wait_for_calls(SEND, 1).unwrap();
    let other = wallet.pay_of(0, 9);
    assert_eq!(relay.client().await.ask(&send(9, &other.raw)).await["result"], json!(other.hash));
    let answers = behind.read().await.unwrap().json();
    assert_eq!(answers[0]["error"]["message"], json!("insufficient funds"), "{answers}");
    for raw in &raws[1..] {
        assert_eq!(answers[raw.nonce as usize]["result"], json!(raw.hash), "{answers}");
    }
}

/// When nobody fills it, each is told which nonce is missing, and why it was refused. They are told at
/// the same time: nobody waits for the patience of another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gap_says_which_nonce_is_missing_and_why() {
    const WINDOW: Duration = Duration::from_secs(1);
    let node = scripted();
    let mut config = config(&node.url());
    config.gap = Gap::Hold(WINDOW);
    let relay = Instance::alone(config).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(20);
    node.next(SEND, Conduct::Refuse(-32000, "insufficient funds".to_owned()));
    let all: Vec<Value> = raws.iter().map(|raw| send(raw.nonce, &raw.raw)).collect();
    let began = Instant::now();
    let answers = relay.client().await.ask(&Value::Array(all)).await;
    assert!(began.elapsed() < WINDOW * 6, "one after the other: {:?}", began.elapsed());
    for answer in &answers.as_array().unwrap()[1..] {
        assert_eq!(reason(answer), "nonce_gap", "{answer}");
        let error = &answer["error"];
        assert_eq!(error["data"]["expected_nonce"], json!("0x0"), "{answer}");
        let because = error["data"]["missing_because"].as_str().unwrap_or_default();
        assert!(because.contains("insufficient funds"), "{answer}");
        assert!(error["message"].as_str().unwrap().contains("nonce 0 was refused"), "{answer}");
    }
}

/// A transaction that the node refused is no longer pending when the next one has its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s133_a_refused_transaction_closes_no_gap() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    let mut config = config(&node.url());
    config.gap = Gap::Refuse;
    let tenure = tenure::Tenure::connect(&redis.url()).await.unwrap();
    let relay = Instance::start(config, &tenure).await;
    for number in 0..20 {
        let raws = Wallet::fresh(number, CHAIN).pay_many(2);
        node.next(SEND, Conduct::Refuse(-32000, "insufficient funds".to_owned()));
        let both = json!([send(0, &raws[0].raw), send(1, &raws[1].raw)]);
        let answers = relay.client().await.ask(&both).await;
        assert_eq!(answers[0]["error"]["message"], json!("insufficient funds"), "{answers}");
        assert_eq!(reason(&answers[1]), "nonce_gap", "{answers}");
        assert_eq!(answers[1]["error"]["data"]["expected_nonce"], json!("0x0"), "{answers}");
    }
    assert_eq!(node.sent().len(), 0);
}
