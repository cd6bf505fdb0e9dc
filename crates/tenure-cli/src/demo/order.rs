//! Ten guests come to a door that is taken, one after the other. Who comes first is served first.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::task::JoinSet;

use super::{Act, Played, Seen, Stage, Trouble, all_done, random};

pub(super) const ACT: Act = Act {
    title: "ten come one after the other to a door that is taken",
    lines: [
        r#"let turn = tenure.mutex("door").join(); // the place in line is taken here"#,
        "let hold = turn.await?;",
        "drop(hold);",
    ],
    without,
    with,
};

const GUESTS: u32 = 10;

/// The guests in the order in which they were served.
#[derive(Clone, Default)]
struct Served(Arc<Mutex<Vec<u32>>>);

/// Each guest comes back after a while to see whether the door is free: who is lucky is served.
fn without(stage: &Stage) -> Played {
    let served = Served::default();
    stage.play(async {
        let taken = stage.tenure.mutex("polled door").acquire().await?;
        let mut guests = JoinSet::new();
        for guest in 1..=GUESTS {
            let door = stage.tenure.mutex("polled door");
            if door.clone().try_acquire().await?.is_some() {
                return Err("a taken door was given away".into());
            }
            let served = served.clone();
            guests.spawn(async move {
                let _hold = loop {
                    tokio::time::sleep(Duration::from_millis(1 + random() % 20)).await;
                    if let Some(hold) = door.clone().try_acquire().await? {
                        break hold;
                    }
                };
                served.push(guest);
                Ok::<_, Trouble>(())
            });
        }
        drop(taken);
        all_done(guests).await
    })?;
    let more =
        if served.in_order() { "in order, by luck" } else { "whoever asks at the right moment" };
    Ok(Seen::report(served.to_string(), more))
}

/// Each guest takes a place in line, and is told when it is its turn.
fn with(stage: &Stage) -> Played {
    let tenure = &stage.tenure;
    let served = Served::default();
    stage.play(async {
        let taken = tenure.mutex("door").acquire().await?;
        let mut guests = JoinSet::new();
        for guest in 1..=GUESTS {
            let turn = tenure.mutex("door").join(); // the place in line is taken here
            let served = served.clone();
            guests.spawn(async move {
                let hold = turn.await?;
                served.push(guest);
                drop(hold);
                Ok(())
            });
        }
        drop(taken);
        all_done(guests).await
    })?;
    let more = if served.in_order() { "first come, first served" } else { "out of order" };
    Ok(Seen::check(served.in_order(), served.to_string(), more))
}

impl Served {
    fn push(&self, guest: u32) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(guest);
    }

    fn all(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn in_order(&self) -> bool {
        self.all().into_iter().eq(1..=GUESTS)
    }
}

impl std::fmt::Display for Served {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let guests: Vec<_> = self.all().iter().map(ToString::to_string).collect();
        f.write_str(&guests.join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_order_means_everyone_in_the_order_of_arrival() {
        let served = |guests: &[u32]| Served(Arc::new(Mutex::new(guests.to_vec())));
        assert!(served(&[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]).in_order());
        assert!(!served(&[2, 1, 3, 4, 5, 6, 7, 8, 9, 10]).in_order());
        assert!(!served(&[1, 2, 3]).in_order());
        assert_eq!(served(&[2, 1]).to_string(), "2 1");
    }
}
