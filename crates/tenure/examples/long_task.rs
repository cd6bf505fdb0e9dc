//! A task that takes longer than its ttl: its lock is renewed for as long as it runs.
//!
//! ```console
//! $ cargo run -p tenure --example long_task
//! ```
//!
//! The ttl is how long the lock stays taken after its process has *died*, not how long the work may take, so it
//! can be short. Then the same task runs without renewal: it is told that it has lost its lock. `TENURE_URL`
//! selects another engine than a file.

#[path = "log/mod.rs"]
mod log;

use std::time::{Duration, Instant};

use tenure::{Hold, Released, Tenure};
use tracing::{info, warn};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TTL: Duration = Duration::from_secs(2);
const STEP: Duration = Duration::from_millis(500);
const STEPS: u32 = 10;

/// Five seconds of work, step by step, while nobody else can have the lock.
async fn work(hold: &Hold) -> u32 {
    for step in 1..=STEPS {
        tokio::time::sleep(STEP).await;
        if !hold.is_live() {
            warn!("step {step} is not done: the lock was lost");
            return step - 1;
        }
        info!("step {step} of {STEPS} is done, {:?} are left without a renewal", hold.remaining());
    }
    STEPS
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    log::start();
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;
    let lock = tenure.mutex("long-task").ttl(TTL);

    let (hold, began) = (lock.clone().acquire().await?, Instant::now());
    let renewed = work(&hold).await;
    let took = began.elapsed();
    // Nobody else had the lock meanwhile, although the ttl has passed more than twice.
    let busy = lock.clone().try_acquire().await?.is_none();
    let released = hold.release().await?;
    info!("renewed: {renewed} steps in {took:?} with a ttl of {TTL:?}; released {released:?}");

    let hold = lock.renew(false).acquire().await?;
    let alone = work(&hold).await;
    let late = hold.release().await?;
    info!("not renewed: {alone} steps; released {late:?}");

    tenure.close().await;
    let kept = renewed == STEPS && took > 2 * TTL && busy && released == Released::InTime;
    match kept && alone < STEPS && late == Released::Late {
        true => Ok(()),
        false => Err("the lock did not last as long as it should".into()),
    }
}
