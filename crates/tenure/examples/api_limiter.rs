//! A partner's API accepts five calls at a time, from all instances together.
//!
//! ```console
//! $ cargo run -p tenure --example api_limiter
//! ```
//!
//! A caller that cannot wait gets "rate limit exceeded"; the others are served in turn. A call that counts as
//! several takes several units at once. Start it in several terminals: the five units are shared by all of
//! them. `TENURE_URL` selects another engine than a file; the argument, another folder for the partner's side.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::{Semaphore, Tenure};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const LIMIT: usize = 5;

fn limiter(tenure: &Tenure) -> Semaphore {
    // The ttl is how long the units of a call stay taken if its process dies.
    tenure.semaphore("partner-api", LIMIT as u32).ttl(Duration::from_secs(10))
}

/// For a request whose user is waiting.
async fn call_now(tenure: &Tenure, partner: &Path) -> Result<&'static str, Failure> {
    let Some(unit) = limiter(tenure).try_acquire().await? else {
        return Ok("rate limit exceeded");
    };
    call(partner, &unit.fence().to_string(), 1).await?;
    Ok("called")
}

/// For background work: waits for its turn.
async fn call_in_turn(tenure: Tenure, partner: PathBuf, weight: u32) -> Result<(), Failure> {
    let units = limiter(&tenure).wait(Duration::from_secs(60)).acquire_many(weight).await?;
    call(&partner, &units.fence().to_string(), weight).await
    // The units are released here.
}

/// The partner's side: a folder with a file for each call in progress. It refuses a sixth call.
async fn call(partner: &Path, id: &str, weight: u32) -> Result<(), Failure> {
    let files: Vec<_> = (0..weight).map(|unit| partner.join(format!("{id}-{unit}"))).collect();
    files.iter().try_for_each(|file| std::fs::write(file, ""))?;
    let at_once = std::fs::read_dir(partner)?.count();
    println!("a call of weight {weight}: {at_once} at once");
    tokio::time::sleep(Duration::from_millis(50)).await;
    files.iter().try_for_each(std::fs::remove_file)?;
    if at_once > LIMIT {
        return Err(format!("{at_once} calls at once: the partner has cut us off").into());
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;
    let default = || std::env::temp_dir().join("tenure-example-partner");
    let partner = std::env::args_os().nth(1).map_or_else(default, PathBuf::from);

    // A caller that holds all five units is alone, so files that a killed run has left can be removed.
    let all = limiter(&tenure).acquire_many(LIMIT as u32).await?;
    let _ = std::fs::remove_dir_all(&partner);
    std::fs::create_dir_all(&partner)?;
    let refused = call_now(&tenure, &partner).await?;
    println!("without waiting: {refused}");
    let waiting: Vec<_> = (0..12)
        .map(|number| tokio::spawn(call_in_turn(tenure.clone(), partner.clone(), 1 + number % 2)))
        .collect();
    all.release().await?;
    for call in waiting {
        call.await??;
    }
    println!("12 calls made, in turn");
    tenure.close().await;
    if refused == "rate limit exceeded" { Ok(()) } else { Err("a sixth call was let in".into()) }
}
