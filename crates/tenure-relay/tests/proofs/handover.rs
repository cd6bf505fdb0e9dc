//! One sender at several relays: how the lane goes from one to the other.

use std::time::{Duration, Instant};

use serde_json::json;
use tenure_relay::Gap;
use tenure_testkit::rng::Rng;
use tenure_testkit::servers::{Anvil, Redis};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Orders, RelayProcess, scripted};
use crate::probe::wallet::Wallet;

const MANY: u64 = 1000;

/// Writes each to a relay of its own choice before any is answered; transactions a second.
async fn rate(node: &Anvil, redis: &Redis, relays: usize, number: u64) -> f64 {
    let orders = Orders::new(&node.url(), &redis.url());
    let mut all = Vec::new();
    for _ in 0..relays {
        all.push(RelayProcess::start(&orders).await);
    }
    let wallet = Wallet::fresh(number, node.chain());
    node.fund(&wallet.name()).unwrap();
    let (raws, mut rng) = (wallet.pay_many(MANY), Rng::new(number));
    let mut clients = Vec::new();
    for raw in &raws {
        let at = rng.between(0, relays as u64 - 1) as usize;
        clients.push((all[at].client().await, raw));
    }
    let began = Instant::now();
    for (client, raw) in &mut clients {
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
    }
    for (mut client, raw) in clients {
        let answer = client.read().await.unwrap().json();
        assert_eq!(answer["result"], json!(raw.hash), "{}: {answer}", raw.nonce);
    }
    let rate = MANY as f64 / began.elapsed().as_secs_f64();
    assert_eq!(node.nonce(&wallet.name(), "pending").unwrap(), MANY);
    rate
}

/// The default window: nobody is refused while the line moves, and it does not move much slower. On an idle machine it is
/// more than a third of the rate, which the benchmark shows; here others have the processors, too, and each hand-over waits
/// for them.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_of_one_sender_pass_three_relays_and_none_is_refused() {
    let (node, redis) = (Anvil::build().start().unwrap(), Redis::build().start().unwrap());
    let one = rate(&node, &redis, 1, 1).await;
    let three = rate(&node, &redis, 3, 2).await;
    println!("one sender: {one:.0} a second at one relay, {three:.0} at three");
    assert!(three > one / 6.0, "{three:.0} a second at three relays, {one:.0} at one");
}

/// A relay that had a fruitless turn does not delay the relay that has the missing nonce.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_nonce_is_not_kept_waiting_by_those_who_wait_for_it() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    let mut orders = Orders::new(&node.url(), &redis.url());
    orders.gap = Gap::Hold(Duration::from_secs(60));
    let relays = [RelayProcess::start(&orders).await, RelayProcess::start(&orders).await];
    let raws = Wallet::fresh(1, CHAIN).pay_many(20);
    // All but the first, the last of them first.
    let mut clients = Vec::new();
    for raw in raws[1..].iter().rev() {
        let mut client = relays[raw.nonce as usize % 2].client().await;
        client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
        clients.push((client, raw));
    }
    node.wait_for_calls("eth_getTransactionCount", 4).unwrap();
    let mut client = relays[0].client().await;
    assert_eq!(client.ask(&send(0, &raws[0].raw)).await["result"], json!(raws[0].hash));
    for (mut client, raw) in clients {
        assert_eq!(client.read().await.unwrap().json()["result"], json!(raw.hash));
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, (0..20).collect::<Vec<_>>());
    assert_eq!(node.most_at_once("eth_sendRawTransaction"), 1);
}
