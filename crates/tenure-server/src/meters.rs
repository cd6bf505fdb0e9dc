//! The server's metrics.

use std::time::Duration;

use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};

use crate::wire::Kind;

const REQUESTS: &str = "http_server_request_duration_seconds";
const BUCKETS: [f64; 11] = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.25, 1.0, 5.0, 10.0, 30.0];

/// Installs a recorder for the metrics of this process.
///
/// # Errors
/// If there is one already.
pub fn install() -> Result<PrometheusHandle, String> {
    let builder = PrometheusBuilder::new()
        .set_buckets_for_metric(Matcher::Full(REQUESTS.to_owned()), &BUCKETS)
        .map_err(|error| error.to_string())?;
    let handle = builder.install_recorder().map_err(|error| error.to_string())?;
    metrics::describe_histogram!(REQUESTS, "How long requests took, by route and status");
    metrics::describe_counter!(
        "tenure_server_acquisitions_total",
        "Requests for holds, by kind and outcome"
    );
    metrics::describe_counter!("tenure_server_renewals_total", "Renewals, by outcome");
    metrics::describe_counter!(
        "tenure_server_unauthorized_total",
        "Requests without a known token"
    );
    metrics::describe_gauge!("tenure_server_waiting", "Claims that are waited for at this server");
    metrics::counter!("tenure_server_unauthorized_total").absolute(0);
    for outcome in ["renewed", "refused"] {
        metrics::counter!("tenure_server_renewals_total", "outcome" => outcome).absolute(0);
    }
    for outcome in ["granted", "busy"] {
        metrics::counter!("tenure_server_acquisitions_total", "kind" => "lock", "outcome" => outcome).absolute(0);
    }
    Ok(handle)
}

pub(crate) fn acquired(kind: Kind, outcome: &'static str) {
    metrics::counter!("tenure_server_acquisitions_total", "kind" => kind.as_str(), "outcome" => outcome).increment(1);
}

pub(crate) fn renewed(is_held: bool) {
    let outcome = if is_held { "renewed" } else { "refused" };
    metrics::counter!("tenure_server_renewals_total", "outcome" => outcome).increment(1);
}

pub(crate) fn unauthorized() {
    metrics::counter!("tenure_server_unauthorized_total").increment(1);
}

pub(crate) fn answered(route: &'static str, status: u16, took: Duration) {
    let status = match status / 100 {
        1 | 2 => "2xx",
        3 => "3xx",
        4 => "4xx",
        _ => "5xx",
    };
    metrics::histogram!(REQUESTS, "http_route" => route, "status" => status)
        .record(took.as_secs_f64());
}

pub(crate) fn waiting(count: usize) {
    metrics::gauge!("tenure_server_waiting").set(count as f64);
}
