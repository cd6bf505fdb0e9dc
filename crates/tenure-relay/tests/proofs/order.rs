//! One sender's transactions stay in order: across instances, in batches, as they arrive.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Redis, eventually};

use crate::probe::client::{Client, call, send};
use crate::probe::relays::{CHAIN, Instance, Orders, RelayProcess, config, scripted};
use crate::probe::wallet::{Raw, Wallet};

const SEND: &str = "eth_sendRawTransaction";
const SOON: Duration = Duration::from_secs(60);

/// Writes each to the next relay, before the one before is answered; then the answers.
async fn round_robin(relays: &[RelayProcess], raws: &[Raw]) -> Vec<Value> {
    let mut clients = Vec::new();
    for at in 0..raws.len() {
        clients.push(relays[at % relays.len()].client().await);
    }
    for (client, raw) in clients.iter_mut().zip(raws) {
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
    }
    let mut answers = Vec::new();
    for client in &mut clients {
        answers.push(client.read().await.unwrap().json());
    }
    answers
}

async fn three(orders: &Orders) -> Vec<RelayProcess> {
    let mut relays = Vec::new();
    for _ in 0..3 {
        relays.push(RelayProcess::start(orders).await);
    }
    relays
}

/// The proof: what goes wrong without order, and that it does not with it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_relays_behind_a_round_robin_keep_the_order_of_one_sender() {
    let (node, redis) = (Anvil::build().start().unwrap(), Redis::build().start().unwrap());
    let mut orders = Orders::new(&node.url(), &redis.url());
    orders.ordering = false;
    orders.gap = Gap::Refuse;
    let wallet = Wallet::rich(0, node.chain());
    let answers = round_robin(&three(&orders).await, &wallet.pay_many(200)).await;
    let is_wrong = |answer: &&Value| {
        let message = answer["error"]["message"].as_str().unwrap_or_default();
        message.contains("nonce")
    };
    let wrong = answers.iter().filter(is_wrong).count();
    println!("without order: {wrong} of 200 transactions failed with a wrong nonce");
    assert!(wrong > 0, "the danger is not there: {answers:?}");

    let wallet = Wallet::rich(1, node.chain());
    orders.ordering = true;
    orders.gap = Gap::Hold(SOON);
    let answers = round_robin(&three(&orders).await, &wallet.pay_many(200)).await;
    let failed: Vec<_> = answers.iter().filter(|answer| answer["error"] != Value::Null).collect();
    println!("with order: {} of 200 failed", failed.len());
    assert!(failed.is_empty(), "{failed:?}");
    let all = || node.nonce(&wallet.name(), "latest").unwrap() == 200;
    eventually("all are mined", SOON, all).unwrap();
    assert_eq!(mined(&node, &wallet), (0..200).collect::<Vec<_>>());
}

