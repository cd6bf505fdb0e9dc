//! The relay's own metrics. The library has those of the lanes, with the group `lane`: waiting and holding times, queue
//! lengths, holds that reached their limit, work without the engine.
//!
//! The number of label values is bounded: the operator names chains and nodes, clients are the names of tokens, and only
//! known methods are counted by name.

mod methods;

use std::time::Duration;

use metrics::{Label, counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::{Protection, Tenure};

use crate::active::Active;

const TRANSACTIONS: &str = "tenure_relay_transactions_total";
const UNPROTECTED: &str = "tenure_relay_unprotected_total";
const WRONG_NONCE: &str = "tenure_nonce_wrong_nonce_total";
const GAPS: &str = "tenure_nonce_gaps_total";
const CALLS: &str = "tenure_relay_calls_total";
const FAILOVERS: &str = "tenure_relay_node_failovers_total";
const FAILURES: &str = "tenure_relay_node_failures_total";
const UNAUTHORIZED: &str = "tenure_relay_unauthorized_total";
const LIMITED: &str = "tenure_relay_limited_total";

/// Name, what it counts.
const COUNTERS: [(&str, &str); 9] = [
    (TRANSACTIONS, "Transactions by what became of them."),
    (UNPROTECTED, "Turns that the engine did not give, by what protected them."),
    (WRONG_NONCE, "Transactions refused for a nonce that was used or not next."),
    (GAPS, "Transactions that came before the ones before them."),
    (CALLS, "Calls that came, by method."),
    (
        FAILOVERS,
        "Requests that went to this node because one before it in the list did not answer.",
    ),
    (FAILURES, "Requests that this node did not answer, or not so that it could be used."),
    (UNAUTHORIZED, "Requests without a token that is known."),
    (LIMITED, "Requests and transactions refused for a limit of their client."),
];
const IN_FLIGHT: &str = "tenure_relay_in_flight";
const OLDEST: &str = "tenure_relay_oldest_in_flight_seconds";
const NODE_UP: &str = "tenure_relay_node_up";
const SECONDS: &str = "tenure_relay_transaction_seconds";
const NODE_SECONDS: &str = "tenure_relay_node_seconds";

/// The outcomes of a transaction.
const OUTCOMES: [&str; 6] = ["accepted", "repeated", "collided", "rejected", "refused", "unknown"];

/// Counters of the library that alerts use: label, values.
const OF_LANES: [(&str, &str, &[&str]); 4] = [
    ("tenure_acquisitions_total", "outcome", &["granted", "error"]),
    (
        "tenure_lost_total",
        "reason",
        &["expired", "broken", "max_hold", "conflict", "forgotten", "clock_step", "elsewhere"],
    ),
    ("tenure_expired_before_release_total", "", &[""]),
    ("tenure_max_hold_releases_total", "", &[""]),
];

/// Installs the recorder for the metrics of the library and of the relay.
///
/// # Errors
/// If the process has a recorder already.
pub fn install() -> Result<PrometheusHandle, String> {
    let shares = Matcher::Full("tenure_renewal_margin_ratio".into());
    let told = |error: BuildError| error.to_string();
    let recorder = PrometheusBuilder::new()
        .set_buckets(tenure::metrics::BUCKETS)
        .and_then(|builder| builder.set_buckets_for_metric(shares, tenure::metrics::SHARES))
        .map_err(told)?;
    let handle = recorder.install_recorder().map_err(told)?;
    tenure::metrics::describe();
    crate::nonces::describe();
    for (name, help) in COUNTERS {
        metrics::describe_counter!(name, help);
    }
    metrics::describe_gauge!(IN_FLIGHT, "Transactions that have arrived and have no outcome yet.");
    metrics::describe_gauge!(OLDEST, "For how long the oldest of them has been on its way.");
    metrics::describe_gauge!(NODE_UP, "Whether this node answered when it was last asked.");
    metrics::describe_histogram!(SECONDS, "From arrival to outcome, by what it was.");
    metrics::describe_histogram!(NODE_SECONDS, "From a request to the head of this node's answer.");
    Ok(handle)
}

/// Creates every counter with 0: the rate of a counter that does not exist yet is undefined, and an alert on it would miss
/// the first event.
pub(crate) fn start<'a>(chain_id: u64, tenure: &Tenure, nodes: impl Iterator<Item = &'a str>) {
    let chain = chain_id.to_string();
    for outcome in OUTCOMES {
        counter!(TRANSACTIONS, "chain" => chain.clone(), "outcome" => outcome).increment(0);
    }
    for by in ["local", "none"] {
        counter!(UNPROTECTED, "chain" => chain.clone(), "protection" => by).increment(0);
    }
    for end in ["closed", "refused"] {
        counter!(GAPS, "chain" => chain.clone(), "end" => end).increment(0);
    }
    counter!(WRONG_NONCE, "chain" => chain.clone()).increment(0);
    for method in methods::STARTED {
        counter!(CALLS, "chain" => chain.clone(), "method" => method).increment(0);
    }
    counter!(UNAUTHORIZED).increment(0);
    for node in nodes {
        counter!(FAILOVERS, "node" => node.to_owned()).increment(0);
        counter!(FAILURES, "node" => node.to_owned()).increment(0);
    }
    for (name, label, values) in OF_LANES {
        for value in values {
            let mut labels = vec![
                Label::new("engine", tenure.profile().label.clone()),
                Label::from_static_parts("kind", "lock"),
                Label::from_static_parts("group", "lane"),
            ];
            if !label.is_empty() {
                labels.push(Label::from_static_parts(label, value));
            }
            counter!(name, labels).increment(0);
        }
    }
}

