//! One of several processes does the work, and another takes over.
//!
//! In two terminals:
//!
//! ```console
//! $ cargo run -p tenure --example worker
//! ```
//!
//! Stop the one that works with Ctrl-C, or `kill` it: the other goes on at once. `kill -9`: also at
//! once, because the file engine sees that the process is gone; on a server it takes the ttl at most.
//! `TENURE_URL=redis://127.0.0.1:6379` uses another engine.

use std::io;
use std::time::Duration;

use tenure::{Tenure, Term, Work};
use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinHandle;
use tracing::info;

/// The work: a task that runs from `start` to `stop`.
struct Heavy {
    worker: String,
    task: Option<JoinHandle<()>>,
}

impl Work for Heavy {
    type Error = io::Error;

    async fn start(&mut self, term: &Term) -> io::Result<()> {
        // Whatever the work writes to should refuse lower numbers than this one.
        let (worker, fence) = (self.worker.clone(), term.number());
        info!(worker, %fence, "leads: starting work");
        self.task = Some(tokio::spawn(async move {
            loop {
                info!(worker, %fence, "doing some heavy work");
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        }));
        Ok(())
    }

    async fn stop(&mut self) -> io::Result<()> {
        if let Some(task) = self.task.take() {
            task.abort();
            // Nothing of it runs any more when this returns.
            let _ = task.await;
        }
        info!(worker = self.worker, "work has stopped");
        Ok(())
    }
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    tracing_subscriber::fmt().with_target(false).init();
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;

    let worker = tenure.worker("resource-worker").ttl(Duration::from_secs(10));
    let (id, stopper) = (worker.id().to_owned(), worker.stopper());
    info!(worker = id, pid = std::process::id(), "trying to lead");

    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopper.stop();
    });

    // Returns when it was told to stop: the work has ended, and the next may lead.
    worker.run(Heavy { worker: id.clone(), task: None }).await?;
    tenure.close().await;
    info!(worker = id, "done");
    Ok(())
}
