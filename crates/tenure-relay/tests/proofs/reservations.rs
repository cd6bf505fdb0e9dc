//! Nonces that signers reserve over JSON-RPC: given once, at any relay, whichever process dies.

use std::time::Duration;

use serde_json::{Value, json};
use tenure::Tenure;
use tenure_relay::{Config, Gap};
use tenure_testkit::node::{Conduct, ScriptedNode};
use tenure_testkit::servers::{Anvil, Mining, Redis, eventually};

use crate::probe::client::{Client, call, send};
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
/// So long that only an event can end it.
const LONG: Duration = Duration::from_secs(60);
/// So short that it may be waited for.
const SHORT: Duration = Duration::from_millis(300);

fn reserving(node: &str) -> Config {
    let mut config = config(node);
    (config.nonces, config.nonces_for) = (true, LONG);
    config
}

/// Two relays on one engine, and a client of each.
struct Two {
    node: ScriptedNode,
    relays: [Instance; 2],
    engines: [Tenure; 2],
    _redis: Redis,
}

impl Two {
    async fn start(change: impl Fn(&mut Config)) -> Two {
        let (node, redis) = (scripted(), Redis::build().start().unwrap());
        let mut config = reserving(&node.url());
        change(&mut config);
        let engine = || async { Tenure::connect(&redis.url()).await.unwrap() };
        let engines = [engine().await, engine().await];
        let one = Instance::start(config.clone(), &engines[0]).await;
        let two = Instance::start(config, &engines[1]).await;
        Two { node, relays: [one, two], engines, _redis: redis }
    }

    async fn client(&self, number: usize) -> Client {
        self.relays[number].client().await.reserving()
    }
}

fn reason(answer: &Value) -> &str {
    answer["error"]["data"]["reason"].as_str().unwrap_or_default()
}

async fn reserve(client: &mut Client, wallet: &Wallet, id: &str) -> u64 {
    let answer =
        client.call("tenure_reserveNonce", json!([{ "from": wallet.name(), "id": id }])).await;
    number(&answer["result"]["nonce"]).unwrap_or_else(|| panic!("{answer}"))
}

async fn count(client: &mut Client, wallet: &Wallet) -> u64 {
    let answer = client.call(COUNT, json!([wallet.name(), "pending"])).await;
    number(&answer["result"]).unwrap_or_else(|| panic!("{answer}"))
}

fn number(value: &Value) -> Option<u64> {
    u64::from_str_radix(value.as_str()?.strip_prefix("0x")?, 16).ok()
}

/// The reply got lost, and the call is repeated, here or elsewhere.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_id_gets_the_same_nonce_at_every_relay() {
    let two = Two::start(|_| {}).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    assert_eq!(reserve(&mut one, &wallet, "a").await, 0);
    assert_eq!(reserve(&mut one, &wallet, "a").await, 0);
    assert_eq!(reserve(&mut other, &wallet, "a").await, 0);
    assert_eq!(reserve(&mut other, &wallet, "b").await, 1);
    // At the same moment, too.
    let (mut one_more, mut another) = (two.client(0).await, two.client(1).await);
    let both =
        tokio::join!(reserve(&mut one_more, &wallet, "c"), reserve(&mut another, &wallet, "c"));
    assert_eq!(both, (2, 2));
    let looked = one.call("tenure_getNonces", json!([{ "from": wallet.name() }])).await;
    let shown = &looked["result"];
    assert_eq!((&shown["count"], &shown["next"]), (&json!("0x0"), &json!("0x3")), "{looked}");
    assert_eq!(shown["in_flight"].as_array().unwrap().len(), 3, "{looked}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_nonce_is_free_again_when_it_is_given_back_at_another_relay() {
    let two = Two::start(|_| {}).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    assert_eq!(reserve(&mut one, &wallet, "a").await, 0);
    assert_eq!(reserve(&mut one, &wallet, "b").await, 1);
    let given_back = json!([{ "from": wallet.name(), "id": "a" }]);
    for expected in [true, false] {
        let answer = other.call("tenure_releaseNonce", given_back.clone()).await;
        assert_eq!(answer["result"], json!(expected), "{answer}");
    }
    let looked = other.call("tenure_getNonces", json!([{ "from": wallet.name() }])).await;
    assert_eq!(looked["result"]["gaps"], json!(["0x0"]), "{looked}");
    // The next caller fills a gap, or a caller that names it, unless it is taken.
    for (nonce, expected) in [("0x1", Value::Null), ("0x0", json!("0x0"))] {
        let fill = json!([{ "from": wallet.name(), "id": "c", "nonce": nonce }]);
        let answer = other.call("tenure_reserveNonce", fill).await;
        assert_eq!(
            answer["result"].get("nonce").cloned().unwrap_or_default(),
            expected,
            "{answer}"
        );
    }
}

