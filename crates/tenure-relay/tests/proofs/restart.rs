//! A node, or the engine, that is not there for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::proxy::Proxy;
use tenure_testkit::servers::eventually;

use crate::probe::client::{Client, send};
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SOON: Duration = Duration::from_secs(60);

/// Some are on their way when the node goes, others come while it is gone, for three seconds.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_starts_again_within_the_time_for_an_answer_costs_nobody_a_transaction() {
    let node = scripted();
    let proxy = Proxy::start(node.port()).unwrap();
    let relay = Instance::alone(config(&format!("http://127.0.0.1:{}", proxy.port()))).await;
    let (sent, stop) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicBool::new(false)));
    let mut senders = Vec::new();
    for number in 1..=4 {
        let client = relay.client().await;
        senders.push(tokio::spawn(pay_on(client, number, sent.clone(), stop.clone())));
    }
    let more = |than: u64| eventually("they send", SOON, || sent.load(Ordering::Acquire) > than);
    more(20).unwrap();
    proxy.refuse().unwrap();
    proxy.reset();
    for number in 5..=8 {
        let client = relay.client().await;
        senders.push(tokio::spawn(pay_on(client, number, sent.clone(), stop.clone())));
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    proxy.accept().unwrap();
    more(sent.load(Ordering::Acquire) + 20).unwrap();
    stop.store(true, Ordering::Release);
    for sender in senders {
        assert_eq!(sender.await.unwrap(), Value::Null);
    }
}

/// Sends one after the other; the first answer that is not the hash.
async fn pay_on(
    mut client: Client,
    number: u64,
    sent: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
) -> Value {
    let wallet = Wallet::fresh(number, CHAIN);
    let mut nonce = 0;
    while !stop.load(Ordering::Acquire) {
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(nonce, &raw.raw)).await;
        if answer["result"] != json!(raw.hash) {
            return answer;
        }
        sent.fetch_add(1, Ordering::AcqRel);
        nonce += 1;
    }
    Value::Null
}

/// Many of one sender share the time: the last does not wait for the patience of all before it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_stays_away_is_not_waited_for_by_one_after_the_other() {
    const WITHIN: Duration = Duration::from_secs(1);
    let mut config = config("http://127.0.0.1:1");
    config.answer_within = WITHIN;
    let relay = Instance::alone(config).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(20);
    let all: Vec<Value> = raws.iter().map(|raw| send(raw.nonce, &raw.raw)).collect();
    let began = std::time::Instant::now();
    let answers = relay.client().await.ask(&Value::Array(all)).await;
    assert!(began.elapsed() < WITHIN * 10, "{:?}", began.elapsed());
    for answer in answers.as_array().unwrap() {
        assert_eq!(answer["error"]["code"], json!(-32002), "{answer}");
    }
}
