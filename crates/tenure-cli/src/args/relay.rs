//! `tenure relay`: where the node is, and how transactions are ordered before it.

use std::time::Duration;

use clap::{ArgAction, Command};
use tenure::OnOutage;
use tenure_relay::transaction::{Gas, UnknownTypes, Unprotected};
use tenure_relay::{Access, Address, Config, Gap, Repeats};

use super::define::{flag, option};
use super::given::Given;
use super::listening::{self, Listening, words};
use crate::failure::{CONFIGURATION, Failure, USAGE};

const MORE: &str = "\
All requests are forwarded to the node unchanged, except eth_sendRawTransaction: the transactions of a sender
wait in one line across all relays that share an engine, in order of their nonces (with --gap refuse or forward:
of arrival). Each transaction is checked, submitted to the node and followed until the node has answered; then
the next one gets its turn. Senders do not wait for each other.

A transaction whose nonce is not next waits for the missing ones (--gap hold), is refused or is forwarded
anyway. While the engine is down, nothing is sent (--on-outage closed), order is kept within this relay only
(local), or order is not kept at all (open; counted). GET /readyz answers 503 while the relay cannot work;
GET /metrics returns the metrics. On an address that other machines can reach, the relay needs TLS and either
tokens or client certificates, or --insecure if the network is trusted. Error codes and more: docs/relay.md.

  tenure relay --upstream http://127.0.0.1:8545
  TENURE_URL=redis://redis:6379 TENURE_UPSTREAM=https://node/v2/SECRET tenure relay --listen 127.0.0.1:9545";

/// The form of the file of clients.
pub(crate) const TOKEN_LINES: &str =
    "each line is: NAME TOKEN rate=N in-flight=N; a hashed token is written sha256:HEX";

/// The arguments of a relay.
#[derive(Debug)]
pub(crate) struct Relay {
    pub(crate) listening: Listening,
    pub(crate) nodes: Vec<Address>,
    /// If it is not given, the node is asked.
    pub(crate) chain_id: Option<u64>,
    changes: Changes,
}

/// Options that differ from the defaults.
#[derive(Debug)]
struct Changes {
    ordering: Option<bool>,
    max_hold: Option<Duration>,
    ttl: Option<Duration>,
    on_outage: Option<OnOutage>,
    per_sender: Option<u64>,
    max_in_flight: Option<u64>,
    gap: Gap,
    repeats: Option<Repeats>,
    answer_early: bool,
    pending_set: Option<bool>,
    nonces: Option<bool>,
    nonces_for: Option<Duration>,
    answer_within: Option<Duration>,
    check_fee: Option<bool>,
    check_balance: Option<bool>,
    gas: Option<Gas>,
    unprotected: bool,
    pass_unknown: bool,
    denied: Option<Vec<String>>,
    max_connections: Option<u64>,
    max_bodies: Option<u64>,
    client_within: Option<Duration>,
}

const ON_OR_OFF: [(&str, bool); 2] = [("on", true), ("off", false)];
const OUTAGE: [(&str, OnOutage); 3] =
    [("closed", OnOutage::Closed), ("local", OnOutage::Local), ("open", OnOutage::Open)];
const GAS: [(&str, Gas); 3] =
    [("prague", Gas::Prague), ("shanghai", Gas::Shanghai), ("off", Gas::Unchecked)];
const REPEATS: [(&str, Repeats); 2] =
    [("same-client", Repeats::SameClient), ("anyone", Repeats::Anyone)];

