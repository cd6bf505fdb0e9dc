//! Work under a lock: acquire, run and release in one call, which cannot forget the release.
//!
//! ```console
//! $ cargo run -p tenure --example mutex_run
//! ```
//!
//! Start it in several terminals: all of them count in one file. The result of the work is returned, even if it
//! is an error; if the lock is lost, the work is dropped at that point. `TENURE_URL` selects another engine
//! than a file; the argument, another file to count in.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::num::ParseIntError;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure::{ErrorKind, Tenure};

type Failure = Box<dyn std::error::Error + Send + Sync>;

const TASKS: u32 = 10;

/// Reads, waits, writes: without a lock, concurrent callers overwrite each other's numbers.
async fn count(tenure: Tenure, file: PathBuf) -> Result<u32, Failure> {
    let lock = tenure.mutex("counter").wait(Duration::from_secs(60));
    lock.run(async |hold| {
        let number = read(&file)? + 1;
        tokio::time::sleep(Duration::from_millis(5)).await;
        std::fs::write(&file, number.to_string())?;
        println!("counted {number} under fence {}", hold.fence());
        Ok(number)
    })
    // The first error is the lock's, the second the work's.
    .await?
}

fn read(file: &Path) -> Result<u32, ParseIntError> {
    std::fs::read_to_string(file).map_or(Ok(0), |text| text.parse())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let locks = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(locks)).await?;
    let default = || std::env::temp_dir().join("tenure-example-counter.txt");
    let file = std::env::args_os().nth(1).map_or_else(default, PathBuf::from);

    let tasks: Vec<_> =
        (0..TASKS).map(|_| tokio::spawn(count(tenure.clone(), file.clone()))).collect();
    for task in tasks {
        task.await??;
    }
    println!("{TASKS} counted here");

    // Work that fails releases the lock, too.
    let lock = tenure.mutex(format!("counter of {}", std::process::id()));
    let failed = lock.clone().run(async |_| "no number".parse::<u32>()).await?;
    println!("the work failed: {:?}", failed.clone().map_err(|error| error.to_string()));

    // If the lock is not free in time, the error says who holds it.
    let impatient = lock.clone().wait(Duration::from_millis(100));
    let refused = lock.run(async |_| impatient.run(async |_| ()).await).await?;
    let waited = refused.err().ok_or("two were inside at once")?;
    println!("not in time: {waited}");

    tenure.close().await;
    match failed.is_err() && waited.kind() == ErrorKind::WaitOver {
        true => Ok(()),
        false => Err("something else was to happen".into()),
    }
}
