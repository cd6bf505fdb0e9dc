//! A node, a relay that holds a lane, or a client hangs. The lane goes on.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::{Redis, eventually};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Instance, Orders, RelayProcess, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const SOON: Duration = Duration::from_secs(60);

/// Returns when this many claims wait in the lane of a wallet.
async fn waits(tenure: &Tenure, wallet: &Wallet, many: usize) {
    let lane = format!("lane:{CHAIN}:{}", wallet.name());
    let began = Instant::now();
    while tenure.inspect(&lane).await.unwrap().is_none_or(|lane| lane.waiters.len() < many) {
        assert!(began.elapsed() < SOON, "{many} wait in {lane}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Each one's time runs from its own turn: four of a hundred and one hang until theirs is over, and
/// none of the others, who waited longer than that, is refused for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_waiters_behind_a_hung_holder_each_have_their_full_time() {
    const MAX_HOLD: Duration = Duration::from_secs(1);
    const HUNG: [usize; 4] = [0, 33, 66, 100];
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    for hung in HUNG {
        // The node has it, and says nothing.
        node.at(SEND, hung as u64 + 1, Conduct::DoThenHang);
    }
    let mut config = config(&node.url());
    (config.max_hold, config.ttl) = (MAX_HOLD, MAX_HOLD);
    config.gap = Gap::Hold(SOON);
    let tenure = Tenure::connect(&redis.url()).await.unwrap();
    let relay = Instance::start(config, &tenure).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(101);
    let mut answers = Vec::new();
    let began = Instant::now();
    for raw in raws.clone() {
        let mut client = relay.client().await;
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
        answers.push(tokio::spawn(async move {
            let answer = client.read().await.unwrap().json();
            (answer, Instant::now())
        }));
        if raw.nonce == 0 {
            eventually("the holder hangs", SOON, || node.hanging() == 1).unwrap();
        }
    }
    let mut ended = began;
    for (at, answer) in answers.into_iter().enumerate() {
        let (answer, when) = answer.await.unwrap();
        if HUNG.contains(&at) {
            assert_eq!(answer["error"]["code"], json!(-32050), "{at}: {answer}");
            assert_eq!(answer["error"]["data"]["hash"], json!(raws[at].hash), "{answer}");
            // Its turn came when the one before had ended. A fifth for the way of the answers.
            assert!(when - ended > MAX_HOLD.mul_f64(0.8), "{at} had {:?}", when - ended);
        } else {
            assert_eq!(answer["result"], json!(raws[at].hash), "{at}: {answer}");
            assert!(when - began > MAX_HOLD.mul_f64(0.8), "{at} did not wait");
        }
        ended = when;
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, (0..=100).collect::<Vec<_>>());
    assert_eq!(node.most_at_once(SEND), 1);
    eventually("the requests were dropped", SOON, || node.hung_up() == HUNG.len()).unwrap();
}

/// The relay that holds the lane is killed; the client sends the same again, to another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_relay_holds_its_lane_for_the_ttl_and_no_longer() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    let mut orders = Orders::new(&node.url(), &redis.url());
    // So long that only the end of the ttl can be what frees it within the test.
    orders.max_hold = Duration::from_secs(600);
    orders.ttl = Duration::from_secs(1);
    orders.gap = Gap::Hold(SOON);
    let (first, second) = (RelayProcess::start(&orders).await, RelayProcess::start(&orders).await);
    let wallet = Wallet::fresh(1, CHAIN);
    let raws = wallet.pay_many(2);
    node.next(SEND, Conduct::Hang);
    let mut client = first.client().await.known_by("payment 1");
    client.write(&send(1, &raws[0].raw).to_string()).await.unwrap();
    eventually("the holder hangs", SOON, || node.hanging() == 1).unwrap();
    let (again, mut next) = (second.client().await, second.client().await);
    let mut again = again.known_by("payment 1");
    again.write(&send(2, &raws[0].raw).to_string()).await.unwrap();
    let tenure = Tenure::connect(&redis.url()).await.unwrap();
    waits(&tenure, &wallet, 1).await;
    next.write(&send(3, &raws[1].raw).to_string()).await.unwrap();
    first.kill().await;
    assert!(client.read().await.is_err(), "its relay is gone");
    assert_eq!(again.read().await.unwrap().json()["result"], json!(raws[0].hash));
    assert_eq!(next.read().await.unwrap().json()["result"], json!(raws[1].hash));
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s144_a_client_that_hangs_up_changes_nothing() {
    let node = scripted();
    node.next(SEND, Conduct::Hang);
    let relay = Instance::alone(config(&node.url())).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(2);
    let mut gone = relay.client().await;
    gone.write(&send(1, &raws[0].raw).to_string()).await.unwrap();
    eventually("the node has it", SOON, || node.hanging() == 1).unwrap();
    let mut next = relay.client().await;
    next.write(&send(2, &raws[1].raw).to_string()).await.unwrap();
    drop(gone);
    // If the work stopped with its client, it would stop before this is answered.
    let mut other = relay.client().await;
    assert_eq!(other.call("test_echo", json!([])).await["result"], json!([]));
    assert_eq!((node.hanging(), node.hung_up()), (1, 0));
    node.let_go();
    assert_eq!(next.read().await.unwrap().json()["result"], json!(raws[1].hash));
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_is_given_early_leaves_the_lane_to_the_work() {
    let node = scripted();
    node.next(SEND, Conduct::Hang);
    let mut config = config(&node.url());
    config.answer_early = true;
    let tenure = Tenure::connect("memory:").await.unwrap();
    let relay = Instance::start(config, &tenure).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let raws = wallet.pay_many(2);
    let (mut first, mut second) = (relay.client().await, relay.client().await);
    assert_eq!(first.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    eventually("the node has it", SOON, || node.hanging() == 1).unwrap();
    let lane = format!("lane:{CHAIN}:{}", wallet.name());
    let seen = tenure.inspect(&lane).await.unwrap().expect("the lane is held");
    assert_eq!(seen.holders.len(), 1);
    second.write(&send(2, &raws[1].raw).to_string()).await.unwrap();
    // What cannot be sent is told at once, also in this mode.
    let wrong = first.ask(&send(3, &Wallet::fresh(1, CHAIN + 1).pay(0).raw)).await;
    assert_eq!(wrong["error"]["data"]["reason"], json!("chain_id"), "{wrong}");
    node.let_go();
    assert_eq!(second.read().await.unwrap().json()["result"], json!(raws[1].hash));
    eventually("the second is sent", SOON, || node.sent().len() == 2).unwrap();
    assert_eq!(node.most_at_once(SEND), 1, "the second waits for the first");
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1]);
}

/// It answers late but within its time: the lane stays taken, and nobody else is sent meanwhile.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_outcome_that_is_unknown_is_found_out_under_the_lane() {
    let node = scripted();
    let mut config = config(&node.url());
    config.answer_within = Duration::from_millis(200);
    let relay = Instance::alone(config).await;
    let raws = Wallet::fresh(1, CHAIN).pay_many(3);
    // The node has the first and never says so; it has not had the second, and says nothing either.
    node.next(SEND, Conduct::DoThenHang);
    node.next(SEND, Conduct::Hang);
    let mut clients = Vec::new();
    for raw in &raws {
        let mut client = relay.client().await;
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
        clients.push(client);
    }
    for (client, raw) in clients.iter_mut().zip(&raws) {
        let answer: Value = client.read().await.unwrap().json();
        assert_eq!(answer["result"], json!(raw.hash), "{answer}");
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, [0, 1, 2]);
}
