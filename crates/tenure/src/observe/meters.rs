//! Metrics through the [`metrics`](::metrics) facade: which ones there are, and how they are recorded.
//!
//! The facade passes them to the recorder that the program has installed, or drops them. Labels are bounded:
//! there is no limit to the number of names, so metrics go by group, the part of a name before its first `:`, and
//! after 200 groups the rest is `_other`. [`METRICS`] lists all metrics; [`describe`] describes them to the
//! recorder; [`BUCKETS`] are good bounds for times, [`SHARES`] for shares.

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Duration;

use ::metrics::{Gauge, Label, SharedString, Unit, counter, gauge, histogram};

use super::groups::{Bounded, group, kind};
use super::{Reporter, Subject, how};
use crate::model::claim::{Claim, Ended, Fence, RenewalOutcome};
use crate::model::moment::Moment;
use crate::model::name::{Name, Space};

mod table;

pub use self::table::{METRICS, Metric, MetricKind};

/// Upper bounds for the histograms of times, in seconds.
pub const BUCKETS: &[f64] = &[
    0.001, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0,
    1800.0, 3600.0,
];

/// Upper bounds for `tenure_renewal_margin_ratio`. A renewal is made after a third of the ttl, so about 0.66 is
/// left; if less than half is left, it was late.
pub const SHARES: &[f64] = &[0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 1.0];

/// Describes each metric and its unit to the recorder. Call it once, after installing the recorder.
pub fn describe() {
    for Metric { name, kind, in_seconds, help, .. } in METRICS {
        let unit = if *in_seconds { Unit::Seconds } else { Unit::Count };
        match kind {
            MetricKind::Counter => ::metrics::describe_counter!(*name, unit, *help),
            MetricKind::Gauge => ::metrics::describe_gauge!(*name, unit, *help),
            MetricKind::Histogram => ::metrics::describe_histogram!(*name, unit, *help),
        }
    }
}

/// Adds one to a gauge for as long as it lives. It is subtracted from the same gauge, even if another recorder
/// has been installed in the meantime.
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

fn engine(reporter: &Reporter) -> SharedString {
    SharedString::from_shared(reporter.engine.clone())
}

/// The labels of metrics about a claim.
fn of(reporter: &Reporter, claim: &Claim) -> Vec<Label> {
    vec![
        Label::new("engine", engine(reporter)),
        Label::new("kind", kind(claim)),
        Label::new("group", group(&claim.name)),
    ]
}

fn of_with(
    reporter: &Reporter,
    claim: &Claim,
    label: &'static str,
    value: &'static str,
) -> Vec<Label> {
    let mut labels = of(reporter, claim);
    labels.push(Label::new(label, value));
    labels
}

/// A request was granted, refused or given up, after waiting this long.
pub(super) fn acquisition(
    reporter: &Reporter,
    claim: &Claim,
    outcome: &'static str,
    waited: Option<Duration>,
) {
    let labels = of_with(reporter, claim, "outcome", outcome);
    counter!("tenure_acquisitions_total", labels.clone()).increment(1);
    if let Some(waited) = waited {
        histogram!("tenure_wait_seconds", labels).record(waited);
    }
}

/// A claim is now waiting in line.
pub(super) fn waiting_now(reporter: &Reporter, claim: &Claim) -> Counted {
    Counted::new(gauge!("tenure_waiters", of(reporter, claim)))
}

/// A claim now holds, and leads if it is a candidate.
pub(super) fn held_now(reporter: &Reporter, claim: &Claim) -> [Counted; 2] {
    let leads = match claim.name.space() {
        Space::Election => {
            Counted::new(gauge!("tenure_leader", "election" => election(&claim.name)))
        }
        _ => Counted::default(),
    };
    [Counted::new(gauge!("tenure_held", of(reporter, claim))), leads]
}

/// A hold has ended.
pub(super) fn held(reporter: &Reporter, claim: &Claim, end: &'static str, held: Duration) {
    histogram!("tenure_hold_seconds", of_with(reporter, claim, "end", end)).record(held);
}

