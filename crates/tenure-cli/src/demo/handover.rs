//! How soon the next in line has what was let go.
//!
//! The times are for reading: how good they are depends on the machine. The proof is that every
//! single hand-over happened.

use std::time::{Duration, Instant};

use tenure::Tenure;
use tokio::task::JoinSet;

use super::{Act, Played, Seen, Stage, Trouble, random};

pub(super) const ACT: Act = Act {
    title: "a holder lets go while another one waits",
    lines: [
        r#"let turn = tenure.mutex("baton").join();"#,
        "drop(held);",
        "let next = turn.await?; // told by push, not found by asking again",
    ],
    without,
    with,
};

/// How many hand-overs are measured.
const HANDOVERS: usize = 1000;
/// How many are polled for, all at the same time because each takes so long.
const POLLED: usize = 100;
/// How often who polls asks.
const PAUSE: Duration = Duration::from_millis(100);

fn without(stage: &Stage) -> Played {
    let times = stage.play(async {
        let mut pairs = JoinSet::new();
        for pair in 0..POLLED {
            let tenure = stage.tenure.clone();
            pairs.spawn(async move { polled(&tenure, &format!("polled baton {pair}")).await });
        }
        let mut times = Vec::new();
        while let Some(pair) = pairs.join_next().await {
            times.push(pair??);
        }
        Ok(times)
    })?;
    let more = format!("asked every {} ms, median of {}", PAUSE.as_millis(), times.len());
    Ok(Seen::report(format!("after {}", microseconds(median(times))), more))
}

fn with(stage: &Stage) -> Played {
    let times = stage.play(async {
        let mut times = Vec::new();
        for _ in 0..HANDOVERS {
            times.push(pushed(&stage.tenure).await?);
        }
        Ok(times)
    })?;
    let more = format!("median of {} hand-overs, all of which happened", times.len());
    let all = times.len() == HANDOVERS;
    Ok(Seen::check(all, format!("after {}", microseconds(median(times))), more))
}

/// Someone asks again and again; when is it seen that the holder has let go?
async fn polled(tenure: &Tenure, name: &str) -> Result<Duration, Trouble> {
    let held = tenure.mutex(name).acquire().await?;
    let next = tenure.mutex(name);
    let waiter = tokio::spawn(async move {
        while next.clone().try_acquire().await?.is_none() {
            tokio::time::sleep(PAUSE).await;
        }
        Ok::<_, Trouble>(Instant::now())
    });
    // The holder lets go at any moment between two looks.
    tokio::time::sleep(PAUSE.mul_f64((random() % 1000) as f64 / 1000.0)).await;
    let dropped = Instant::now();
    drop(held);
    Ok(waiter.await??.saturating_duration_since(dropped))
}

/// Someone stands in line; when is it told that the holder has let go?
async fn pushed(tenure: &Tenure) -> Result<Duration, Trouble> {
    let held = tenure.mutex("baton").acquire().await?;
    let turn = tenure.mutex("baton").join();
    let waiter = tokio::spawn(async move {
        let next = turn.await?; // told by push, not found by asking again
        let got = Instant::now();
        drop(next);
        Ok::<_, Trouble>(got)
    });
    // The waiter falls asleep, so that waking it up is part of what is measured. This thread sleeps
    // and not only this task: a timer would wake up a thread of the runtime just before.
    std::thread::sleep(Duration::from_micros(200));
    let dropped = Instant::now();
    drop(held);
    Ok(waiter.await??.saturating_duration_since(dropped))
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

fn microseconds(time: Duration) -> String {
    format!("{} µs", time.as_micros())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        let times = [9, 1, 5].map(Duration::from_micros);
        assert_eq!(microseconds(median(times.to_vec())), "5 µs");
        assert_eq!(median(Vec::new()), Duration::ZERO);
    }
}
