//! The shutdown of a relay, and the limits on its load.

use std::net::Ipv4Addr;
use std::time::Duration;

use serde_json::json;
use tenure::Tenure;
use tenure_relay::{Relay, Server};
use tenure_testkit::node::Conduct;
use tenure_testkit::servers::eventually;
use tokio::sync::oneshot;

use crate::probe::client::{Client, call, send};
use crate::probe::relays::{CHAIN, Instance, config, scripted};
use crate::probe::wallet::Wallet;

const SEND: &str = "eth_sendRawTransaction";
const SOON: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_client_that_does_not_read_its_answer_does_not_hold_up_the_stop() {
    let node = scripted();
    // More than the system buffers for a connection.
    node.always("test_echo", Conduct::Enormous(20 << 20));
    let mut config = config(&node.url());
    config.max_hold = Duration::from_millis(500);
    (config.answer_within, config.ttl) = (config.max_hold, config.max_hold);
    let tenure = Tenure::connect("memory:").await.unwrap();
    let relay = Relay::new(config, &tenure).unwrap();
    let server = Server::bind(relay, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    let mut client = Client::connect(server.address().unwrap()).await;
    let (stop, stopped) = oneshot::channel::<()>();
    let runs = tokio::spawn(server.run(async { drop(stopped.await) }));
    client.write(&call(1, "test_echo", json!([])).to_string()).await.unwrap();
    eventually("the node is asked", SOON, || node.calls("test_echo") == 1).unwrap();
    drop(stop);
    tokio::time::timeout(SOON, runs).await.expect("it stops").unwrap();
    drop(client);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_relay_with_all_that_it_takes_on_says_that_it_is_busy() {
    let node = scripted();
    node.always(SEND, Conduct::Hang);
    let mut config = config(&node.url());
    config.max_in_flight = 2;
    let relay = Instance::alone(config).await;
    let raws: Vec<_> = (0..3).map(|number| Wallet::fresh(number, CHAIN).pay(0)).collect();
    let (mut one, mut two) = (relay.client().await, relay.client().await);
    one.write(&send(1, &raws[0].raw).to_string()).await.unwrap();
    two.write(&send(1, &raws[1].raw).to_string()).await.unwrap();
    eventually("two are on their way", SOON, || node.hanging() == 2).unwrap();
    let mut third = relay.client().await;
    let answer = third.ask(&send(1, &raws[2].raw)).await;
    assert_eq!(answer["error"]["code"], json!(-32005), "{answer}");
    let data = &answer["error"]["data"];
    assert_eq!((&data["reason"], &data["class"]), (&json!("busy"), &json!("rejected")), "{answer}");
    assert_eq!(third.call("test_echo", json!([1])).await["result"], json!([1]), "reads pass");
    node.behave();
    node.let_go();
    for (client, raw) in [(&mut one, &raws[0]), (&mut two, &raws[1])] {
        assert_eq!(client.read().await.unwrap().json()["result"], json!(raw.hash));
    }
    assert_eq!(third.ask(&send(1, &raws[2].raw)).await["result"], json!(raws[2].hash));
}

/// Some nodes do not mind the case of a method, so the relay does not either.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_case_of_a_method_leads_past_no_rule() {
    let node = scripted();
    let relay = Instance::alone(config(&node.url())).await;
    let mut client = relay.client().await;
    for method in ["admin_peers", "Admin_peers", "ADMIN_PEERS", "Eth_SendRawTransactionSync"] {
        let answer = client.call(method, json!([])).await;
        assert_eq!(answer["error"]["code"], json!(-32601), "{answer}");
        assert_eq!(answer["error"]["data"]["reason"], json!("method_denied"), "{answer}");
        assert_eq!(node.calls(method), 0);
    }
    let wallet = Wallet::fresh(1, CHAIN);
    let early = client.call("ETH_sendRawTransaction", json!([wallet.pay(0).raw])).await;
    assert_eq!(early["result"], json!(wallet.pay(0).hash), "{early}");
    assert_eq!((node.calls("ETH_sendRawTransaction"), node.calls(SEND)), (0, 1), "by its lane");
}