/// The signer dies between its reservation and the send.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_never_sent_ends_by_its_time_and_is_the_next_that_anyone_gets() {
    let two = Two::start(|_| {}).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    let lasts = Duration::from_secs(2);
    let short =
        json!([{ "from": wallet.name(), "id": "dies", "lasts_ms": lasts.as_millis() as u64 }]);
    assert_eq!(one.call("tenure_reserveNonce", short).await["result"]["nonce"], json!("0x0"));
    assert_eq!(reserve(&mut other, &wallet, "b").await, 1);
    tokio::time::sleep(lasts).await;
    assert_eq!(reserve(&mut other, &wallet, "c").await, 0);
    // The signer was not dead, only slow: it is told.
    let late = json!([{ "from": wallet.name(), "id": "dies", "hash": wallet.pay(0).hash }]);
    let answer = one.call("tenure_sendingNonce", late).await;
    assert_eq!(reason(&answer), "reservation_ended", "{answer}");
}

/// The relay dies while the transaction is on its way: nobody gets the nonce before the chain was asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_may_have_been_sent_is_not_given_out_before_the_chain_is_asked() {
    let unknown_for = Duration::from_secs(2);
    let two = Two::start(|config| {
        (config.unknown_for, config.nonces_for) = (unknown_for, SHORT);
    })
    .await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    assert_eq!(reserve(&mut one, &wallet, "a").await, 0);
    two.node.next(SEND, Conduct::Hang);
    let began = std::time::Instant::now();
    one.write(&send(1, &wallet.pay(0).raw).to_string()).await.unwrap();
    eventually("the node has heard of it", LONG, || two.node.hanging() == 1).unwrap();
    two.engines[0].close().await;
    tokio::time::sleep(SHORT).await;
    // The reservation is over; the hash is not.
    let nonce = reserve(&mut other, &wallet, "b").await;
    assert!(nonce == 1 || began.elapsed() > unknown_for, "given out without a question");
    let mut attempt = 0;
    let given = loop {
        attempt += 1;
        match reserve(&mut other, &wallet, &format!("c{attempt}")).await {
            0 => break began.elapsed(),
            _ => tokio::time::sleep(Duration::from_millis(100)).await,
        }
        assert!(attempt < 600, "nobody gets it");
    };
    assert!(given >= unknown_for, "after {given:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_send_through_any_relay_settles_the_reservation() {
    let two = Two::start(|config| config.gap = Gap::Refuse).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    assert_eq!(reserve(&mut one, &wallet, "a").await, 0);
    // The node says no: the nonce is free at once.
    two.node.next(SEND, Conduct::Refuse(-32000, "insufficient funds".to_owned()));
    let answer = other.ask(&send(1, &wallet.pay(0).raw)).await;
    assert_eq!(answer["error"]["message"], json!("insufficient funds"), "{answer}");
    assert_eq!(reserve(&mut one, &wallet, "b").await, 0);
    // So it is when the relay says no.
    assert_eq!(reserve(&mut one, &wallet, "c").await, 1);
    let early = other.ask(&send(1, &wallet.pay(1).raw)).await;
    assert_eq!(reason(&early), "nonce_gap", "{early}");
    assert_eq!(reserve(&mut one, &wallet, "d").await, 1);
    for nonce in 0..2 {
        let paid = wallet.pay(nonce);
        assert_eq!(other.ask(&send(1, &paid.raw)).await["result"], json!(paid.hash));
    }
    assert_eq!(reserve(&mut one, &wallet, "e").await, 2);
    // A node that counts late does not make it be given again.
    two.node.always(COUNT, Conduct::Say(json!("0x0")));
    assert_eq!(reserve(&mut other, &wallet, "f").await, 3);
}

