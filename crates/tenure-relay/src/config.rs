//! What a relay is told: where its nodes are, how it keeps order, and what it lets through.

use std::time::Duration;

use tenure::OnOutage;

use crate::envelope::Limits;
use crate::transaction::Rules;
use crate::upstream::Address;

/// The settings of one relay. Instances that share an engine should share them, too.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Config {
    /// The nodes, best first. The next is asked when one does not answer.
    pub nodes: Vec<Address>,
    /// Whether a sender's transactions stand in line. Without it they are checked and passed on.
    pub ordering: bool,
    /// What a name in the engine begins with, if anything.
    pub ns: Option<String>,
    /// The longest that one transaction may keep its lane, from its turn on.
    pub max_hold: Duration,
    /// How long a lane stays taken when the relay that holds it has died.
    pub ttl: Duration,
    /// What to do while the engine is down.
    pub on_outage: OnOutage,
    /// The most transactions of one sender that may wait.
    pub per_sender: u32,
    /// The most transactions on their way through this relay.
    pub max_in_flight: usize,
    /// What to do with a nonce that is not the sender's next.
    pub gap: Gap,
    /// Who is told that a transaction was sent when it comes again.
    pub repeats: Repeats,
    /// Whether to answer with the hash as soon as the checks are passed.
    pub answer_early: bool,
    /// Whether transactions on their way are shown to operators, and count as used nonces.
    pub pending_set: bool,
    /// How long to follow a transaction whose outcome is unknown when its lane has moved on.
    pub unknown_for: Duration,
    /// Whether nonces are reserved for signers that ask.
    pub nonces: bool,
    /// How long a nonce stays reserved for a signer that does not say how long.
    pub nonces_for: Duration,
    /// How long a node may take for an answer.
    pub answer_within: Duration,
    /// Refuse what cannot be included in a block at the base fee of the latest one.
    pub check_fee: bool,
    /// Refuse what the sender cannot pay for.
    pub check_balance: bool,
    /// Methods that are refused; one that ends in `*` means all that begin so.
    pub denied: Vec<String>,
    /// Which transactions are let through.
    pub rules: Rules,
    /// How much a request may ask for.
    pub limits: Limits,
    /// The most bytes of a node's answer.
    pub max_answer: usize,
    /// The most connections at a time.
    pub max_connections: usize,
    /// The most bytes of all request bodies together, not counting the first 64 KiB of each.
    pub max_bodies: usize,
    /// How long a client may take to send a body, and to take an answer.
    pub client_within: Duration,
}

/// What happens to a transaction whose nonce is above the sender's next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gap {
    /// It is passed on: the node knows what to do with it.
    Forward,
    /// It is refused.
    Refuse,
    /// It steps out of the lane until its nonce is next, for so long at most, and is refused then.
    Hold(Duration),
}

/// Who is told the hash of a transaction that the node has already, as if it had just been sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Repeats {
    /// The client that sent it, known again by its `Idempotency-Key`. Everyone else hears the node's words.
    SameClient,
    /// Everyone: two services that make the same payment both hear that it was sent.
    Anyone,
}

/// Longer than anybody waits.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

/// What is for a node's operator alone, and what would go past the lanes.
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
    /// The defaults, in front of these nodes of this chain.
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
        // Some nodes do not mind the case.
        let method = method.to_ascii_lowercase();
        self.denied.iter().map(|denied| denied.to_ascii_lowercase()).any(|denied| {
            match denied.strip_suffix('*') {
                Some(begins) => method.starts_with(begins),
                None => method == denied,
            }
        })
    }

    /// Whether the settings fit together.
    ///
    /// # Errors
    /// What does not, and why.
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
            return Err("a relay stands in front of a node, and none is named".to_owned());
        }
        Ok(())
    }

    /// The same with times that the clock can count to.
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
