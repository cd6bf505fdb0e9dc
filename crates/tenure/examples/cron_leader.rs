//! Cron jobs that are installed on every instance and run on one.
//!
//! ```console
//! $ cargo run -p tenure --example cron_leader
//! ```
//!
//! Start it in several terminals: one leads and runs the jobs, the others wait. SIGTERM or Ctrl-C hands over at
//! once. So does the end of the jobs: a service would run them for ever, but here there are five, or as many as
//! the argument says. If it loses its term (`tenure break cron --kind leader`, or an engine that is unreachable
//! for longer than the ttl), it reports that, stops its jobs, and campaigns again. `TENURE_URL` selects another
//! engine than a file. For work with a start and a stop, see the example `worker`.
#![allow(clippy::print_stdout, reason = "it shows what happens")]

use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tenure::{Tenure, Term};
use tokio::signal::unix::{SignalKind, signal};

type Failure = Box<dyn std::error::Error + Send + Sync>;

#[derive(Clone)]
struct Cron {
    tenure: Tenure,
    instance: String,
    jobs: u32,
}

/// Reports when the term is lost. At that moment the jobs are dropped, and this value with them.
struct Leading {
    instance: String,
    term: Arc<Term>,
}

impl Drop for Leading {
    fn drop(&mut self) {
        let (instance, term) = (&self.instance, self.term.number());
        let nobody = &mut Context::from_waker(Waker::noop());
        if let Poll::Ready(reason) = pin!(self.term.lost()).poll(nobody) {
            println!("{instance} has lost term {term}: {reason}; its jobs were stopped");
        }
    }
}

/// Runs while this instance leads.
async fn run_jobs(cron: Cron, term: Arc<Term>) -> Result<(), Failure> {
    let Cron { tenure, instance, jobs } = cron;
    println!("{instance} leads, term {}", term.number());
    let _leading = Leading { instance: instance.clone(), term: term.clone() };
    for job in 1..=jobs {
        // The system that a job writes to should refuse numbers below that of the term.
        println!("{instance} runs job {job}, term {}", term.number());
        tokio::time::sleep(Duration::from_millis(300)).await;
        // Everyone can see who leads. Here it must be this instance, or its term has ended.
        let seen = tenure.election("cron").leader().await?;
        let seen = seen.and_then(|leader| leader.value);
        if term.is_live() && seen.as_ref() != Some(&instance) {
            return Err(format!("{instance} runs jobs while {seen:?} leads").into());
        }
    }
    Ok(())
}

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    let tenure = Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?;
    let instance = format!("instance {}", std::process::id());
    let jobs = std::env::args().nth(1).map_or(Ok(5), |jobs| jobs.parse())?;
    let cron = Cron { tenure: tenure.clone(), instance: instance.clone(), jobs };
    let (mut terminate, mut interrupt) =
        (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);

    println!("{instance} campaigns");
    // Campaigns again after every loss; ends when the jobs do.
    let election = tenure.election("cron").value(&instance);
    let leading = election.run(|term| run_jobs(cron.clone(), term));
    let stopped = tokio::select! {
        ended = leading => {
            ended??;
            "has run its jobs"
        }
        _ = terminate.recv() => "was told to stop",
        _ = interrupt.recv() => "was told to stop",
    };
    // Dropping the election above has resigned; this waits until the engine has confirmed it.
    tenure.close().await;
    println!("{instance} {stopped}: handed over");
    Ok(())
}
