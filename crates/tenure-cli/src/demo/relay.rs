//! One sender's transactions reach three relays in turn, each written before the one before is answered. Each relay
//! asks the node which nonce is next, and forwards the transaction if it is that one.
//!
//! Without lanes they all ask before the others have sent. With lanes a transaction has its place on arrival, and
//! one that arrives before its predecessor waits for it.
//!
//! The node is anvil if that is installed, otherwise a small one of our own.

mod chain;
mod http;

use std::env;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use alloy_consensus::{
    SignableTransaction, TxEip1559, TxEnvelope, crypto::secp256k1::sign_message,
};
use alloy_eips::eip2718::Encodable2718;
use alloy_primitives::{B256, TxKind, U256, b256, hex};
use tenure_relay::{Address, Config, Gap, Relay, Server};
use tokio::task::JoinSet;

use super::environment::Environment;
use super::participant::Participant;
use super::processes::Processes;
use super::{Act, Played, Seen, Trouble, no_such_part};

pub(super) const ACT: Act = Act {
    title: "one sender's transactions reach three relays (processes) in turn, at full speed",
    lines: [
        "let mut config = Config::new(vec![node], chain_id);",
        "config.gap = Gap::Hold(WINDOW); // who comes early waits for the one before",
        "let server = Server::bind(Relay::new(config, &tenure)?, listen).await?;",
    ],
};

const RELAYS: usize = 3;
const TRANSACTIONS: u64 = 60;
const WINDOW: Duration = Duration::from_secs(20);
/// The first account of every development node; it is on no chain that matters.
const SECRET: B256 = b256!("ac0974bec39a17e36ba4a6b4d238ff944bacb478cbed5efcae784d7bf4f2ff80");

pub(super) fn without(environment: &mut Environment<'_>) -> Played {
    let sent = send_all(environment, "without")?;
    let more = match sent.wrong {
        0 => "in order, by luck".to_owned(),
        _ => format!("each relay asked before the others had sent, on {}", sent.node),
    };
    Ok(sent.seen(|brief| Seen::report(brief, more)))
}

pub(super) fn with(environment: &mut Environment<'_>) -> Played {
    let sent = send_all(environment, "with")?;
    let held = sent.wrong == 0 && sent.taken == TRANSACTIONS;
    let more = format!("{} of {TRANSACTIONS} taken in their order, on {}", sent.taken, sent.node);
    Ok(sent.seen(|brief| Seen::check(held, brief, more)))
}

/// The results.
struct Sent {
    wrong: u64,
    /// The number of transactions that the node has accepted.
    taken: u64,
    node: &'static str,
}

impl Sent {
    fn seen(&self, seen: impl FnOnce(String) -> Seen) -> Seen {
        let brief = format!("{} of {TRANSACTIONS} with a wrong nonce", self.wrong);
        seen(brief).fact("wrong", self.wrong).fact("taken", self.taken)
    }
}

fn send_all(environment: &mut Environment<'_>, side: &str) -> Result<Sent, Trouble> {
    let mut processes = environment.processes();
    let (node, at) = start_node(&mut processes)?;
    let mut words = format!("relay client {at}");
    for _ in 0..RELAYS {
        let relay = processes.start(&format!("relay {side} {at}"))?;
        words = format!("{words} {}", processes.expect(relay, "listens")?);
    }
    processes.progress(&format!("  {side:8} {TRANSACTIONS} transactions are on their way"));
    let client = processes.start(&words)?;
    let counted = processes.expect(client, "done")?;
    let mut numbers = counted.split(' ').map(str::parse);
    let (Some(Ok(wrong)), Some(Ok(taken))) = (numbers.next(), numbers.next()) else {
        return Err(format!("{counted:?} are not two numbers").into());
    };
    Ok(Sent { wrong, taken, node })
}

/// Starts a node, and returns its name and address.
fn start_node(processes: &mut Processes<'_, '_>) -> Result<(&'static str, SocketAddr), Trouble> {
    let folders = env::var_os("PATH").unwrap_or_default();
    if !env::split_paths(&folders).any(|folder| folder.join("anvil").is_file()) {
        let node = processes.start("relay node")?;
        return Ok(("a small node of its own", processes.expect(node, "listens")?.parse()?));
    }
    let node = processes.start("relay anvil")?;
    loop {
        let (from, line) = processes.hear()?;
        if let Some(at) = line.strip_prefix("Listening on ").filter(|_| from == node) {
            return Ok(("anvil", at.trim().parse()?));
        }
    }
}