/// What people have: a count, and a transaction with it, from several processes.
async fn count_and_send(two: &Two, wallet: &Wallet, is_reserving: bool) -> usize {
    let mut tasks = Vec::new();
    for worker in 0..4_u64 {
        let mut client = two.relays[worker as usize % 2].client().await;
        if is_reserving {
            client = client.reserving();
        }
        let wallet = wallet.clone();
        tasks.push(tokio::spawn(async move {
            let mut paid = 0;
            for payment in 0..15 {
                let nonce = count(&mut client, &wallet).await;
                let raw = wallet.pay_of(nonce, 1 + worker * 100 + payment);
                let answer = client.ask(&send(1, &raw.raw)).await;
                paid += usize::from(answer["result"] == json!(raw.hash));
            }
            paid
        }));
    }
    let mut paid = 0;
    for task in tasks {
        paid += task.await.unwrap();
    }
    paid
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_is_sent_with_is_ones_own() {
    let two = Two::start(|_| {}).await;
    let paid = count_and_send(&two, &Wallet::fresh(1, CHAIN), false).await;
    println!("without reserving: {paid} of 60");
    assert!(paid < 60, "the danger is not there");
    let wallet = Wallet::fresh(2, CHAIN);
    let paid = count_and_send(&two, &wallet, true).await;
    println!("reserving: {paid} of 60");
    assert_eq!(paid, 60);
    let sent: Vec<u64> = two
        .node
        .sent()
        .iter()
        .filter(|sent| sent.sender == wallet.name())
        .map(|sent| sent.nonce)
        .collect();
    assert_eq!(sent, (0..60).collect::<Vec<_>>());
}

/// Libraries put calls that are made at the same time into one batch, and send with none of its answers before
/// all of them are there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn counts_of_one_batch_are_told_in_one_turn_and_the_next_waits_for_all_of_them() {
    let two = Two::start(|_| {}).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    let asked = |id| call(id, COUNT, json!([wallet.name(), "pending"]));
    let answers = one.ask(&json!([asked(1), asked(2)])).await;
    assert_eq!((&answers[0]["result"], &answers[1]["result"]), (&json!("0x0"), &json!("0x1")));
    let mut next = two.client(1).await;
    next.write(&asked(3).to_string()).await.unwrap();
    let line = format!("signing:{CHAIN}:{}", wallet.name());
    let waits = async || {
        let view = two.engines[0].inspect(&line).await.unwrap().unwrap();
        (view.holders.len(), view.waiters.len())
    };
    while waits().await != (1, 1) {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let raws = wallet.pay_many(2);
    assert_eq!(one.ask(&send(1, &raws[0].raw)).await["result"], json!(raws[0].hash));
    assert_eq!(waits().await, (1, 1), "one of the two is not sent yet");
    assert_eq!(other.ask(&send(1, &raws[1].raw)).await["result"], json!(raws[1].hash));
    assert_eq!(next.read().await.unwrap().json()["result"], json!("0x2"));
}

/// A client that asks and dies, or only wants to know the count, delays the others for its time, and leaves no gap.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_that_nobody_sends_with_goes_to_the_next() {
    let two = Two::start(|config| config.nonces_for = SHORT).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let (mut one, mut other) = (two.client(0).await, two.client(1).await);
    let began = std::time::Instant::now();
    assert_eq!(count(&mut one, &wallet).await, 0);
    assert_eq!(count(&mut other, &wallet).await, 0);
    assert!(began.elapsed() + Duration::from_millis(50) > SHORT, "{:?}", began.elapsed());
    // Not every request for a count is followed by a send: for other blocks, or with another URL.
    for at in ["latest", "0x0"] {
        let answer = other.call(COUNT, json!([wallet.name(), at])).await;
        assert_eq!(answer["result"], json!("0x0"), "{answer}");
    }
    let mut plain = two.relays[0].client().await;
    assert_eq!(count(&mut plain, &wallet).await, 0);
    // A node that fills a transaction in would choose the nonce.
    let filled = one.call("eth_fillTransaction", json!([{ "from": wallet.name() }])).await;
    assert_eq!(reason(&filled), "method_denied", "{filled}");
}

