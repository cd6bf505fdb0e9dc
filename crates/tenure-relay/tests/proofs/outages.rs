//! Redis is killed under load and comes back, in each of the three modes (S141).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use tenure::{OnOutage, Tenure};
use tenure_relay::Gap;
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::{Anvil, Redis, eventually};

use crate::probe::client::send;
use crate::probe::relays::{CHAIN, Orders, RelayProcess, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const SOON: Duration = Duration::from_secs(60);

/// A sender who sends one after the other, and the same again when it is refused for the engine.
struct Sender {
    wallet: Wallet,
    accepted: AtomicU64,
    refused: AtomicU64,
    stop: AtomicBool,
    others: Mutex<Vec<Value>>,
}

impl Sender {
    fn start(number: u64, node: &Anvil, relays: &Arc<Vec<RelayProcess>>) -> Arc<Sender> {
        let wallet = Wallet::fresh(number, CHAIN);
        node.fund(&wallet.name()).unwrap();
        let sender = Arc::new(Sender {
            wallet,
            accepted: AtomicU64::new(0),
            refused: AtomicU64::new(0),
            stop: AtomicBool::new(false),
            others: Mutex::default(),
        });
        tokio::spawn(sender.clone().run(relays.clone()));
        sender
    }

    async fn run(self: Arc<Sender>, relays: Arc<Vec<RelayProcess>>) {
        let mut clients = Vec::new();
        for relay in relays.iter() {
            clients.push(relay.client().await);
        }
        for turn in 0.. {
            if self.stop.load(Ordering::Acquire) {
                return;
            }
            let raw = self.wallet.pay(self.accepted.load(Ordering::Acquire));
            let at = turn % clients.len();
            let answer = clients[at].ask(&send(1, &raw.raw)).await;
            if answer["result"] == json!(raw.hash) {
                self.accepted.fetch_add(1, Ordering::AcqRel);
            } else if answer["error"]["data"]["reason"] == json!("engine_down") {
                assert_eq!(answer["error"]["code"], json!(-32005));
                self.refused.fetch_add(1, Ordering::AcqRel);
                tokio::time::sleep(Duration::from_millis(10)).await;
            } else {
                self.others.lock().unwrap().push(answer);
                self.stop.store(true, Ordering::Release);
            }
        }
    }
}

fn wait(what: &str, senders: &[Arc<Sender>], holds: impl Fn(&Sender) -> bool) {
    let done = || senders.iter().all(|sender| holds(sender));
    if let Err(error) = eventually(what, SOON, done) {
        let others: Vec<_> = senders.iter().map(|it| it.others.lock().unwrap().clone()).collect();
        panic!("{error}: {others:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s141_closed_nothing_is_sent_while_the_engine_is_down_and_it_goes_on_by_itself() {
    let (node, redis) = (Anvil::build().start().unwrap(), Redis::build().start().unwrap());
    // How long it is hoped that the engine comes back, before a transaction is refused.
    let engine = format!("{}?connect_timeout=300ms", redis.url());
    let orders = Orders::new(&node.url(), &engine);
    let relays = [RelayProcess::start(&orders).await, RelayProcess::start(&orders).await];
    let relays = Arc::new(Vec::from(relays));
    let senders: Vec<_> = (1..=4).map(|number| Sender::start(number, &node, &relays)).collect();
    wait("all send", &senders, |it| it.accepted.load(Ordering::Acquire) >= 5);

    redis.kill().unwrap();
    wait("all are refused", &senders, |it| it.refused.load(Ordering::Acquire) >= 1);
    let counts = || {
        let count = |it: &Arc<Sender>| node.nonce(&it.wallet.name(), "pending").unwrap();
        senders.iter().map(count).collect::<Vec<_>>()
    };
    let before = counts();
    wait("all are refused again", &senders, |it| it.refused.load(Ordering::Acquire) >= 4);
    assert_eq!(counts(), before, "nothing is sent while there is no order");
    let mut client = relays[0].client().await;
    assert_eq!(client.get("/readyz").await.status, 503);
    assert!(client.call("eth_chainId", json!([])).await["result"].is_string(), "the rest passes");

    redis.restart().unwrap();
    let more: Vec<u64> = before.iter().map(|before| before + 5).collect();
    let goes_on = || counts().iter().zip(&more).all(|(now, more)| now >= more);
    eventually("it goes on by itself", SOON, goes_on).unwrap();
    senders.iter().for_each(|it| it.stop.store(true, Ordering::Release));
    for sender in &senders {
        let others = sender.others.lock().unwrap();
        assert!(others.is_empty(), "{others:?}");
    }
    let refused: u64 = senders.iter().map(|it| it.refused.load(Ordering::Acquire)).sum();
    println!("closed: {refused} refused, {:?} sent before and {:?} in all", before, counts());
    assert_eq!(client.get("/readyz").await.status, 200);
}

/// A claim in line would keep its place until the engine is back, and the sender would get no answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s141_closed_one_that_waits_in_its_lane_is_refused_when_the_engine_goes() {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    let relay = RelayProcess::start(&Orders::new(&node.url(), &redis.url())).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let tenure = Tenure::connect(&redis.url()).await.unwrap();
    let lane = format!("lane:{CHAIN}:{}", wallet.name());
    let held = tenure.mutex(&lane).acquire().await.unwrap();
    let mut client = relay.client().await;
    client.write(&send(1, &wallet.pay(0).raw).to_string()).await.unwrap();
    let waits = async {
        while tenure.inspect(&lane).await.unwrap().unwrap().waiters.is_empty() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(SOON, waits).await.expect("it waits in its lane");
    redis.kill().unwrap();
    let answer = tokio::time::timeout(SOON, client.read()).await.expect("an answer").unwrap();
    assert_eq!(answer.json()["error"]["data"]["reason"], "engine_down", "{}", answer.text());
    drop(held);
}

/// Sixty at once, and Redis dies in the middle of them; sixty more, and it comes back.
async fn through_an_outage(on_outage: OnOutage) -> (RelayProcess, usize) {
    let (node, redis) = (scripted(), Redis::build().start().unwrap());
    node.always(SEND, Conduct::AnswerLate(Duration::from_millis(3)));
    let mut orders = Orders::new(&node.url(), &redis.url());
    (orders.on_outage, orders.gap) = (on_outage, Gap::Hold(SOON));
    let relay = RelayProcess::start(&orders).await;
    let wallet = Wallet::fresh(1, CHAIN);
    let raws = wallet.pay_many(120);
    for (part, raws) in raws.chunks(60).enumerate() {
        let mut clients = Vec::new();
        for raw in raws {
            let mut client = relay.client().await;
            client.write(&send(raw.nonce, &raw.raw).to_string()).await.unwrap();
            clients.push((client, raw));
        }
        let sent = 60 * part + 10;
        eventually("some are sent", SOON, || node.sent().len() >= sent).unwrap();
        match part {
            0 => redis.kill().unwrap(),
            _ => redis.restart().unwrap(),
        }
        for (mut client, raw) in clients {
            let answer = client.read().await.unwrap().json();
            assert_eq!(answer["result"], json!(raw.hash), "{}: {answer}", raw.nonce);
        }
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, (0..120).collect::<Vec<_>>());
    // It goes back by itself: the engine gives turns again.
    let mut client = relay.client().await;
    let began = std::time::Instant::now();
    let mut nonce = 120;
    loop {
        let before = count(&client.get("/metrics").await.text());
        let raw = wallet.pay(nonce);
        assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
        nonce += 1;
        if count(&client.get("/metrics").await.text()) == before {
            break;
        }
        assert!(began.elapsed() < SOON, "it never goes back");
    }
    (relay, node.most_at_once(SEND))
}

/// Turns that the engine did not give, of either kind.
fn count(metrics: &str) -> u64 {
    let lines = metrics.lines().filter(|line| line.starts_with("tenure_relay_unprotected_total"));
    lines.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s141_local_one_relay_stays_in_order_through_an_outage() {
    let (relay, most_at_once) = through_an_outage(OnOutage::Local).await;
    assert_eq!(most_at_once, 1, "one at a time, before, in and after the outage");
    let metrics = relay.client().await.get("/metrics").await.text();
    assert!(metrics.contains(r#"protection="local""#), "{metrics}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s141_open_it_goes_through_and_is_counted() {
    let (relay, _) = through_an_outage(OnOutage::Open).await;
    let metrics = relay.client().await.get("/metrics").await.text();
    assert!(metrics.contains(r#"protection="none""#), "{metrics}");
    println!("open: {} turns without order", count(&metrics));
}