pub(super) fn define() -> Command {
    let command = Command::new("relay")
        .about("Keep each Ethereum sender's transactions in order, in front of a node")
        .after_help(MORE)
        .arg(
            option(
                "upstream",
                None,
                "URL",
                "URL of the node. Further nodes, comma-separated or repeated, are used when the first \
                 does not answer. Other users can see a secret in it in the process list; use the \
                 variable instead",
            )
            .action(ArgAction::Append),
        );
    let command = command
        .arg(option("listen", None, "ADDRESS", "Address to listen on [default: 127.0.0.1:9545]"))
        .arg(option("admin-listen", None, "ADDRESS", "Address for health and metrics, over plain HTTP [default: same as --listen]"))
        .arg(option("tokens-file", None, "FILE", "File of clients, one per line: name, token and limits; TENURE_TOKENS takes the lines themselves [default: everybody]"));
    listening::define(command)
        .arg(option("cors", None, "ORIGINS", "Origins whose pages may use the relay from a browser, comma-separated; * for any [default: none]"))
        .arg(option("chain-id", None, "N", "Chain id [default: asks the node]"))
        .arg(option("ordering", None, "on|off", "Whether to keep each sender's transactions in order [default: on]"))
        .arg(option("gap", None, "WHAT", "What to do with a nonce that is not next: hold, refuse or forward [default: hold]"))
        .arg(option("gap-window", None, "D", "How long to hold it [default: 5s]"))
        .arg(option("repeats", None, "WHO", "Who gets the hash of a transaction that was sent before: same-client (by its Idempotency-Key) or anyone [default: same-client]"))
        .arg(option("max-hold", None, "D", "Longest time that a transaction may keep its lane [default: 30s]"))
        .arg(option("ttl", Some('t'), "D", "How long a lane stays taken after its relay has died [default: 10s]"))
        .arg(option("on-outage", None, "WHAT", "What to do while the engine is down: closed, local or open [default: closed]"))
        .arg(option("per-sender", None, "N", "Maximum number of waiting transactions per sender [default: 1000]"))
        .arg(option("in-flight", None, "N", "Maximum number of transactions in flight in this relay [default: 10000]"))
        .arg(flag("async", None, "Answer with the hash as soon as the checks have passed"))
        .arg(option("pending", None, "on|off", "Show transactions in flight, and count them as sent [default: on]"))
        .arg(option("nonces", None, "on|off", "Reserve nonces for signers on request [default: off]"))
        .arg(option("nonces-for", None, "D", "How long a nonce stays reserved if the signer does not say [default: 5s]"))
        .arg(option("upstream-within", None, "D", "How long a node may take to answer [default: 10s]"))
        .arg(option("check-fee", None, "on|off", "Refuse transactions that pay less than the base fee [default: on]"))
        .arg(option("check-balance", None, "on|off", "Refuse transactions that the sender cannot pay for [default: off]"))
        .arg(option("check-gas", None, "FORK", "Fork whose gas rules apply: prague, shanghai or off [default: prague]"))
        .arg(flag("allow-unprotected", None, "Accept legacy transactions without a chain id"))
        .arg(flag("pass-unknown", None, "Forward transactions of unknown types, without a lane"))
        .arg(option("deny", None, "METHODS", "Methods to refuse, comma-separated; admin_* matches all that begin so [default: methods for operators, and other ways to send raw transactions]"))
        .arg(option("connections", None, "N", "Maximum number of concurrent connections [default: 1024]"))
        .arg(option("bodies", None, "MIB", "Maximum size of all long request bodies at a time, in MiB [default: 64]"))
        .arg(option("client-within", None, "D", "How long a client may take to send a body or to read a response [default: 30s]"))
}

impl Relay {
    pub(super) fn read(given: &Given<'_>) -> Result<Relay, Failure> {
        let listening = read_listening(given)?;
        let switch = |name| Ok(given.choice(name, &ON_OR_OFF)?.map(|found| found.value));
        let denied =
            given.text("deny")?.map(|found| words(&found.value).map(String::from).collect());
        let changes = Changes {
            ordering: switch("ordering")?,
            max_hold: given.some_time("max-hold")?,
            ttl: given.some_time("ttl")?,
            on_outage: given.choice("on-outage", &OUTAGE)?.map(|found| found.value),
            per_sender: given.number("per-sender", 1..=1_000_000)?,
            max_in_flight: given.number("in-flight", 1..=1_000_000)?,
            gap: read_gap(given)?,
            repeats: given.choice("repeats", &REPEATS)?.map(|found| found.value),
            answer_early: given.flag("async")?.value,
            pending_set: switch("pending")?,
            nonces: switch("nonces")?,
            nonces_for: given.some_time("nonces-for")?,
            answer_within: given.some_time("upstream-within")?,
            check_fee: switch("check-fee")?,
            check_balance: switch("check-balance")?,
            gas: given.choice("check-gas", &GAS)?.map(|found| found.value),
            unprotected: given.flag("allow-unprotected")?.value,
            pass_unknown: given.flag("pass-unknown")?.value,
            denied,
            max_connections: given.number("connections", 1..=1_000_000)?,
            max_bodies: given.number("bodies", 1..=1_000_000)?,
            client_within: given.some_time("client-within")?,
        };
        let (nodes, chain_id) = (read_nodes(given)?, given.number("chain-id", 1..=u64::MAX)?);
        Ok(Relay { listening, nodes, chain_id, changes })
    }