/// A signer that was stopped for too long sends a nonce that another has by then. One of the two is told so;
/// the other's transaction is not replaced behind its back.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_comes_too_late_replaces_nothing() {
    let (node, redis) =
        (Anvil::build().mining(Mining::Never).start().unwrap(), Redis::build().start().unwrap());
    let mut config = reserving(&node.url());
    config.nonces_for = SHORT;
    let relay = Instance::start(config, &Tenure::connect(&redis.url()).await.unwrap()).await;
    let wallet = Wallet::rich(0, node.chain());
    let (mut slow, mut quick) =
        (relay.client().await.reserving(), relay.client().await.reserving());
    assert_eq!(count(&mut slow, &wallet).await, 0);
    assert_eq!(count(&mut quick, &wallet).await, 0);
    let paid = wallet.pay(0);
    assert_eq!(quick.ask(&send(1, &paid.raw)).await["result"], json!(paid.hash));
    let late = slow.ask(&send(1, &wallet.pay_more(0, 3).raw)).await;
    assert_eq!(reason(&late), "nonce_too_low", "{late}");
    // To replace a transaction, a client uses the plain URL.
    let faster = wallet.pay_more(0, 3);
    let mut plain = relay.client().await;
    assert_eq!(plain.ask(&send(1, &faster.raw)).await["result"], json!(faster.hash));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_that_does_not_reserve_says_so() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let mut client = relay.client().await.reserving();
    let asked = json!([{ "from": wallet.name(), "id": "a" }]);
    let answers = [
        client.call("tenure_reserveNonce", asked).await,
        client.call(COUNT, json!([wallet.name(), "pending"])).await,
        client.ask(&send(1, &wallet.pay(0).raw)).await,
    ];
    for answer in answers {
        assert_eq!(reason(&answer), "nonces_off", "{answer}");
    }
    let relay = Instance::alone(reserving(&node.url())).await;
    let mut on = relay.client().await;
    for (method, params) in [
        ("tenure_reserveNonce", json!([])),
        ("tenure_reserveNonce", json!([{ "from": "0x12", "id": "a" }])),
        ("tenure_reserveNonce", json!([{ "from": wallet.name() }])),
        ("tenure_reserveNonce", json!([{ "from": wallet.name(), "id": "a", "lasts_ms": 1 }])),
        ("tenure_reserveNonce", json!([{ "from": wallet.name(), "id": "a", "nonce": "one" }])),
        ("tenure_reserveNonce", json!([{ "from": wallet.name(), "id": "a", "other": 1 }])),
        ("tenure_sendingNonce", json!([{ "from": wallet.name(), "id": "a" }])),
        ("tenure_releaseNonce", json!([{ "from": wallet.name(), "id": "a", "hash": "0x1" }])),
    ] {
        let answer = on.call(method, params.clone()).await;
        assert_eq!(answer["error"]["code"], json!(-32602), "{params}: {answer}");
    }
    let unknown = on.call("tenure_payEverything", json!([])).await;
    assert_eq!(unknown["error"]["code"], json!(-32601), "{unknown}");
}