/// Sets the gauges that are measured on request.
pub(crate) fn look(chain_id: u64, active: &Active) {
    gauge!(IN_FLIGHT, "chain" => chain_id.to_string()).set(active.count() as f64);
    gauge!(OLDEST, "chain" => chain_id.to_string()).set(active.oldest().as_secs_f64());
}

pub(crate) fn ended(chain_id: u64, outcome: &'static str, took: Duration) {
    let chain = chain_id.to_string();
    counter!(TRANSACTIONS, "chain" => chain.clone(), "outcome" => outcome).increment(1);
    histogram!(SECONDS, "chain" => chain, "outcome" => outcome).record(took);
}

pub(crate) fn unprotected(chain_id: u64, by: Protection) {
    let by = if by == Protection::Local { "local" } else { "none" };
    counter!(UNPROTECTED, "chain" => chain_id.to_string(), "protection" => by).increment(1);
}

pub(crate) fn wrong_nonce(chain_id: u64) {
    counter!(WRONG_NONCE, "chain" => chain_id.to_string()).increment(1);
}

pub(crate) fn gap(chain_id: u64, what: &'static str) {
    counter!(GAPS, "chain" => chain_id.to_string(), "end" => what).increment(1);
}

/// Counts a call.
pub(crate) fn called(chain_id: u64, method: &str) {
    let method = methods::known(method);
    counter!(CALLS, "chain" => chain_id.to_string(), "method" => method).increment(1);
}

/// Counts a request without a known token.
pub(crate) fn unauthorized() {
    counter!(UNAUTHORIZED).increment(1);
}

/// Counts a client's request over one of its limits.
pub(crate) fn limited(client: &str, limit: &'static str) {
    counter!(LIMITED, "client" => client.to_owned(), "limit" => limit).increment(1);
}

/// Records how long a node took to answer.
pub(crate) fn node_answered(node: &str, took: Duration) {
    histogram!(NODE_SECONDS, "node" => node.to_owned()).record(took);
}

pub(crate) fn node_is_up(node: &str, is_up: bool) {
    gauge!(NODE_UP, "node" => node.to_owned()).set(if is_up { 1.0 } else { 0.0 });
}

pub(crate) fn node_failed(node: &str) {
    counter!(FAILURES, "node" => node.to_owned()).increment(1);
}

/// Counts a request that went to this node because a preferred one did not answer.
pub(crate) fn failover(node: &str) {
    counter!(FAILOVERS, "node" => node.to_owned()).increment(1);
}
