//! What is printed.

use std::fmt;

use tenure_measure::figures::median;

/// Where a figure should be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The median is at least this.
    AtLeast(f64),
    /// The median is at most this.
    AtMost(f64),
    /// Every single one is at most this.
    NeverAbove(f64),
}

impl Goal {
    fn is_met(self, values: &[f64]) -> bool {
        match self {
            Goal::AtLeast(bound) => median(values.to_vec()) >= bound,
            Goal::AtMost(bound) => median(values.to_vec()) <= bound,
            Goal::NeverAbove(bound) => values.iter().all(|value| *value <= bound),
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtLeast(bound) => f.pad(&format!(">= {bound}")),
            Goal::AtMost(bound) => f.pad(&format!("<= {bound}")),
            Goal::NeverAbove(bound) => f.pad(&format!("all <= {bound}")),
        }
    }
}

/// Figures as they come, with a count of the goals that are missed.
#[derive(Default)]
pub(crate) struct Table {
    met: usize,
    missed: usize,
    failed: usize,
}

impl Table {
    pub(crate) fn heading(&self, heading: &str) {
        println!("\n{heading}");
        println!("  {:<16} {:<34} {:>10}  median (least..most)", "", "", "goal");
    }

    /// A line: of whom, which figure, where it should be, and one value a round.
    pub(crate) fn row(&mut self, whose: &str, figure: &str, goal: Option<Goal>, values: &[f64]) {
        if values.is_empty() {
            return;
        }
        let spread = |pick: fn(f64, f64) -> f64| values.iter().copied().reduce(pick);
        let (least, most) = (spread(f64::min).unwrap_or(0.0), spread(f64::max).unwrap_or(0.0));
        let middle = median(values.to_vec());
        let measured = match least == most {
            true => number(middle),
            false => format!("{} ({}..{})", number(middle), number(least), number(most)),
        };
        let verdict = match goal.map(|goal| goal.is_met(values)) {
            None => "",
            Some(true) => "ok",
            Some(false) => "MISS",
        };
        self.met += usize::from(verdict == "ok");
        self.missed += usize::from(verdict == "MISS");
        let goal = goal.map_or_else(|| "-".to_owned(), |goal| goal.to_string());
        println!("  {whose:<16} {figure:<34} {goal:>10}  {measured:<28} {verdict}");
    }

    /// In the place of figures that are not there.
    pub(crate) fn failed(&mut self, whose: &str, reason: &dyn fmt::Display) {
        self.failed += 1;
        println!("  {whose:<16} not measured: {reason}");
    }

    pub(crate) fn end(&self) {
        let Table { met, missed, failed } = self;
        println!("\n{met} goals met, {missed} missed, {failed} not measured");
    }
}

/// Three digits that matter, thousands apart.
fn number(value: f64) -> String {
    if value.abs() >= 1000.0 {
        let digits = format!("{value:.0}");
        let groups = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy);
        return groups.collect::<Vec<_>>().join(",");
    }
    match value.abs() {
        100.0.. => format!("{value:.0}"),
        10.0.. => format!("{value:.1}"),
        1.0.. => format!("{value:.2}"),
        0.0 => "0".to_owned(),
        _ => format!("{value:.3}"),
    }
}
