//! Twenty callers of an interface that bears five at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;

use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::{Act, Played, Seen, Stage, all_done};

pub(super) const ACT: Act = Act {
    title: "twenty call what bears five at once",
    lines: [
        r#"let unit = tenure.semaphore("partner-api", 5).acquire().await?;"#,
        "partner.call().await;",
        "drop(unit);",
    ],
    without,
    with,
};

const CALLERS: usize = 20;
const CAPACITY: usize = 5;

fn without(stage: &Stage) -> Played {
    let partner = Partner::with_groups_of(CALLERS);
    stage.play(async {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let partner = partner.clone();
            callers.spawn(async move {
                partner.call().await;
                Ok(())
            });
        }
        all_done(callers).await
    })?;
    Ok(Seen::report(format!("{} inside at once", partner.most()), "nobody counts"))
}

fn with(stage: &Stage) -> Played {
    let partner = Partner::with_groups_of(CAPACITY);
    stage.play(async {
        let mut callers = JoinSet::new();
        for _ in 0..CALLERS {
            let (tenure, partner) = (stage.tenure.clone(), partner.clone());
            callers.spawn(async move {
                let unit = tenure.semaphore("partner-api", 5).acquire().await?;
                partner.call().await;
                drop(unit);
                Ok(())
            });
        }
        all_done(callers).await
    })?;
    let most = partner.most();
    Ok(Seen::check(
        most == CAPACITY,
        format!("{most} inside at once"),
        "as many as there are units",
    ))
}

/// What is called, and counts who is inside.
#[derive(Clone)]
struct Partner(Arc<Counts>);

struct Counts {
    inside: AtomicUsize,
    most: AtomicUsize,
    group: Barrier,
}

impl Partner {
    /// Callers stay until `size` of them are inside together. So the number that is seen does not
    /// depend on who is quick: if fewer are let in, the call does not end.
    fn with_groups_of(size: usize) -> Partner {
        let (inside, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Partner(Arc::new(Counts { inside, most, group: Barrier::new(size) }))
    }

    async fn call(&self) {
        let Counts { inside, most, group } = &*self.0;
        most.fetch_max(inside.fetch_add(1, SeqCst) + 1, SeqCst);
        group.wait().await;
        // Time for one too many to come in, if one is let in.
        tokio::time::sleep(Duration::from_millis(5)).await;
        inside.fetch_sub(1, SeqCst);
    }

    fn most(&self) -> usize {
        self.0.most.load(SeqCst)
    }
}
