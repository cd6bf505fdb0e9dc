//! Several nodes: which one is asked when one is gone, answers nonsense, or is of another chain.

use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use serde_json::json;
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;

use crate::probe::client::{Client, send};
use crate::probe::gate::Gate;
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const ECHO: &str = "test_echo";
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_refuses_connections_is_passed_over() {
    let good = scripted();
    // Nobody listens there.
    let mut config = config("http://127.0.0.1:1");
    config.nodes.push(good.url().parse().unwrap());
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    for raw in Wallet::fresh(1, CHAIN).pay_many(5) {
        assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
        assert_eq!(client.call(ECHO, json!([1])).await["result"], json!([1]));
    }
}

/// As when the machine is gone: connections are not even refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_answers_no_handshake_is_passed_over() {
    let (gone, good) = (scripted(), scripted());
    for method in ["eth_chainId", ECHO] {
        gone.always(method, Conduct::AnswerAndClose);
    }
    let mut gate = Gate::open(gone.port(), 2);
    let mut config = config(&gate.url());
    config.nodes.push(good.url().parse().unwrap());
    config.answer_within = Duration::from_secs(2);
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    // It has shown that it is of this chain, and is the better one.
    assert_eq!(client.call(ECHO, json!([1])).await["result"], json!([1]));
    assert_eq!((gone.calls(ECHO), good.calls(ECHO)), (1, 0));
    gate.go_dark().await;
    let answer = client.call(ECHO, json!([2])).await;
    assert_eq!(answer["result"], json!([2]), "{answer}");
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    let answer = client.ask(&send(1, &raw.raw)).await;
    assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    assert_eq!(good.sent().len(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_relay_itself_asks_is_asked_of_the_next_node() {
    let (bad, good) = (scripted(), scripted());
    let mut config = config(&bad.url());
    config.nodes.push(good.url().parse().unwrap());
    config.answer_within = Duration::from_millis(300);
    let broken = [
        Conduct::Html(200),
        Conduct::Html(502),
        Conduct::Trouble(503),
        Conduct::Close,
        Conduct::Short,
        Conduct::Truncated,
        Conduct::Say(json!("many")),
        Conduct::Refuse(-32000, "missing trie node".to_owned()),
        Conduct::Hang,
    ];
    for (number, conduct) in (0..).zip(broken) {
        // A relay of its own, since a node that fails again and again is left alone.
        let relay = Instance::alone(config.clone()).await;
        bad.next(COUNT, conduct.clone());
        let (asked, raw) = (bad.calls(COUNT), Wallet::fresh(number, CHAIN).pay(0));
        let answer = relay.client().await.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{conduct:?}: {answer}");
        assert_eq!(bad.calls(COUNT), asked + 1, "{conduct:?}");
    }
    assert_eq!((bad.calls(SEND), good.calls(SEND)), (0, 9), "it goes to the node that was asked");
}

/// The second node has no transactions of the first one, and keeps early ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_lacks_the_one_before_is_not_told_to_take_the_next() {
    let (first, second) = (scripted(), scripted());
    let mut config = config(&first.url());
    config.nodes.push(second.url().parse().unwrap());
    config.gap = Gap::Refuse;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    assert_eq!(client.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    assert_eq!(first.sent().len(), 1);
    drop(first);
    let answer = client.ask(&send(2, &raws[1].raw)).await;
    assert_eq!(answer["error"]["data"]["reason"], json!("nonce_gap"), "{answer}");
    assert_eq!(answer["error"]["data"]["expected_nonce"], json!("0x0"), "{answer}");
    assert_eq!(second.calls(SEND), 0);
}

/// The first node says that it is next, and cannot be reached a moment later.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_one_node_says_of_a_nonce_is_not_believed_of_another() {
    let (first, second) = (scripted(), scripted());
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    let mut direct = Client::connect((Ipv4Addr::LOCALHOST, first.port()).into()).await;
    assert_eq!(direct.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    for method in ["eth_chainId", COUNT] {
        first.always(method, Conduct::AnswerAndClose);
    }
    // One connection for the chain id, one for the checks, none for the submission.
    let gate = Gate::open(first.port(), 2);
    let mut config = config(&gate.url());
    config.nodes.push(second.url().parse().unwrap());
    config.gap = Gap::Refuse;
    let relay = Instance::alone(config).await;
    let answer = relay.client().await.ask(&send(2, &raws[1].raw)).await;
    assert_eq!(answer["error"]["data"]["reason"], json!("nonce_gap"), "{answer}");
    assert_eq!(second.calls(SEND), 0);
}

/// An invalid answer counts as a failure, although something was received.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_answers_with_web_pages_is_left_alone() {
    let (bad, good) = (scripted(), scripted());
    let mut config = config(&bad.url());
    config.nodes.push(good.url().parse().unwrap());
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    bad.always(COUNT, Conduct::Html(200));
    // Where no order is promised to anybody, it is the check alone that fails.
    bad.always(SEND, Conduct::Html(200));
    bad.always("eth_getTransactionByHash", Conduct::Html(200));
    for raw in Wallet::fresh(1, CHAIN).pay_many(3) {
        assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
    }
    assert_eq!(good.sent().len(), 3);
    assert!(bad.calls(SEND) <= 2, "{}", bad.calls(SEND));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_of_another_chain_is_not_used_until_it_is_of_this_one() {
    const CHAIN_ID: &str = "eth_chainId";
    let (strange, good) = (scripted(), scripted());
    strange.always(CHAIN_ID, Conduct::Say(json!("0x1")));
    let mut config = config(&strange.url());
    config.nodes.push(good.url().parse().unwrap());
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    for nonce in 0..5 {
        let raw = wallet.pay(nonce);
        assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
    }
    let arrivals = strange.arrivals();
    assert!(arrivals.iter().all(|arrival| arrival.method == CHAIN_ID), "{arrivals:?}");
    assert!(arrivals.len() < 6, "it is not asked all the time: {}", arrivals.len());
    // Someone repairs it.
    strange.behave();
    let began = Instant::now();
    while strange.calls(ECHO) == 0 {
        assert!(began.elapsed() < SOON, "it is never asked again");
        assert_eq!(client.call(ECHO, json!([1])).await["result"], json!([1]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
