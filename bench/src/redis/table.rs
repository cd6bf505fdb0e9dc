//! The printed table.

use std::fmt;

use tenure_measure::figures::median;

/// The goal of a figure.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Goal {
    /// The median is at least this.
    AtLeast(f64),
    /// The median must be at least `minimum`, and should be at least `goal`.
    Reach { minimum: f64, goal: f64 },
    /// The median is at most this.
    AtMost(f64),
    /// Every single value is at most this.
    NeverAbove(f64),
}

/// Whether a goal was reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Met,
    /// The minimum is reached, the goal is not.
    Below,
    Missed,
}

impl Goal {
    fn verdict(self, values: &[f64]) -> Verdict {
        let median = median(values.to_vec());
        let is_met = match self {
            Goal::AtLeast(bound) | Goal::Reach { goal: bound, .. } => median >= bound,
            Goal::AtMost(bound) => median <= bound,
            Goal::NeverAbove(bound) => values.iter().all(|value| *value <= bound),
        };
        match self {
            _ if is_met => Verdict::Met,
            Goal::Reach { minimum, .. } if median >= minimum => Verdict::Below,
            _ => Verdict::Missed,
        }
    }
}

impl fmt::Display for Goal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Goal::AtLeast(bound) => f.pad(&format!(">= {bound}")),
            Goal::Reach { minimum, goal } => f.pad(&format!(">= {minimum}, {goal}")),
            Goal::AtMost(bound) => f.pad(&format!("<= {bound}")),
            Goal::NeverAbove(bound) => f.pad(&format!("all <= {bound}")),
        }
    }
}

/// Prints figures as they arrive, and counts the goals that are missed.
#[derive(Default)]
pub(crate) struct Table {
    met: usize,
    below: usize,
    missed: usize,
    failed: usize,
}

impl Table {
    pub(crate) fn heading(&self, heading: &str) {
        println!("\n{heading}");
        println!("  {:<16} {:<34} {:>13}  median (least..most)", "", "", "minimum, goal");
    }

    /// A row: which kind, which figure, its goal, and one value per round.
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
        let verdict = goal.map(|goal| goal.verdict(values));
        let (count, says) = match verdict {
            None => (&mut 0, ""),
            Some(Verdict::Met) => (&mut self.met, "ok"),
            Some(Verdict::Below) => (&mut self.below, "below the goal"),
            Some(Verdict::Missed) => (&mut self.missed, "MISS"),
        };
        *count += 1;
        let goal = goal.map_or_else(|| "-".to_owned(), |goal| goal.to_string());
        println!("  {whose:<16} {figure:<34} {goal:>13}  {measured:<28} {says}");
    }

    /// Instead of figures that are missing.
    pub(crate) fn failed(&mut self, whose: &str, reason: &dyn fmt::Display) {
        self.failed += 1;
        println!("  {whose:<16} not measured: {reason}");
    }

    pub(crate) fn end(&self) {
        let Table { met, below, missed, failed } = self;
        println!(
            "\n{met} goals met, {below} between minimum and goal, {missed} missed, {failed} not measured"
        );
    }
}

/// Three significant digits, with thousands separators.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_between_minimum_and_goal_is_neither_met_nor_missed() {
        let goal = Goal::Reach { minimum: 0.9, goal: 0.95 };
        let verdicts = [0.89, 0.9, 0.94, 0.95].map(|value| goal.verdict(&[value]));
        let (met, below, missed) = (Verdict::Met, Verdict::Below, Verdict::Missed);
        assert_eq!(verdicts, [missed, below, below, met]);
        assert_eq!(Goal::NeverAbove(0.0).verdict(&[0.0, 1.0, 0.0]), missed);
        assert_eq!(Goal::AtMost(0.5).verdict(&[0.0, 1.0, 0.0]), met);
    }
}