/// The nonces of a sender, in the order of the blocks and of the places in them.
fn mined(node: &Anvil, wallet: &Wallet) -> Vec<u64> {
    let number = |value: &Value| {
        u64::from_str_radix(value.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
    };
    let last = number(&node.rpc("eth_blockNumber", json!([])).unwrap());
    let blocks = (0..=last)
        .map(|at| node.rpc("eth_getBlockByNumber", json!([format!("{at:#x}"), true])).unwrap());
    let transactions = blocks.flat_map(|block| block["transactions"].as_array().unwrap().clone());
    let ours = transactions.filter(|it| it["from"].as_str() == Some(&wallet.name()));
    ours.map(|it| number(&it["nonce"])).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s134_a_batch_goes_in_the_order_of_its_array_and_answers_match_ids() {
    let node = scripted();
    for method in [SEND, "eth_getTransactionCount"] {
        node.always(method, Conduct::Late(Duration::from_millis(5)));
    }
    let mut config = config(&node.url());
    // Nothing but the lane makes an order: each nonce would be taken whenever it comes.
    config.gap = Gap::Forward;
    let relay = Instance::alone(config).await;
    let (one, two) = (Wallet::fresh(1, CHAIN), Wallet::fresh(2, CHAIN));
    let mut rng = Rng::new(134);
    let mut nonces: Vec<u64> = (0..40).collect();
    for at in (1..nonces.len()).rev() {
        nonces.swap(at, rng.between(0, at as u64) as usize);
    }
    let mut calls = Vec::new();
    let mut expected = Vec::new();
    for nonce in &nonces {
        for (sender, wallet) in [&one, &two].into_iter().enumerate() {
            let (id, raw) = (calls.len() as u64 + 100, wallet.pay(*nonce));
            calls.push(send(id, &raw.raw));
            expected.push((id, raw.hash, sender));
        }
        calls.push(call(*nonce, "test_echo", json!([nonce])));
    }
    let answers = relay.client().await.ask(&Value::Array(calls)).await;
    let answers = answers.as_array().unwrap().clone();
    assert_eq!(answers.len(), 120);
    let answer = |id: u64| answers.iter().find(|answer| answer["id"] == json!(id)).unwrap();
    for (id, hash, _) in &expected {
        assert_eq!(answer(*id)["result"], json!(hash), "{}", answer(*id));
    }
    for nonce in &nonces {
        assert_eq!(answer(*nonce)["result"], json!([nonce]));
    }
    for wallet in [&one, &two] {
        let sent = node.sent();
        let came = sent.iter().filter(|sent| sent.sender == wallet.name());
        assert_eq!(came.map(|sent| sent.nonce).collect::<Vec<_>>(), nonces);
    }
    assert_eq!(node.most_at_once(SEND), 2, "the two senders go side by side");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s140_one_transaction_at_two_relays_at_once_has_one_effect_and_one_hash() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    // Long enough for both to be with the node, if nothing kept them apart.
    node.always(SEND, Conduct::AnswerLate(Duration::from_millis(20)));
    let orders = Orders::new(&node.url(), &redis.url());
    let relays = [RelayProcess::start(&orders).await, RelayProcess::start(&orders).await];
    let wallet = Wallet::fresh(1, CHAIN);
    let mut clients = [relays[0].client().await, relays[1].client().await];
    for raw in wallet.pay_many(20) {
        for client in &mut clients {
            client.write(&send(1, &raw.raw).to_string()).await.unwrap();
        }
        for client in &mut clients {
            let answer = client.read().await.unwrap().json();
            assert_eq!(answer["result"], json!(raw.hash), "{answer}");
        }
    }
    // The second relay may hand it in again, and is told that the node has it.
    assert_eq!((node.sent().len(), node.most_at_once(SEND)), (20, 1));
    assert!(node.calls(SEND) <= 40, "{}", node.calls(SEND));
}

/// The relay has one thread and one poll, so what is written first is read first; after that only the
/// place in the lane can keep the order, while the node takes its time at random.
#[test]
fn s144_the_place_in_the_lane_is_taken_in_the_order_of_arrival() {
    const MANY: u64 = 300;
    let node = scripted();
    for method in [SEND, "eth_getTransactionCount"] {
        node.always(method, Conduct::Late(Duration::from_millis(2)));
    }
    let mut config = config(&node.url());
    config.gap = Gap::Forward;
    let (told, address) = std::sync::mpsc::channel();
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let relay = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let tenure = Tenure::connect("memory:").await.unwrap();
            let relay = Instance::start(config, &tenure).await;
            told.send(relay.address).unwrap();
            let _ = stopped.await;
        });
    });
    let address = address.recv().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut nonces: Vec<u64> = (0..MANY).collect();
    let mut rng = Rng::new(144);
    for at in (1..nonces.len()).rev() {
        nonces.swap(at, rng.between(0, at as u64) as usize);
    }
    let wallet = Wallet::fresh(1, CHAIN);
    let requests: Vec<String> =
        nonces.iter().map(|nonce| send(*nonce, &wallet.pay(*nonce).raw).to_string()).collect();
    runtime.block_on(async {
        let mut clients = Vec::new();
        for _ in &requests {
            let mut client = Client::connect(address).await;
            // So that the connection is served before the test begins.
            assert_eq!(client.call("test_echo", json!([])).await["result"], json!([]));
            clients.push(client);
        }
        for (client, request) in clients.iter_mut().zip(&requests) {
            client.write(request).await.unwrap();
        }
        for client in &mut clients {
            let answer = client.read().await.unwrap().json();
            assert!(answer["result"].is_string(), "{answer}");
        }
    });
    let came: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(came, nonces);
    drop(stop);
    relay.join().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn senders_do_not_wait_for_each_other() {
    let node = scripted();
    node.always(SEND, Conduct::Hang);
    let relay = Instance::alone(config(&node.url())).await;
    let mut clients = Vec::new();
    for number in 0..20 {
        let mut client = relay.client().await;
        let raw = Wallet::fresh(number, CHAIN).pay(0);
        client.write(&send(1, &raw.raw).to_string()).await.unwrap();
        clients.push((client, raw));
    }
    // All of them are with the node at once, although it answers none.
    eventually("all are there", SOON, || node.hanging() == 20).unwrap();
    node.let_go();
    for (mut client, raw) in clients {
        assert_eq!(client.read().await.unwrap().json()["result"], json!(raw.hash));
    }
}
