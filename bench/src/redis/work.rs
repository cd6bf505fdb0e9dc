//! The child that acquires and releases for as long as it is told, and reports when each step happened.

use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tenure_measure::figures::Stamps;

use super::children::{Given, Orders, say};
use super::clock;
use super::failure::Failure;
use super::lockers::{Kind, Locker};

/// Which names the tasks acquire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Names {
    /// A new one each time.
    Fresh,
    /// A separate one per task.
    Own,
    /// The same for all.
    One,
}

impl Names {
    pub(crate) fn label(self) -> &'static str {
        match self {
            Names::Fresh => "fresh",
            Names::Own => "own",
            Names::One => "one",
        }
    }

    fn of(label: &str) -> Result<Names, Failure> {
        let all = [Names::Fresh, Names::Own, Names::One];
        let found = all.into_iter().find(|names| names.label() == label);
        found.ok_or_else(|| format!("names={label}").into())
    }

    fn name(self, task: u64, turn: u64) -> String {
        match self {
            Names::Fresh => format!("wallet:{task}:{turn}"),
            Names::Own => format!("wallet:{task}"),
            Names::One => "wallet".to_owned(),
        }
    }
}

type Log = Arc<Mutex<Vec<Stamps>>>;

/// The work of every task of this process.
struct Work {
    locker: Locker,
    names: Names,
    hold: Duration,
    think: Duration,
    start: u64,
    end: u64,
}

/// Connects, warms up, prints `ready`; on `go START END` works in that window, then prints `cpu` with the
/// nanoseconds of CPU that it used, and the time stamps, in binary.
pub(crate) async fn run(given: &Given, orders: &mut Orders) -> Result<(), Failure> {
    let kind = Kind::of(given.text("kind")?).ok_or("an unknown kind")?;
    let locker = Locker::connect(kind, given.text("url")?).await?;
    let (tasks, first): (u64, u64) = (given.number("tasks")?, given.number("first")?);
    warm_up(&locker, first).await?;
    say("ready")?;
    let order = orders.next().await?;
    let mut window = order.split(' ').skip(1).filter_map(|part| part.parse().ok());
    let (Some(start), Some(end)) = (window.next(), window.next()) else {
        return Err(format!("not an order: {order}").into());
    };
    let work = Arc::new(Work {
        locker,
        names: Names::of(given.text("names")?)?,
        hold: Duration::from_micros(given.number("hold")?),
        think: Duration::from_micros(given.number("think")?),
        start,
        end,
    });
    let room = if tasks == 1 { 1 << 16 } else { 1 << 12 };
    let logs: Vec<Log> =
        (0..tasks).map(|_| Arc::new(Mutex::new(Vec::with_capacity(room)))).collect();
    for (task, log) in (first..).zip(&logs) {
        let (work, log) = (work.clone(), log.clone());
        tokio::spawn(async move {
            if let Err(error) = work.task(task, &log).await {
                let _ = say(format_args!("failed: {error}"));
                std::process::exit(1);
            }
        });
    }
    tokio::time::sleep(clock::until(start)).await;
    let before = clock::cpu();
    tokio::time::sleep(clock::until(end)).await;
    say(format_args!("cpu {}", clock::cpu() - before))?;
    // Acquisitions in flight may end or not; waiting ones report for how long they have waited.
    tokio::time::sleep(Duration::from_millis(30)).await;
    let mut out = std::io::BufWriter::new(std::io::stdout().lock());
    for log in &logs {
        log.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .iter()
            .try_for_each(|stamps| out.write_all(&stamps.to_bytes()))?;
    }
    Ok(out.flush()?)
}

/// Everything that happens once per connection is over before the window: scripts are loaded, buffers have
/// grown, and every partition of the names was used.
async fn warm_up(locker: &Locker, first: u64) -> Result<(), Failure> {
    for turn in 0..3000 {
        let name = format!("warm:{first}:{turn}");
        let held = locker.acquire(&name).await?;
        locker.release(&name, held).await?;
    }
    Ok(())
}

impl Work {
    async fn task(&self, task: u64, log: &Log) -> Result<(), Failure> {
        let last = |stamps: Stamps, push: bool| {
            let mut log = log.lock().unwrap_or_else(PoisonError::into_inner);
            match log.last_mut() {
                Some(last) if !push => *last = stamps,
                _ => log.push(stamps),
            }
        };
        tokio::time::sleep(clock::until(self.start)).await;
        for turn in 0.. {
            let asked = clock::now();
            if asked >= self.end {
                break;
            }
            let name = self.names.name(task, turn);
            let mut stamps = Stamps { task, asked, ..Stamps::default() };
            last(stamps, true);
            let held = self.locker.acquire(&name).await?;
            stamps.granted = clock::now();
            if !self.hold.is_zero() {
                tokio::time::sleep(self.hold).await;
            }
            stamps.leaving = clock::now();
            self.locker.release(&name, held).await?;
            stamps.left = clock::now();
            last(stamps, false);
            if !self.think.is_zero() {
                tokio::time::sleep(self.think).await;
            }
        }
        Ok(())
    }
}