pub(super) async fn work(participant: &mut Participant, words: &[&str]) -> Result<(), Trouble> {
    match words {
        // In place of this process, so that it ends with the demo.
        ["anvil"] => Err(Command::new("anvil").args(["--port", "0"]).exec().into()),
        ["node"] => chain::serve(participant).await,
        ["client", node, relays @ ..] => {
            let (node, relays) = (node.parse()?, addresses(relays)?);
            let (wrong, taken) = send_to(node, &relays).await?;
            participant.say(&format!("done {wrong} {taken}"));
            Ok(())
        }
        [side @ ("with" | "without"), node] => {
            relay(participant, *side == "with", node.parse()?).await
        }
        _ => Err(no_such_part(words)),
    }
}

fn addresses(words: &[&str]) -> Result<Vec<SocketAddr>, Trouble> {
    words.iter().map(|word| Ok(word.parse()?)).collect()
}

async fn relay(
    participant: &mut Participant,
    ordered: bool,
    node: SocketAddr,
) -> Result<(), Trouble> {
    let names = participant.tenure().await?;
    let (tenure, ns) = names.parts();
    let node: Address = format!("http://{node}").parse()?;
    let chain_id = tenure_relay::chain_id(std::slice::from_ref(&node), WINDOW).await?;
    let listen = SocketAddr::from(([127, 0, 0, 1], 0));
    let mut config = Config::new(vec![node], chain_id);
    config.gap = Gap::Hold(WINDOW); // who comes early waits for the one before
    config.ns = Some(ns);
    if !ordered {
        (config.ordering, config.gap) = (false, Gap::Refuse);
    }
    let server = Server::bind(Relay::new(config, &tenure)?, listen).await?;
    participant.say(&format!("listens {}", server.address()?));
    server.run(std::future::pending()).await;
    Ok(())
}

/// Writes each transaction to the next relay as soon as the one before is written. Returns how many were refused,
/// and how many the node has.
async fn send_to(node: SocketAddr, relays: &[SocketAddr]) -> Result<(u64, u64), Trouble> {
    let chain_id = number(&http::ask(node, "eth_chainId", "[]").await?)?;
    let mut answers = JoinSet::new();
    for (nonce, relay) in (0..TRANSACTIONS).zip(relays.iter().cycle()) {
        let params = format!(r#"["{}"]"#, signed(chain_id, nonce)?);
        let asked = http::write(*relay, "eth_sendRawTransaction", &params).await?;
        answers.spawn(http::read(asked));
    }
    let mut wrong = 0;
    while let Some(answer) = answers.join_next().await {
        let answer = answer??;
        match answer.contains(r#""result""#) {
            true => {}
            false if answer.contains("nonce") => wrong += 1,
            false => return Err(format!("the relay answered {answer}").into()),
        }
    }
    let sender = format!(r#"["{}","pending"]"#, chain::SENDER);
    let taken = number(&http::ask(node, "eth_getTransactionCount", &sender).await?)?;
    Ok((wrong, taken))
}

fn signed(chain_id: u64, nonce: u64) -> Result<String, Trouble> {
    let transaction = TxEip1559 {
        chain_id,
        nonce,
        gas_limit: 21_000,
        max_fee_per_gas: 10_000_000_000,
        to: TxKind::Call(alloy_primitives::Address::with_last_byte(1)),
        value: U256::from(1),
        ..TxEip1559::default()
    };
    let signature = sign_message(SECRET, transaction.signature_hash())?;
    let signed = TxEnvelope::from(transaction.into_signed(signature));
    Ok(hex::encode_prefixed(signed.encoded_2718()))
}

/// Parses the number in an answer: `"result":"0x…"`.
fn number(answer: &str) -> Result<u64, Trouble> {
    let digits = answer.split(r#""result":"0x"#).nth(1).and_then(|rest| rest.split('"').next());
    let digits = digits.ok_or_else(|| format!("the node answered {answer}"))?;
    Ok(u64::from_str_radix(digits, 16)?)
}
