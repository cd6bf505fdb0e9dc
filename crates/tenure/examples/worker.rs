//! One of several processes does the work, and another takes over.
//!
//! In two terminals:
//!
//! ```console
//! $ cargo run -p tenure --example worker
//! $ PORT=3001 cargo run -p tenure --example worker
//! ```
//!
//! Stop the working one with Ctrl-C, or `kill` it: the other takes over at once. After `kill -9` it also takes
//! over at once, because the file engine notices that the process is gone; with a server this takes the ttl at
//! most. `TENURE_URL=redis://127.0.0.1:6379` selects another engine. While that is unreachable, the workers
//! wait and try again, and `/health` is 503. docs/worker.md shows the output of two terminals.

#[path = "log/mod.rs"]
mod log;

use std::io;
use std::time::Duration;

use axum::http::StatusCode;
use axum::{Router, routing::get};
use tenure::worker::States;
use tenure::{Tenure, Term, Work};
use tokio::net::TcpListener;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tracing::info;

/// A health check should answer quickly.
const HEALTH_WITHIN: Duration = Duration::from_secs(1);

/// The work: a task that runs from `start` to `stop`.
struct Heavy {
    worker: String,
    task: Option<JoinHandle<()>>,
}

impl Work for Heavy {
    type Error = io::Error;

    async fn start(&mut self, term: &Term) -> io::Result<()> {
        // The system that the work writes to should refuse numbers below this one.
        let (worker, fence) = (self.worker.clone(), term.number());
        info!(worker, %fence, "leads: starting work");
        self.task = Some(tokio::spawn(async move {
            loop {
                info!(worker, %fence, "doing some heavy work");
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }));
        Ok(())
    }

    async fn stop(&mut self) -> io::Result<()> {
        if let Some(task) = self.task.take() {
            task.abort();
            // No part of it runs any more when this returns.
            let _ = task.await;
        }
        info!(worker = self.worker, "work has stopped");
        Ok(())
    }
}

/// `/` says what this worker is doing, `/health` whether the engine answers.
fn app(tenure: Tenure, states: States, id: String) -> Router {
    let health = async move || match tokio::time::timeout(HEALTH_WITHIN, tenure.health()).await {
        Ok(Ok(_)) => (StatusCode::OK, "the engine answers\n"),
        Ok(Err(_)) | Err(_) => (StatusCode::SERVICE_UNAVAILABLE, "the engine does not answer\n"),
    };
    let state = async move || format!("{id} is {}\n", states.current());
    Router::new().route("/", get(state)).route("/health", get(health))
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    log::start();
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;
    let worker = tenure.worker("resource-worker");
    let worker = worker.ttl(Duration::from_secs(10)).renew_every(Duration::from_secs(3));
    let (id, stopper) = (worker.id().to_owned(), worker.stopper());
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    // Listens first, so that a working instance can always be reached.
    let port = std::env::var("PORT").map_or(Ok(3000), |port| port.parse::<u16>())?;
    let listener = TcpListener::bind(("127.0.0.1", port)).await?;
    info!(worker = id, pid = std::process::id(), "listening on {}", listener.local_addr()?);
    let (stop_accepting, told) = oneshot::channel::<()>();
    let app = app(tenure.clone(), worker.states(), id.clone());
    let serving = axum::serve(listener, app).with_graceful_shutdown(async { drop(told.await) });
    let serving = tokio::spawn(serving.into_future());

    // Then it campaigns. This returns only when it is told to stop, or cannot continue.
    info!(worker = id, "trying to lead");
    let mut working = tokio::spawn(worker.run(Heavy { worker: id.clone(), task: None }));
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
        ended = &mut working => return Ok(ended??),
    }

    // In the opposite order: no more requests, no more work, then the next one leads.
    drop(stop_accepting);
    serving.await??;
    info!(worker = id, "takes no more requests");
    stopper.stop();
    working.await??;
    tenure.close().await;
    info!(worker = id, "done");
    Ok(())
}