pub(super) fn renewal(reporter: &Reporter, claim: &Claim, heard: RenewalOutcome) {
    let (outcome, margin) = match heard {
        RenewalOutcome::Renewed { left, first_life } => {
            // A first life is short by design, so what is left of it means nothing.
            ("renewed", (!first_life).then(|| left.div_duration_f64(claim.ttl).min(1.0)))
        }
        RenewalOutcome::Unanswered => ("unanswered", None),
        RenewalOutcome::Gone => ("gone", None),
    };
    if let Some(margin) = margin {
        histogram!("tenure_renewal_margin_ratio", of(reporter, claim)).record(margin);
    }
    let labels = of_with(reporter, claim, "outcome", outcome);
    counter!("tenure_renewals_total", labels).increment(1);
}

pub(super) fn lost(reporter: &Reporter, claim: &Claim, ended: &Ended) {
    let reason = match ended {
        Ended::Expired | Ended::Broken(_) => how(ended),
        Ended::MaxHold => "max_hold",
        Ended::Conflict { .. } => "conflict",
        Ended::Forgotten => "forgotten",
        Ended::ClockStep { .. } => "clock_step",
        Ended::Elsewhere => "elsewhere",
        Ended::Closed => "closed",
    };
    counter!("tenure_lost_total", of_with(reporter, claim, "reason", reason)).increment(1);
    if *ended == Ended::MaxHold {
        counter!("tenure_max_hold_releases_total", of(reporter, claim)).increment(1);
    }
}

pub(super) fn expired_before_release(reporter: &Reporter, claim: &Claim) {
    counter!("tenure_expired_before_release_total", of(reporter, claim)).increment(1);
}

/// The oldest wait and the oldest hold of each group in seconds, as last recorded: when a group no longer has
/// any, its gauge must be reset.
#[derive(Debug, Default)]
pub(super) struct Ages(Mutex<BTreeMap<&'static str, [f64; 2]>>);

impl Ages {
    pub(super) fn tell<S: Subject>(&self, reporter: &Reporter, claims: &[Arc<S>], now: Moment) {
        let mut ages = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ages.values_mut().for_each(|oldest| *oldest = [0.0; 2]);
        for live in claims {
            if let Some((holds, since)) = live.standing() {
                let oldest = &mut ages.entry(group(&live.request().claim.name)).or_default()
                    [usize::from(holds)];
                *oldest = oldest.max(now.since(since).as_secs_f64());
            }
        }
        for (group, [wait, hold]) in &*ages {
            let labels = [("engine", engine(reporter)), ("group", (*group).into())];
            gauge!("tenure_oldest_wait_seconds", &labels).set(*wait);
            gauge!("tenure_oldest_hold_seconds", &labels).set(*hold);
        }
        ages.retain(|_, oldest| *oldest != [0.0; 2]);
    }
}

#[cfg(feature = "file")]
pub(super) fn passed_over(name: &Name) {
    counter!("tenure_zombie_waiters_reaped_total", "group" => group(name)).increment(1);
}

pub(super) fn reports_dropped(dropped: u64) {
    counter!("tenure_reports_dropped_total").increment(dropped);
}

pub(super) fn broken(reporter: &Reporter, name: &Name) {
    let labels = [("engine", engine(reporter)), ("group", group(name).into())];
    counter!("tenure_breaks_total", &labels).increment(1);
}

/// The label of an election: its whole name. There are few of them; if not, the later ones share one label.
fn election(name: &Name) -> &'static str {
    static ELECTIONS: LazyLock<Bounded> = LazyLock::new(Bounded::default);
    ELECTIONS.known(name.as_str())
}

pub(super) fn elected(claim: &Claim, term: Fence) {
    let election = election(&claim.name);
    gauge!("tenure_leader_term", "election" => election).set(term.get() as f64);
    counter!("tenure_leader_transitions_total", "election" => election).increment(1);
}

pub(super) fn once(claim: &Claim, outcome: &'static str) {
    let labels = [("group", group(&claim.name)), ("outcome", outcome)];
    counter!("tenure_once_total", &labels).increment(1);
}

pub(super) fn fail_open(claim: &Claim) {
    counter!("tenure_fail_open_total", "group" => group(&claim.name)).increment(1);
}

pub(super) fn engine_up(engine: &str, up: bool) {
    gauge!("tenure_engine_up", "engine" => engine.to_owned()).set(f64::from(u8::from(up)));
}

pub(super) fn stale_write(group: &'static str) {
    counter!("tenure_stale_writes_rejected_total", "group" => group).increment(1);
}
