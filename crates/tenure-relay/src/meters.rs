//! The relay's own numbers. What happens in the lanes themselves is told by the library, with the group
//! `lane`: waiting and holding times, who waits, what ran into max hold, work without the engine.

use std::time::Duration;

use metrics::{counter, gauge, histogram};
use metrics_exporter_prometheus::{BuildError, Matcher, PrometheusBuilder, PrometheusHandle};
use tenure::Protection;

use crate::passing::Passing;

/// Name, what it counts.
const COUNTERS: [(&str, &str); 4] = [
    ("tenure_relay_transactions_total", "Transactions by what became of them."),
    (
        "tenure_relay_unprotected_total",
        "Turns that the engine did not give, by what protected them.",
    ),
    (
        "tenure_nonce_wrong_nonce_total",
        "Transactions refused for a nonce that was used or not next.",
    ),
    ("tenure_nonce_gaps_total", "Transactions that came before the ones before them."),
];
const IN_FLIGHT: &str = "tenure_relay_in_flight";
const OLDEST: &str = "tenure_relay_oldest_in_flight_seconds";
const SECONDS: &str = "tenure_relay_transaction_seconds";

/// Makes the numbers of this process readable: the library's and the relay's.
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
    metrics::describe_histogram!(SECONDS, "From arrival to outcome, by what it was.");
    Ok(handle)
}

/// What is measured when someone looks.
pub(crate) fn look(chain_id: u64, passing: &Passing) {
    gauge!(IN_FLIGHT, "chain" => chain_id.to_string()).set(passing.count() as f64);
    gauge!(OLDEST, "chain" => chain_id.to_string()).set(passing.oldest().as_secs_f64());
}

pub(crate) fn ended(chain_id: u64, outcome: &'static str, took: Duration) {
    let chain = chain_id.to_string();
    counter!(COUNTERS[0].0, "chain" => chain.clone(), "outcome" => outcome).increment(1);
    histogram!(SECONDS, "chain" => chain, "outcome" => outcome).record(took);
}

pub(crate) fn unprotected(chain_id: u64, by: Protection) {
    let by = if by == Protection::Local { "local" } else { "none" };
    counter!(COUNTERS[1].0, "chain" => chain_id.to_string(), "protection" => by).increment(1);
}

pub(crate) fn wrong_nonce(chain_id: u64) {
    counter!(COUNTERS[2].0, "chain" => chain_id.to_string()).increment(1);
}

pub(crate) fn gap(chain_id: u64, what: &'static str) {
    counter!(COUNTERS[3].0, "chain" => chain_id.to_string(), "end" => what).increment(1);
}
