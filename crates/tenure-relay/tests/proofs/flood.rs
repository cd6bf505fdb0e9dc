//! One sender floods; the others do not notice.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::eventually;

use crate::probe::client::{call, send};
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::{Raw, Wallet};

const SEND: &str = "eth_sendRawTransaction";
const SOON: Duration = Duration::from_secs(120);
const CAP: u32 = 100;

/// How long each of a hundred senders took for one transaction.
async fn others(relay: &Instance, nonce: u64) -> Vec<Duration> {
    let mut took = Vec::new();
    for number in 1..=100 {
        let raw = Wallet::fresh(number, CHAIN).pay(nonce);
        let mut client = relay.client().await;
        let began = Instant::now();
        let answer = client.ask(&send(1, &raw.raw)).await;
        took.push(began.elapsed());
        assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    }
    took.sort();
    took
}

fn batch(raws: &[Raw]) -> String {
    let sends = raws.iter().map(|raw| send(raw.nonce, &raw.raw));
    Value::Array(sends.chain([call(0, "test_echo", json!([]))]).collect()).to_string()
}

fn full(answers: &Value) -> usize {
    let full = |answer: &&Value| answer["error"]["data"]["reason"] == json!("line_full");
    answers.as_array().unwrap().iter().filter(full).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s143_ten_thousand_of_one_sender_meet_a_cap_and_others_pass() {
    let node = scripted();
    let mut config = config(&node.url());
    config.per_sender = CAP;
    (config.limits.items, config.max_in_flight) = (10_001, 20_000);
    // The flood must wait for its first as long as the test wants.
    (config.max_hold, config.answer_within) = (SOON * 2, SOON * 2);
    let tenure = Tenure::connect("memory:").await.unwrap();
    let relay = Instance::start(config, &tenure).await;
    let before = others(&relay, 0).await;
    let flooder = Wallet::fresh(143, CHAIN);
    let raws = flooder.pay_many(10_001);
    node.next(SEND, Conduct::Hang);
    let mut first = relay.client().await;
    first.write(&send(0, &raws[0].raw).to_string()).await.unwrap();
    eventually("the first hangs", SOON, || node.hanging() == 1).unwrap();

    let mut flood = relay.client().await;
    flood.write(&batch(&raws[1..])).await.unwrap();
    // Other calls are forwarded when every transaction has its place, or was refused one.
    node.wait_for_calls("test_echo", 1).unwrap();
    let during = others(&relay, 1).await;
    println!("p99 of other senders: {:?} before the flood, {:?} in it", before[98], during[98]);
    node.let_go();
    assert_eq!(first.read().await.unwrap().json()["result"], json!(raws[0].hash));
    let answers = flood.read().await.unwrap().json();
    assert_eq!(full(&answers), 10_000 - CAP as usize);
    for (answer, raw) in answers.as_array().unwrap().iter().zip(&raws[1..=CAP as usize]) {
        assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    }
    let sent = node.sent();
    let nonces = sent.iter().filter(|sent| sent.sender == flooder.name()).map(|sent| sent.nonce);
    assert_eq!(nonces.collect::<Vec<_>>(), (0..=u64::from(CAP)).collect::<Vec<_>>());
}
