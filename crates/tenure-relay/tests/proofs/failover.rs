//! Several nodes: who is asked when one is gone, answers nonsense, or is of another chain.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_testkit::node::Conduct;

use crate::probe::client::send;
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

/// As when the machine is gone: what is sent there is not even refused.
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
    assert_eq!(good.calls(SEND), 0, "the first one could be reached");
}

/// What is no answer counts as a failure although something came back.
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
