//! One sender's transactions stay in order: across instances, in batches, as they arrive.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_relay::{Gap, Repeats};
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

/// Two services that make the same payment sign the same bytes: one of them has paid, and the other must
/// not believe that it has.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s140_one_transaction_of_two_clients_at_two_relays_is_sent_once_and_one_of_them_is_told() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    // Long enough for both to be with the node, if nothing kept them apart.
    node.always(SEND, Conduct::AnswerLate(Duration::from_millis(20)));
    let orders = Orders::new(&node.url(), &redis.url());
    let relays = [RelayProcess::start(&orders).await, RelayProcess::start(&orders).await];
    let wallet = Wallet::fresh(1, CHAIN);
    // Without a key, and with a key each.
    for (round, keys) in [[None, None], [Some("a"), Some("b")]].into_iter().enumerate() {
        let mut clients = Vec::new();
        for (relay, key) in relays.iter().zip(keys) {
            let client = relay.client().await;
            clients.push(if let Some(key) = key { client.known_by(key) } else { client });
        }
        for nonce in 10 * round as u64..10 * (round as u64 + 1) {
            let raw = wallet.pay(nonce);
            for client in &mut clients {
                client.write(&send(1, &raw.raw).to_string()).await.unwrap();
            }
            let (mut outcomes, mut told) = (Vec::new(), 0);
            for client in &mut clients {
                let answer = client.read().await.unwrap();
                let (head, json) = (answer.head.to_lowercase(), answer.json());
                let outcome = head.lines().find_map(|line| line.strip_prefix("tenure-outcome: "));
                outcomes.push(outcome.unwrap_or_default().to_owned());
                told += usize::from(json["result"] == json!(raw.hash));
            }
            outcomes.sort();
            assert_eq!((told, outcomes), (1, vec!["accepted".into(), "collided".into()]));
        }
    }
    assert_eq!((node.sent().len(), node.most_at_once(SEND)), (20, 1));
}

/// A client that did not get its answer asks again, at any relay.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_says_who_it_is_may_repeat_itself_at_any_relay() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    let orders = Orders::new(&node.url(), &redis.url());
    let relays = [RelayProcess::start(&orders).await, RelayProcess::start(&orders).await];
    let wallet = Wallet::fresh(1, CHAIN);
    for raw in wallet.pay_many(5) {
        for (turn, relay) in [&relays[0], &relays[1], &relays[0]].into_iter().enumerate() {
            let mut client = relay.client().await.known_by("order 7");
            client.write(&send(1, &raw.raw).to_string()).await.unwrap();
            let answer = client.read().await.unwrap();
            assert_eq!(answer.json()["result"], json!(raw.hash), "{answer:?}");
            let expected = if turn == 0 { "accepted" } else { "repeated" };
            let head = answer.head.to_lowercase();
            assert!(head.contains(&format!("tenure-outcome: {expected}")), "{head}");
        }
    }
    assert_eq!(node.calls(SEND), 5, "a repetition is not sent again");
    // A refused transaction was not sent, so no client is remembered for it.
    node.next(SEND, Conduct::Refuse(-32000, "txpool is full".to_owned()));
    let raw = wallet.pay(5);
    let mut first = relays[0].client().await.known_by("a");
    assert_eq!(first.ask(&send(1, &raw.raw)).await["error"]["message"], json!("txpool is full"));
    let mut second = relays[1].client().await.known_by("b");
    assert_eq!(second.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
    assert_eq!(first.ask(&send(1, &raw.raw)).await["error"]["message"], json!("already known"));
}

/// The old behaviour, for clients that rely on it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_repeats_of_anyone_everyone_is_told_the_hash() {
    let node = scripted();
    let mut config = config(&node.url());
    config.repeats = Repeats::Anyone;
    let relay = Instance::alone(config).await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    for _ in 0..2 {
        let answer = relay.client().await.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    }
    assert_eq!(node.sent().len(), 1);
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
