//! Numbers through the [`metrics`](::metrics) facade: which there are, and how they are told.
//!
//! The facade sends them to whatever recorder the program has installed, or nowhere. Labels are
//! bounded: names are without number, so numbers go by group, the part of a name before its first
//! `:`, and after 200 groups the rest is `_other`. [`METRICS`] lists all that there are;
//! [`describe`] tells the recorder what they mean; [`BUCKETS`] suits the times, [`SHARES`] the shares.

use std::time::Duration;

use ::metrics::{Gauge, Label, SharedString, Unit, counter, gauge, histogram};

use super::groups::{group, kind};
use super::{Observer, how};
use crate::claim::{Claim, Ended};
use crate::name::Name;
use crate::stake::Heard;

mod table;

pub use self::table::{METRICS, Metric, MetricKind};

/// Upper bounds for the histograms of times, in seconds.
pub const BUCKETS: [f64; 17] = [
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    1800.0, 3600.0,
];

/// Upper bounds for `tenure_renewal_margin_ratio`. A renewal comes at a third of the ttl, so that
/// about 0.66 is left; below a half it is late.
pub const SHARES: [f64; 9] = [0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0];

/// Tells the recorder what each metric means, and its unit. Call it once, when the recorder is
/// installed.
pub fn describe() {
    for Metric { name, kind, unit, help, .. } in METRICS {
        let unit = unit.unwrap_or(Unit::Count);
        match kind {
            MetricKind::Counter => ::metrics::describe_counter!(*name, unit, *help),
            MetricKind::Gauge => ::metrics::describe_gauge!(*name, unit, *help),
            MetricKind::Histogram => ::metrics::describe_histogram!(*name, unit, *help),
        }
    }
}

/// One more in a gauge, for as long as this lives. It is taken off the very gauge that it was put on,
/// also when another recorder was installed meanwhile.
#[derive(Default)]
pub(super) struct Counted(Option<Gauge>);

impl Counted {
    fn new(gauge: Gauge) -> Counted {
        gauge.increment(1.0);
        Counted(Some(gauge))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        if let Some(gauge) = &self.0 {
            gauge.decrement(1.0);
        }
    }
}

fn engine(observer: &Observer) -> SharedString {
    SharedString::from_shared(observer.engine.clone())
}

/// The labels of whatever is about a claim.
fn of(observer: &Observer, claim: &Claim) -> Vec<Label> {
    vec![
        Label::new("engine", engine(observer)),
        Label::new("kind", kind(claim)),
        Label::new("group", group(&claim.name)),
    ]
}

fn of_with(
    observer: &Observer,
    claim: &Claim,
    label: &'static str,
    value: &'static str,
) -> Vec<Label> {
    let mut labels = of(observer, claim);
    labels.push(Label::new(label, value));
    labels
}

/// An ask has come to its end, after so long.
pub(super) fn acquisition(
    observer: &Observer,
    claim: &Claim,
    outcome: &'static str,
    waited: Option<Duration>,
) {
    let labels = of_with(observer, claim, "outcome", outcome);
    counter!("tenure_acquisitions_total", labels.clone()).increment(1);
    if let Some(waited) = waited {
        histogram!("tenure_wait_seconds", labels).record(waited);
    }
}

/// A claim stands in line from now on.
pub(super) fn waiting_now(observer: &Observer, claim: &Claim) -> Counted {
    Counted::new(gauge!("tenure_waiters", of(observer, claim)))
}

/// A claim holds from now on.
pub(super) fn held_now(observer: &Observer, claim: &Claim) -> Counted {
    Counted::new(gauge!("tenure_held", of(observer, claim)))
}

/// A hold has ended.
pub(super) fn held(observer: &Observer, claim: &Claim, end: &'static str, held: Duration) {
    histogram!("tenure_hold_seconds", of_with(observer, claim, "end", end)).record(held);
}

pub(super) fn renewal(observer: &Observer, claim: &Claim, heard: Heard) {
    let (outcome, margin) = match heard {
        Heard::Renewed { left, first_life } => {
            // A first life is short by intent, and what is left of it no sign of anything.
            ("renewed", (!first_life).then(|| left.div_duration_f64(claim.ttl).min(1.0)))
        }
        Heard::Unanswered => ("unanswered", None),
        Heard::Gone => ("gone", None),
    };
    if let Some(margin) = margin {
        histogram!("tenure_renewal_margin_ratio", of(observer, claim)).record(margin);
    }
    let labels = of_with(observer, claim, "outcome", outcome);
    counter!("tenure_renewals_total", labels).increment(1);
}

pub(super) fn lost(observer: &Observer, claim: &Claim, ended: &Ended) {
    let reason = match ended {
        Ended::Expired | Ended::Broken(_) => how(ended),
        Ended::MaxHold => "max_hold",
        Ended::Conflict { .. } => "conflict",
        Ended::Forgotten => "forgotten",
        Ended::Elsewhere => "elsewhere",
        Ended::Closed => "closed",
    };
    counter!("tenure_lost_total", of_with(observer, claim, "reason", reason)).increment(1);
    if *ended == Ended::MaxHold {
        counter!("tenure_max_hold_releases_total", of(observer, claim)).increment(1);
    }
}

pub(super) fn expired_before_release(observer: &Observer, claim: &Claim) {
    counter!("tenure_expired_before_release_total", of(observer, claim)).increment(1);
}

pub(super) fn broken(observer: &Observer, name: &Name) {
    let labels = [("engine", engine(observer)), ("group", group(name).into())];
    counter!("tenure_breaks_total", &labels).increment(1);
}
