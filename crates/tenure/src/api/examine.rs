//! Checks whether the engine is fit for locks: its own findings, and how long it takes to answer.

use std::time::Duration;

use crate::api::tenure::Tenure;
use crate::core::handle::Core;
use crate::model::error::Result;
use crate::model::finding::{Finding, Mark};

/// How often the engine is pinged.
const SAMPLES: usize = 50;
/// From here on, people notice the delay of every claim.
const SLOW: Duration = Duration::from_millis(50);
/// A renewal is sent after a third of the ttl; an answer should take a small part of the rest.
const PARTS_OF_TTL: u32 = 20;

impl Tenure {
    /// Checks everything about the engine that locks depend on: its settings, permissions and speed. Nothing is
    /// claimed.
    ///
    /// # Errors
    /// `Unavailable` if the engine cannot be reached. If it can be reached and something is wrong, that is a
    /// [`Finding`], not an error.
    ///
    /// # Cancel safety
    /// Safe: it leaves nothing behind.
    pub async fn examine(&self) -> Result<Vec<Finding>> {
        let core = &self.handle.core;
        let asked = async {
            core.open()?;
            core.engine.examine().await
        };
        let label = &self.profile().label;
        let mut findings = asked.await.map_err(|error| error.context("examine", "", label))?;
        match core.times().await {
            Ok(times) => findings.push(latency(times, self.defaults().ttl)),
            // An engine that cannot serve has been reported already.
            Err(_) if findings.iter().any(|finding| finding.mark == Mark::Problem) => {}
            Err(error) => findings.push(Finding::problem("latency", error.to_string())),
        }
        Ok(findings)
    }

    /// The same for the engine at this URL. It may be one that [`connect`](Tenure::connect) refuses: the findings
    /// say why.
    ///
    /// # Errors
    /// `Invalid` if the URL is bad, `Unavailable` if the engine cannot be reached.
    ///
    /// # Cancel safety
    /// Safe: it leaves nothing behind.
    pub async fn examine_at(url: &str) -> Result<Vec<Finding>> {
        let tenure = Tenure::connect_lazily(url).await?;
        let findings = tenure.examine().await;
        tenure.close().await;
        findings
    }
}

impl Core {
    /// How long each ping took, sorted.
    async fn times(&self) -> Result<Vec<Duration>> {
        // The first may have to connect.
        self.engine.health().await?;
        let mut times = Vec::with_capacity(SAMPLES);
        for _ in 0..SAMPLES {
            let sent = self.world.now();
            self.engine.health().await?;
            times.push(self.world.now().since(sent));
        }
        times.sort();
        Ok(times)
    }
}

/// `times` are sorted.
fn latency(times: Vec<Duration>, ttl: Duration) -> Finding {
    let rank = |percent: usize| times[(times.len() * percent).div_ceil(100) - 1];
    let (half, most) = (rank(50), rank(99));
    let what = format!("{} p50, {} p99", millis(half), millis(most));
    if half > SLOW {
        return Finding::warning("latency", what)
            .why("every claim, and every hand-over to another machine, waits for one such round trip")
            .fix("use an engine that is closer");
    }
    if most > ttl / PARTS_OF_TTL {
        let needed = humantime::format_duration(Duration::from_secs(
            (most * PARTS_OF_TTL).as_secs_f64().ceil() as u64,
        ));
        return Finding::warning("latency", what)
            .why(format!("some answers take more than a twentieth of the ttl ({ttl:?})"))
            .fix(format!("a ttl of {needed} or more, or an engine that is closer"));
    }
    Finding::good("latency", what)
}

fn millis(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(times: impl IntoIterator<Item = u64>, ttl: u64) -> Finding {
        let times = times.into_iter().map(Duration::from_micros).collect();
        latency(times, Duration::from_millis(ttl))
    }

    #[test]
    fn an_engine_that_is_near_is_good_and_its_times_are_shown() {
        let finding = of((1..=50).map(|at| at * 100), 30_000);
        assert_eq!(finding, Finding::good("latency", "2.50 ms p50, 5.00 ms p99"));
    }

    #[test]
    fn an_engine_that_is_far_is_a_weakness() {
        let finding = of([51_000; 50], 30_000);
        assert_eq!(finding.mark, Mark::Warning);
        assert!(finding.fix.unwrap().contains("closer"));
        assert_eq!(of([50_000; 50], 30_000).mark, Mark::Good);
    }

    #[test]
    fn answers_that_take_a_good_part_of_the_ttl_ask_for_a_longer_one() {
        let finding = of([1_000; 49].into_iter().chain([160_000]), 3_000);
        assert_eq!(finding.mark, Mark::Warning);
        assert_eq!(finding.fix.unwrap(), "a ttl of 4s or more, or an engine that is closer");
        assert_eq!(of([1_000; 49].into_iter().chain([150_000]), 3_000).mark, Mark::Good);
    }
}
