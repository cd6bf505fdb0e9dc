//! All metrics.

/// The kind of a metric.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetricKind {
    /// Only rises.
    Counter,
    /// Rises and falls.
    Gauge,
    /// Counts values by their size.
    Histogram,
}

/// A metric of this library.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Metric {
    /// Its name, as the recorder sees it.
    pub name: &'static str,
    /// Its kind.
    pub kind: MetricKind,
    /// Whether it is a time, in seconds.
    pub in_seconds: bool,
    /// Its labels.
    pub labels: &'static [&'static str],
    /// What it means.
    pub help: &'static str,
}

const fn counter(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Counter, in_seconds: false, labels, help }
}

const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Metric {
    Metric { name, kind: MetricKind::Gauge, in_seconds: false, labels, help }
}

const fn histogram(
    name: &'static str,
    labels: &'static [&'static str],
    help: &'static str,
) -> Metric {
    Metric { name, kind: MetricKind::Histogram, in_seconds: false, labels, help }
}

impl Metric {
    const fn in_seconds(self) -> Metric {
        Metric { in_seconds: true, ..self }
    }
}

/// The labels of metrics about a claim: where, what for and in which group.
const CLAIM: &[&str] = &["engine", "kind", "group"];

/// All metrics. Each appears when it is recorded for the first time.
pub const METRICS: &[Metric] = &[
    counter(
        "tenure_acquisitions_total",
        &["engine", "kind", "group", "outcome"],
        "Requests that ended: granted, busy, timeout (the wait was over), cancelled or error; \
         of a once also settled and unsettled.",
    ),
    histogram(
        "tenure_wait_seconds",
        &["engine", "kind", "group", "outcome"],
        "How long requests took.",
    )
    .in_seconds(),
    histogram(
        "tenure_hold_seconds",
        &["engine", "kind", "group", "end"],
        "How long a hold lasted, by its end: released, expired, lost or broken.",
    )
    .in_seconds(),
    gauge("tenure_held", CLAIM, "Holds of this process now."),
    gauge("tenure_waiters", CLAIM, "Claims of this process that wait in line now."),
    gauge(
        "tenure_oldest_wait_seconds",
        &["engine", "group"],
        "How long the oldest waiting claim has waited.",
    )
    .in_seconds(),
    gauge(
        "tenure_oldest_hold_seconds",
        &["engine", "group"],
        "How long the oldest hold has lasted.",
    )
    .in_seconds(),
    counter(
        "tenure_renewals_total",
        &["engine", "kind", "group", "outcome"],
        "Renewals of holds: renewed, unanswered or gone (there was nothing left to renew).",
    ),
    histogram(
        "tenure_renewal_margin_ratio",
        CLAIM,
        "The share of the ttl that was left when a renewal was answered. It falls before a loss.",
    ),
    counter(
        "tenure_lost_total",
        &["engine", "kind", "group", "reason"],
        "Holds that ended other than by a release: expired, broken, max_hold, conflict, forgotten, \
         elsewhere or closed.",
    ),
    counter(
        "tenure_expired_before_release_total",
        CLAIM,
        "Releases that came too late: the work was not exclusive to the end.",
    ),
    counter(
        "tenure_max_hold_releases_total",
        CLAIM,
        "Holds that were ended because they reached max_hold.",
    ),
    counter(
        "tenure_zombie_waiters_reaped_total",
        &["group"],
        "Waiters that were passed over because their process was gone or could not be reached.",
    ),
    counter("tenure_breaks_total", &["engine", "group"], "Holds that this process broke by force."),
    counter(
        "tenure_reports_dropped_total",
        &[],
        "Events that were dropped because a listener was too slow.",
    ),
    counter(
        "tenure_stale_writes_rejected_total",
        &["group"],
        "Writes that a fence refused, because a later holder had written before.",
    ),
    counter(
        "tenure_fail_open_total",
        &["group"],
        "Holds that no engine protects, given out because the outage policy says so.",
    ),
    gauge("tenure_engine_up", &["engine"], "1 while the engine answers, 0 while it does not."),
    gauge("tenure_leader", &["election"], "1 while this process leads, otherwise 0."),
    gauge("tenure_leader_term", &["election"], "The number of the latest term of this process."),
    counter(
        "tenure_leader_transitions_total",
        &["election"],
        "How often this process became the leader; over all processes, how often the leader changed.",
    ),
    counter(
        "tenure_once_total",
        &["group", "outcome"],
        "Work that is done once: ran, undone (it did not happen), replayed, in_flight, unsettled or \
         mismatch (the same name with other content).",
    ),
];
