//! Relays that are killed while signers pay through them.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::servers::{Redis, eventually};

use crate::probe::client::{Client, call, send};
use crate::probe::payments::{self, Payments, WALLET};
use crate::probe::relays::{Orders, RelayProcess};
use crate::probe::wallet::Wallet;

const RELAYS: usize = 3;
const SIGNERS: usize = 6;
const PAYMENTS: u64 = 120;
/// Longer than the test takes: no reservation ends before its transaction is sent.
const RESERVED_FOR: Duration = Duration::from_secs(60);
/// How long a lane stays taken when the relay that held it was killed.
const TTL: Duration = Duration::from_secs(1);
const SOON: Duration = Duration::from_secs(60);

/// The state that the signers share.
struct Work {
    payments: Payments,
    /// Where the relays listen now.
    relays: Mutex<Vec<SocketAddr>>,
    /// Requests that were cut off.
    cut_off: AtomicU64,
}

/// Each relay is killed once and started again. Whoever was cut off repeats its request at another relay: the same id
/// has the same nonce there, and the same key and bytes are the same payment. So every payment is made once, and no nonce
/// is left out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn relays_that_are_killed_while_signers_pay_lose_nothing() {
    let (node, redis) = (payments::node(), Redis::build().start().unwrap());
    let mut orders = Orders::new(&node.url(), &redis.url());
    (orders.nonces_for, orders.ttl) = (Some(RESERVED_FOR), TTL);
    let mut relays = Vec::new();
    for _ in 0..RELAYS {
        relays.push(RelayProcess::start(&orders).await);
    }
    let work = Arc::new(Work {
        payments: Payments::new(PAYMENTS, 0),
        relays: Mutex::new(relays.iter().map(|relay| relay.address).collect()),
        cut_off: AtomicU64::new(0),
    });
    let mut signers = Vec::new();
    for number in 0..SIGNERS {
        signers.push(tokio::spawn(pay(work.clone(), number, node.chain())));
    }
    for number in 0..RELAYS {
        let due = PAYMENTS * (number as u64 + 1) / (RELAYS as u64 + 1);
        eventually("they pay", SOON, || work.payments.paid() >= due).unwrap();
        relays.remove(number).kill().await;
        relays.insert(number, RelayProcess::start(&orders).await);
        work.relays.lock().unwrap()[number] = relays[number].address;
    }
    for signer in signers {
        signer.await.unwrap();
    }
    let cut_off = work.cut_off.load(Ordering::Relaxed);
    println!("{PAYMENTS} paid, {RELAYS} relays killed, {cut_off} requests cut off");
    assert!(cut_off > 0, "nobody noticed");
    assert_eq!(work.payments.look_at_the_chain(&node), PAYMENTS);
}

async fn pay(work: Arc<Work>, number: usize, chain: u64) {
    let wallet = Wallet::rich(0, chain);
    while let Some(amount) = work.payments.take() {
        let id = format!("payment {amount}");
        let reserve = call(1, "tenure_reserveNonce", json!([{ "from": WALLET, "id": id }]));
        let reserved = ask(&work, number, &id, &reserve).await;
        let nonce = reserved["result"]["nonce"].as_str().and_then(|nonce| nonce.strip_prefix("0x"));
        let nonce = nonce.and_then(|nonce| u64::from_str_radix(nonce, 16).ok());
        let raw = wallet.pay_of(nonce.unwrap_or_else(|| panic!("{reserved}")), amount);
        let answer = ask(&work, number, &id, &send(1, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{answer}");
        work.payments.is_paid();
    }
}

/// Asks a relay, and the next one when that is killed.
async fn ask(work: &Work, number: usize, key: &str, request: &Value) -> Value {
    for attempt in 0..10 * RELAYS {
        let address = work.relays.lock().unwrap()[(number + attempt) % RELAYS];
        let answered = async {
            let mut client = Client::try_connect(address).await?.known_by(key).reserving();
            client.write(&request.to_string()).await?;
            client.read().await
        };
        match answered.await {
            Ok(answer) => return answer.json(),
            Err(_) => work.cut_off.fetch_add(1, Ordering::Relaxed),
        };
    }
    panic!("no relay answers");
}
