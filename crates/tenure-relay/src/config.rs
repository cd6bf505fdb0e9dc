//! The settings of a relay: its nodes, how it keeps order, and what it allows.

use std::time::Duration;

use tenure::OnOutage;

use crate::envelope::Limits;
use crate::transaction::Rules;
use crate::upstream::Address;

/// The settings of one relay. Instances that share an engine should share them, too.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The nodes, in order of preference. The next one is asked when one does not answer.
    pub nodes: Vec<Address>,
    /// Whether to keep each sender's transactions in order. Without it they are only checked and forwarded.
    pub ordering: bool,
    /// A prefix for all names in the engine.
    pub ns: Option<String>,
    /// The longest time that one transaction may hold its lane.
    pub max_hold: Duration,
    /// How long a lane stays held after the relay that held it died.
    pub ttl: Duration,
    /// What to do while the engine is down.
    pub on_outage: OnOutage,
    /// The most waiting transactions of one sender.
    pub per_sender: u32,
    /// The most transactions that this relay processes at a time.
    pub max_in_flight: usize,
    /// What to do with a nonce that is not the sender's next.
    pub gap: Gap,
    /// Who is told that a transaction was sent when it is sent again.
    pub repeats: Repeats,
    /// Whether to answer with the hash as soon as the checks have passed.
    pub answer_early: bool,
    /// Whether pending transactions are visible to operators, and their nonces count as used.
    pub pending_set: bool,
    /// How long to look for a transaction of unknown outcome after its lane was released.
    pub unknown_for: Duration,
    /// Whether nonces are reserved for signers that ask.
    pub nonces: bool,
    /// How long a nonce stays reserved if the signer does not say.
    pub nonces_for: Duration,
    /// How long a node may take to answer.
    pub answer_within: Duration,
    /// Whether to refuse a transaction whose fee is below the base fee of the latest block.
    pub check_fee: bool,
    /// Whether to refuse a transaction that the sender cannot pay for.
    pub check_balance: bool,
    /// Methods that are refused; a trailing `*` matches any ending.
    pub denied: Vec<String>,
    /// Which transactions are allowed.
    pub rules: Rules,
    /// Limits on one request.
    pub limits: Limits,
    /// The most bytes of a node's answer.
    pub max_answer: usize,
    /// The most connections at the same time.
    pub max_connections: usize,
    /// The most bytes of all request bodies together, not counting the first 64 KiB of each.
    pub max_bodies: usize,
    /// How long a client may take to send a body, and to read an answer.
    pub client_within: Duration,
}

/// What happens to a transaction whose nonce is above the sender's next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// Forward it: the node decides.
    Forward,
    /// Refuse it.
    Refuse,
    /// Hold it, without the lane, until its nonce is next. Refuse it if the sender's next nonce has not risen for this long.
    Hold(Duration),
}

/// Who gets the hash, as if it had just been sent, for a transaction that the node already has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeats {
    /// The client that sent it, recognised by its `Idempotency-Key`. Everyone else gets the node's error.
    SameClient,
    /// Everyone: two services that make the same payment are both told that it was sent.
    Anyone,
}

/// Longer than anyone waits, and within what the clock can represent.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// Methods for a node's operator, and methods that would bypass the lanes.
const DENIED: [&str; 7] = [
    "admin_*",
    "debug_*",
    "engine_*",
    "miner_*",
    "personal_*",
    "eth_sendRawTransactionConditional",
    "eth_sendRawTransactionSync",
];

impl Config {
    /// The default settings for these nodes and this chain.
    #[must_use]
    pub fn new(nodes: Vec<Address>, chain_id: u64) -> Config {
        Config {
            nodes,
            ordering: true,
            ns: None,
            max_hold: Duration::from_secs(30),
            ttl: Duration::from_secs(10),
            on_outage: OnOutage::Closed,
            per_sender: 1000,
            max_in_flight: 10_000,
            gap: Gap::Hold(Duration::from_secs(5)),
            repeats: Repeats::SameClient,
            answer_early: false,
            pending_set: true,
            unknown_for: Duration::from_secs(60),
            nonces: false,
            nonces_for: Duration::from_secs(5),
            answer_within: Duration::from_secs(10),
            check_fee: true,
            check_balance: false,
            denied: DENIED.map(String::from).to_vec(),
            rules: Rules::new(chain_id),
            limits: Limits::default(),
            max_answer: 25 << 20,
            max_connections: 1024,
            max_bodies: 64 << 20,
            client_within: Duration::from_secs(30),
        }
    }

    pub(crate) fn denies(&self, method: &str) -> bool {
        // Some nodes ignore the case.
        let method = method.to_ascii_lowercase();
        self.denied.iter().map(|denied| denied.to_ascii_lowercase()).any(|denied| {
            match denied.strip_suffix('*') {
                Some(begins) => method.starts_with(begins),
                None => method == denied,
            }
        })
    }

    /// Checks that the settings fit together.
    ///
    /// # Errors
    /// Which settings do not fit, and why.
    pub fn check(&self) -> Result<(), String> {
        let Config { max_hold, ttl, .. } = self;
        if max_hold < ttl {
            return Err(format!(
                "the max hold ({max_hold:?}) is shorter than the ttl ({ttl:?}), so no lane could be taken"
            ));
        }
        if self.nonces && self.nonces_for > self.unknown_for {
            return Err(format!(
                "a nonce would stay reserved for {:?}, longer than what may have been sent ({:?})",
                self.nonces_for, self.unknown_for
            ));
        }
        if self.nodes.is_empty() {
            return Err("no node is named".to_owned());
        }
        Ok(())
    }

    /// The same settings, with times that the clock can represent.
    pub(crate) fn bounded(mut self) -> Config {
        let times = [
            &mut self.max_hold,
            &mut self.ttl,
            &mut self.unknown_for,
            &mut self.answer_within,
            &mut self.client_within,
        ];
        for time in times {
            *time = (*time).min(LONGEST);
        }
        if let Gap::Hold(window) = &mut self.gap {
            *window = (*window).min(LONGEST);
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_method_is_denied_by_name_or_by_how_it_begins() {
        let mut config = Config::new(Vec::new(), 1);
        assert!(config.denies("admin_peers") && config.denies("Personal_sign"));
        assert!(!config.denies("eth_call") && !config.denies("administer"));
        config.denied = vec!["eth_call".into()];
        assert!(config.denies("eth_call") && !config.denies("eth_callMany"));
    }

    #[test]
    fn settings_that_do_not_fit_are_named() {
        let mut config = Config::new(vec!["http://127.0.0.1:1".parse().unwrap()], 1);
        assert_eq!(config.check(), Ok(()));
        config.max_hold = config.ttl / 2;
        let why = config.check().unwrap_err();
        assert!(why.contains("5s") && why.contains("10s"), "{why}");
    }
}
