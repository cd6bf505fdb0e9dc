//! Relays: in this process, where many are cheap, and as processes, which can be killed.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::Stdio;
use std::time::Duration;

use alloy_consensus::transaction::SignerRecoverable;
use alloy_consensus::{Transaction, TxEnvelope};
use alloy_eips::eip2718::Decodable2718;
use alloy_primitives::hex;
use serde_json::{Value, json};
use tenure::{OnOutage, Tenure};
use tenure_relay::{Config, Gap, Relay, Server};
use tenure_testkit::node::{Decoder, ScriptedNode, Sent};
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::{Child, Command};
use tokio::sync::oneshot;

use super::client::Client;

/// The chain of all tests.
pub(crate) const CHAIN: u64 = 31337;

/// A node that misbehaves on command, and knows whose a transaction is.
pub(crate) fn scripted() -> ScriptedNode {
    let decode = |raw: &str| {
        let bytes = hex::decode(raw).ok()?;
        let transaction = TxEnvelope::decode_2718(&mut &bytes[..]).ok()?;
        let sender = format!("{:#x}", transaction.recover_signer().ok()?);
        let hash = format!("{:#x}", transaction.tx_hash());
        Some(Sent { sender, nonce: transaction.nonce(), hash })
    };
    ScriptedNode::start(CHAIN, Decoder::new(decode)).unwrap()
}

/// The settings of a relay, unless a test changes them.
pub(crate) fn config(node: &str) -> Config {
    Config::new(vec![node.parse().unwrap()], CHAIN)
}

/// A relay in this process. It stops when it is dropped.
pub(crate) struct Instance {
    pub(crate) address: SocketAddr,
    _stop: oneshot::Sender<()>,
}

impl Instance {
    pub(crate) async fn start(config: Config, tenure: &Tenure) -> Instance {
        let relay = Relay::new(config, tenure).unwrap();
        let server = Server::bind(relay, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
        let address = server.address().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        tokio::spawn(server.run(async {
            let _ = stopped.await;
        }));
        Instance { address, _stop: stop }
    }

    /// With an engine of its own.
    pub(crate) async fn alone(config: Config) -> Instance {
        Instance::start(config, &Tenure::connect("memory:").await.unwrap()).await
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }
}

/// The orders of a relay in a separate process.
#[derive(Clone, Debug)]
pub(crate) struct Orders {
    pub(crate) node: String,
    pub(crate) engine: String,
    pub(crate) ordering: bool,
    pub(crate) gap: Gap,
    pub(crate) on_outage: OnOutage,
    pub(crate) max_hold: Duration,
    pub(crate) ttl: Duration,
    /// How long nonces stay reserved for signers, if they are.
    pub(crate) nonces_for: Option<Duration>,
}

impl Orders {
    pub(crate) fn new(node: &str, engine: &str) -> Orders {
        let config = config(node);
        let (node, engine) = (node.to_owned(), engine.to_owned());
        let (max_hold, ttl) = (config.max_hold, config.ttl);
        let (gap, on_outage) = (config.gap, config.on_outage);
        Orders { node, engine, ordering: true, gap, on_outage, max_hold, ttl, nonces_for: None }
    }

    fn write(&self) -> String {
        let gap = match self.gap {
            Gap::Forward => json!("forward"),
            Gap::Refuse => json!("refuse"),
            Gap::Hold(window) => json!(window.as_millis() as u64),
        };
        let on_outage = match self.on_outage {
            OnOutage::Local => "local",
            OnOutage::Open => "open",
            _ => "closed",
        };
        json!({
            "node": self.node, "engine": self.engine, "ordering": self.ordering, "gap": gap,
            "on_outage": on_outage, "max_hold": self.max_hold.as_millis() as u64,
            "ttl": self.ttl.as_millis() as u64,
            "nonces_for": self.nonces_for.map(|time| time.as_millis() as u64),
        })
        .to_string()
    }

    fn read(text: &str) -> Orders {
        let value: Value = serde_json::from_str(text).unwrap();
        let text = |name: &str| value[name].as_str().unwrap();
        let time = |name: &str| Duration::from_millis(value[name].as_u64().unwrap());
        Orders {
            node: text("node").to_owned(),
            engine: text("engine").to_owned(),
            ordering: value["ordering"].as_bool().unwrap(),
            gap: match value["gap"].as_str() {
                Some("forward") => Gap::Forward,
                Some(_) => Gap::Refuse,
                None => Gap::Hold(time("gap")),
            },
            on_outage: match text("on_outage") {
                "local" => OnOutage::Local,
                "open" => OnOutage::Open,
                _ => OnOutage::Closed,
            },
            max_hold: time("max_hold"),
            ttl: time("ttl"),
            nonces_for: value["nonces_for"].as_u64().map(Duration::from_millis),
        }
    }
}

/// A relay in a process of its own: this very test, which [`be_a_relay`] there. Killed on drop.
pub(crate) struct RelayProcess {
    pub(crate) address: SocketAddr,
    child: Child,
}

const ORDERS: &str = "TENURE_TEST_RELAY";
/// The test that every binary with relays in processes has.
pub(crate) const ENTRY: &str = "proofs::relay_process";
const LISTENS: &str = "relay listens on ";

impl RelayProcess {
    pub(crate) async fn start(orders: &Orders) -> RelayProcess {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", ENTRY, "--nocapture", "--test-threads=1"]);
        command.env(ORDERS, orders.write()).kill_on_drop(true);
        // It ends when its input does: also if this process is killed.
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = lines.next_line().await.unwrap().expect("it says where it listens");
            if let Some((_, address)) = line.split_once(LISTENS) {
                break address.parse().unwrap();
            }
        };
        tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
        RelayProcess { address, child }
    }

    pub(crate) async fn client(&self) -> Client {
        Client::connect(self.address).await
    }

    /// SIGKILL, and its end.
    pub(crate) async fn kill(mut self) {
        self.child.kill().await.unwrap();
    }
}

/// The body of the test `relay_process`: does nothing, unless it was started to be a relay.
pub(crate) async fn be_a_relay() {
    let Ok(orders) = std::env::var(ORDERS) else { return };
    let orders = Orders::read(&orders);
    let metrics = tenure_relay::meters::install().unwrap();
    let tenure = Tenure::connect(&orders.engine).await.unwrap();
    let mut config = config(&orders.node);
    config.ordering = orders.ordering;
    config.gap = orders.gap;
    config.on_outage = orders.on_outage;
    config.max_hold = orders.max_hold;
    config.ttl = orders.ttl;
    if let Some(lasts) = orders.nonces_for {
        (config.nonces, config.nonces_for) = (true, lasts);
    }
    let relay = Relay::new(config, &tenure).unwrap();
    let server = Server::bind(relay, (Ipv4Addr::LOCALHOST, 0).into()).await.unwrap();
    println!("{LISTENS}{}", server.address().unwrap());
    let (ended, end) = oneshot::channel();
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut std::io::stdin(), &mut std::io::sink());
        let _ = ended.send(());
    });
    let end = async {
        let _ = end.await;
    };
    server.with_metrics(metrics).run(end).await;
}