    /// How long a node may take to answer.
    pub(crate) fn answer_within(&self) -> Duration {
        self.changes.answer_within.unwrap_or(Config::new(Vec::new(), 0).answer_within)
    }

    /// Whether nothing can be sent without the engine.
    pub(crate) fn needs_the_engine(&self) -> bool {
        self.changes.on_outage.unwrap_or(OnOutage::Closed) == OnOutage::Closed
    }

    /// The configuration for this chain.
    pub(crate) fn config(self, chain_id: u64, ns: Option<String>) -> (Config, Listening) {
        let changes = self.changes;
        let mut config = Config::new(self.nodes, chain_id);
        config.ns = ns;
        set(&mut config.ordering, changes.ordering);
        set(&mut config.max_hold, changes.max_hold);
        set(&mut config.ttl, changes.ttl);
        set(&mut config.on_outage, changes.on_outage);
        set(&mut config.per_sender, changes.per_sender.map(|most| most as u32));
        set(&mut config.max_in_flight, changes.max_in_flight.map(|most| most as usize));
        config.gap = changes.gap;
        set(&mut config.repeats, changes.repeats);
        config.answer_early = changes.answer_early;
        set(&mut config.pending_set, changes.pending_set);
        set(&mut config.nonces, changes.nonces);
        set(&mut config.nonces_for, changes.nonces_for);
        set(&mut config.answer_within, changes.answer_within);
        set(&mut config.check_fee, changes.check_fee);
        set(&mut config.check_balance, changes.check_balance);
        set(&mut config.rules.gas, changes.gas);
        if changes.unprotected {
            config.rules.unprotected = Unprotected::Take;
        }
        if changes.pass_unknown {
            config.rules.unknown_types = UnknownTypes::Pass;
        }
        set(&mut config.denied, changes.denied);
        set(&mut config.max_connections, changes.max_connections.map(|most| most as usize));
        set(&mut config.max_bodies, changes.max_bodies.map(|most| (most as usize) << 20));
        set(&mut config.client_within, changes.client_within);
        (config, self.listening)
    }
}

fn set<T>(to: &mut T, said: Option<T>) {
    if let Some(said) = said {
        *to = said;
    }
}

fn read_listening(given: &Given<'_>) -> Result<Listening, Failure> {
    let listening = Listening::read(given, 9545)?.read_more(given)?;
    listening.check_tokens(Access::from_lines, TOKEN_LINES)?;
    listening.check(given)?;
    Ok(listening)
}

fn read_nodes(given: &Given<'_>) -> Result<Vec<Address>, Failure> {
    let said = match given.is_on_command_line("upstream") {
        true => {
            given.all("upstream").iter().map(|url| url.to_string_lossy().into_owned()).collect()
        }
        false => given.text("upstream")?.map(|found| vec![found.value]).unwrap_or_default(),
    };
    let exit = if given.is_on_command_line("upstream") { USAGE } else { CONFIGURATION };
    let help = "for example, `--upstream http://127.0.0.1:8545`";
    let urls = said.iter().flat_map(|list| words(list));
    let nodes: Result<Vec<Address>, String> = urls.map(str::parse).collect();
    let nodes = nodes.map_err(|why| {
        let what = format!("invalid {}", given.said("upstream"));
        Failure::new(exit, what, why, help)
    })?;
    if nodes.is_empty() {
        let why = "the relay forwards requests to a node";
        return Err(Failure::new(USAGE, "no node given", why, help));
    }
    Ok(nodes)
}

fn read_gap(given: &Given<'_>) -> Result<Gap, Failure> {
    let window = given.some_time("gap-window")?.unwrap_or(Duration::from_secs(5));
    let choices = [("hold", Gap::Hold(window)), ("refuse", Gap::Refuse), ("forward", Gap::Forward)];
    Ok(given.choice("gap", &choices)?.map_or(Gap::Hold(window), |found| found.value))
}
