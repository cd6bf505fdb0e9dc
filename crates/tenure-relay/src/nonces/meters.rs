//! The metrics of all accounts of a chain, as this process sees them, and the reports about gaps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use metrics::{Unit, counter, describe_counter, describe_gauge, gauge};
use tracing::warn;

use super::Standing;

/// Describes the metrics to the recorder. Call it once, after installing the recorder.
pub fn describe() {
    describe_gauge!(
        "tenure_nonce_in_flight",
        "Nonces that someone has and the chain has not counted."
    );
    describe_gauge!(
        "tenure_nonce_oldest_in_flight_seconds",
        Unit::Seconds,
        "How long the oldest of them has been had, at this process's last look."
    );
    describe_counter!(
        "tenure_nonce_gaps_total",
        "Nonces that nobody had, below one that someone had."
    );
    describe_counter!("tenure_nonce_resyncs_total", "How often the chain was asked on purpose.");
    describe_counter!(
        "tenure_nonce_wrong_nonce_total",
        "Transactions refused for a nonce that another has."
    );
}

/// What was last seen of each account, by chain: a gauge only has the label of the chain, because there is no
/// limit to the number of accounts.
static SEEN: Mutex<BTreeMap<u64, BTreeMap<String, Last>>> = Mutex::new(BTreeMap::new());

#[derive(Clone, Copy)]
struct Last {
    in_flight: usize,
    oldest: Duration,
}

/// The metrics of one account.
#[derive(Debug)]
pub(super) struct Meter {
    chain: u64,
    account: String,
    /// The gaps that were reported, so that each is reported once.
    gaps: Mutex<BTreeSet<u64>>,
}

impl Meter {
    pub(super) fn new(chain: u64, account: String) -> Meter {
        Meter { chain, account, gaps: Mutex::default() }
    }

    pub(super) fn looked(&self, standing: &Standing) {
        let oldest = standing.in_flight.iter().map(|seen| seen.age).max().unwrap_or_default();
        self.tell(Some(Last { in_flight: standing.in_flight.len(), oldest }));
        let gaps: BTreeSet<u64> = standing.gaps().into_iter().collect();
        let mut known = self.gaps.lock().unwrap_or_else(PoisonError::into_inner);
        for nonce in gaps.difference(&known) {
            counter!("tenure_nonce_gaps_total", "chain" => self.chain.to_string()).increment(1);
            warn!(
                target: "tenure",
                event = "nonce.gap", chain = self.chain, account = self.account, nonce,
                count = standing.count, in_flight = standing.in_flight.len(),
                "nobody has this nonce, and higher ones are on their way; the next reservation gets it"
            );
        }
        *known = gaps;
    }

    pub(super) fn resynced(&self) {
        counter!("tenure_nonce_resyncs_total", "chain" => self.chain.to_string()).increment(1);
    }

    pub(super) fn wrong_nonce(&self) {
        counter!("tenure_nonce_wrong_nonce_total", "chain" => self.chain.to_string()).increment(1);
    }

    /// Sets the sum, and the oldest, of all accounts of the chain.
    fn tell(&self, last: Option<Last>) {
        let mut seen = SEEN.lock().unwrap_or_else(PoisonError::into_inner);
        let accounts = seen.entry(self.chain).or_default();
        match last {
            Some(last) => drop(accounts.insert(self.account.clone(), last)),
            None => drop(accounts.remove(&self.account)),
        }
        let in_flight: usize = accounts.values().map(|last| last.in_flight).sum();
        let oldest = accounts.values().map(|last| last.oldest).max().unwrap_or_default();
        let chain = self.chain.to_string();
        gauge!("tenure_nonce_in_flight", "chain" => chain.clone()).set(in_flight as f64);
        gauge!("tenure_nonce_oldest_in_flight_seconds", "chain" => chain).set(oldest);
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        self.tell(None);
    }
}
