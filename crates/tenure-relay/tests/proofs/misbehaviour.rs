//! A node that misbehaves: what its answers come to, that they are bounded, and whom else to ask.

use std::time::Duration;

use serde_json::{Value, json};
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::eventually;

use crate::probe::client::{call, send};
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const COUNT: &str = "eth_getTransactionCount";
const SOON: Duration = Duration::from_secs(60);
const WITHIN: Duration = Duration::from_millis(300);

/// Everything that is no answer.
fn all() -> Vec<Conduct> {
    vec![
        Conduct::Html(200),
        Conduct::Html(502),
        Conduct::TooMany(1),
        Conduct::WrongId,
        Conduct::Gzip,
        Conduct::GzipBomb(4 << 20),
        // Longer than it may take, for the shortest answer.
        Conduct::Drip(WITHIN / 4),
        Conduct::Enormous(3 << 20),
        Conduct::Truncated,
        Conduct::Short,
        Conduct::Redirect("http://127.0.0.1:1/".to_owned()),
        Conduct::Close,
        Conduct::DoThenClose,
        Conduct::Hang,
        Conduct::DoThenHang,
    ]
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s142_what_is_no_answer_to_a_submission_is_found_out_and_sent_once() {
    let node = scripted();
    let mut config = config(&node.url());
    config.answer_within = WITHIN;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let wallet = Wallet::fresh(1, CHAIN);
    for (nonce, conduct) in (0..).zip(all()) {
        node.next(SEND, conduct.clone());
        let raw = wallet.pay(nonce);
        let answer = client.ask(&send(nonce, &raw.raw)).await;
        assert_eq!(answer["result"], json!(raw.hash), "{conduct:?}: {answer}");
    }
    let nonces: Vec<u64> = node.sent().iter().map(|sent| sent.nonce).collect();
    assert_eq!(nonces, (0..all().len() as u64).collect::<Vec<_>>());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s142_a_node_that_never_answers_a_submission_costs_its_sender_the_max_hold() {
    let node = scripted();
    let mut config = config(&node.url());
    config.answer_within = WITHIN;
    (config.max_hold, config.ttl) = (WITHIN * 2, WITHIN * 2);
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await.known_by("payment");
    // Nobody can tell whether the node has it: it also does not find it.
    let never = [Conduct::Html(502), Conduct::WrongId, Conduct::Truncated, Conduct::Hang];
    for (number, conduct) in (0..).zip(never) {
        node.always(SEND, conduct.clone());
        node.always("eth_getTransactionByHash", Conduct::Html(502));
        let raw = Wallet::fresh(number, CHAIN).pay(0);
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["error"]["code"], json!(-32050), "{conduct:?}: {answer}");
        assert_eq!(answer["error"]["data"]["class"], json!("unknown"), "{answer}");
        assert_eq!(answer["error"]["data"]["hash"], json!(raw.hash), "{answer}");
        node.behave();
        let next = client.ask(&send(2, &raw.raw)).await;
        assert_eq!(next["result"], json!(raw.hash), "{conduct:?}: {next}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s142_checks_that_get_no_answer_send_nothing() {
    let node = scripted();
    let mut config = config(&node.url());
    config.answer_within = WITHIN;
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    let mut conducts = all();
    conducts.push(Conduct::Refuse(-32000, "no state".to_owned()));
    for conduct in conducts {
        node.always(COUNT, conduct.clone());
        let answer = client.ask(&send(1, &raw.raw)).await;
        assert_eq!(answer["error"]["code"], json!(-32002), "{conduct:?}: {answer}");
        assert_eq!(node.calls(SEND), 0, "{conduct:?}");
        node.behave();
    }
    assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
}

/// In each case the call ends, and the next call on the same relay is answered.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s142_what_passes_through_is_bounded_too() {
    let node = scripted();
    let mut config = config(&node.url());
    // The well-behaved answer in between must come within it on a busy machine, too.
    config.answer_within = WITHIN * 5;
    config.max_answer = 1 << 20;
    let relay = Instance::alone(config).await;
    for conduct in all() {
        node.next("test_echo", conduct.clone());
        let mut client = relay.client().await;
        client.write(&call(1, "test_echo", json!(["x"])).to_string()).await.unwrap();
        let read = tokio::time::timeout(SOON, client.read()).await;
        let read = read.unwrap_or_else(|_| panic!("{conduct:?} never ends"));
        if let Ok(answer) = &read {
            assert!(answer.body.len() <= 1 << 20, "{conduct:?}: {}", answer.body.len());
            assert!(!answer.head.to_lowercase().contains("location:"), "{conduct:?}");
        }
        let is_no_answer = matches!(
            conduct,
            Conduct::Redirect(_)
                | Conduct::Close
                | Conduct::DoThenClose
                | Conduct::Hang
                | Conduct::DoThenHang
        );
        if is_no_answer {
            let answer = read.unwrap().json();
            assert_eq!(answer["error"]["code"], json!(-32002), "{conduct:?}: {answer}");
        }
        let mut client = relay.client().await;
        let answer = client.call("test_echo", json!(["y"])).await;
        assert_eq!(answer["result"], json!(["y"]), "after {conduct:?}: {answer}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s142_a_node_in_trouble_is_left_alone_while_another_answers() {
    let (bad, good) = (scripted(), scripted());
    let mut config = config(&bad.url());
    config.nodes.push(good.url().parse().unwrap());
    let relay = Instance::alone(config).await;
    let mut client = relay.client().await;
    assert_eq!(client.call("test_echo", json!([1])).await["result"], json!([1]));
    assert_eq!((bad.calls("test_echo"), good.calls("test_echo")), (1, 0));
    bad.always("test_echo", Conduct::Html(502));
    let mut asked = 0;
    while good.calls("test_echo") == 0 {
        client.write(&call(1, "test_echo", json!([2])).to_string()).await.unwrap();
        client.read().await.unwrap();
        asked += 1;
        assert!(asked < 20, "the other one is never asked");
    }
    bad.behave();
    // Its rest has an end, and it is the better one.
    let back = || bad.calls("test_echo") > asked;
    let began = std::time::Instant::now();
    while !back() {
        assert!(began.elapsed() < SOON, "it is never asked again");
        let answer: Value = client.call("test_echo", json!([3])).await;
        assert_eq!(answer["result"], json!([3]));
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // One that is gone is passed over at once.
    drop(bad);
    let raw = Wallet::fresh(1, CHAIN).pay(0);
    assert_eq!(client.ask(&send(1, &raw.raw)).await["result"], json!(raw.hash));
    eventually("the other has it", SOON, || good.sent().len() == 1).unwrap();
}
