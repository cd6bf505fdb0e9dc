//! The scenarios of a booking lock, one command each. Each fails if a table was booked twice, or not at all.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tenure::{Released, Tenure};
use tracing::info;

use crate::Failure;
use crate::shop::{Booked, Order, Shop};

/// The command of the process that `crash` kills.
pub(crate) const HOLD: &str = "hold";
/// How long the lock stays taken after its process has died.
const SHORT_TTL: Duration = Duration::from_millis(1500);
/// A time limit for steps that should succeed.
const BOUND: Duration = Duration::from_secs(30);

/// The engine of `TENURE_URL`, or a file, because other processes take part.
async fn connect() -> Result<Tenure, Failure> {
    let file = format!("file:{}", std::env::temp_dir().join("tenure-example/locks.db").display());
    Ok(Tenure::connect(&std::env::var("TENURE_URL").unwrap_or(file)).await?)
}

/// Two guests book the same table, one after the other: both get it.
pub(crate) async fn sequential() -> Result<(), Failure> {
    let shop = Shop::open(connect().await?, None)?;
    let ann = shop.book(&Order::new(1, "19:00", "Ann"), "ann").await;
    let bob = shop.book(&Order::new(1, "21:00", "Bob"), "bob").await;
    info!("Ann: {ann:?}, Bob: {bob:?}");
    shop.tenure.close().await;
    check(matches!((ann, bob), (Booked::Yes, Booked::Yes)), "both have asked in turn")
}

/// Two instances book the same table at the same moment: one gets it, and the other never reaches the database.
pub(crate) async fn race() -> Result<(), Failure> {
    let one = Shop::open(connect().await?, None)?;
    let other = Shop { tenure: connect().await?, ..one.clone() };
    let (anns, bobs) = (Order::new(12, "19:00", "Ann"), Order::new(12, "19:00", "Bob"));
    let (ann, bob) = tokio::join!(one.book(&anns, "ann"), other.book(&bobs, "bob"));
    info!("Ann: {ann:?}, Bob: {bob:?}");
    one.tenure.close().await;
    other.tenure.close().await;
    let one_each =
        matches!((&ann, &bob), (Booked::Yes, Booked::Busy) | (Booked::Busy, Booked::Yes));
    check(one_each, "one of two is to book it")
}

/// A process is killed while it holds the lock. The next one gets the lock when the ttl is over; on a file,
/// which notices a dead process, at once.
pub(crate) async fn crash() -> Result<(), Failure> {
    let mut child =
        Command::new(std::env::current_exe()?).arg(HOLD).stdout(Stdio::piped()).spawn()?;
    let said = BufReader::new(child.stdout.take().ok_or("no output")?).lines();
    let mut holds = false;
    for line in said {
        let line = line?;
        info!("process {}: {line}", child.id());
        if line.contains("ACQUIRED") {
            holds = true;
            break;
        }
    }
    child.kill()?;
    child.wait()?;
    info!("process {} was killed (kill -9)", child.id());

    let (tenure, killed) = (connect().await?, Instant::now());
    let lock = tenure.mutex("table:5").ttl(SHORT_TTL).meta("request", "next");
    let hold = match lock.clone().try_acquire().await? {
        Some(hold) => hold,
        None => lock.wait(BOUND).acquire().await?,
    };
    info!("the next one has it, {:?} after the crash", killed.elapsed());
    let released = hold.release().await?;
    tenure.close().await;
    check(holds && released == Released::InTime, "the next one is to have it")
}

/// The work of the process that is killed.
pub(crate) async fn hold_for_ever() -> Result<(), Failure> {
    let tenure = connect().await?;
    let _hold = tenure.mutex("table:5").ttl(SHORT_TTL).meta("request", "crash").acquire().await?;
    std::future::pending().await
}

/// Dan's hold is not renewed and ends while he works, and Cleo gets the lock. When Dan comes back, he can
/// neither release her lock nor write his row.
pub(crate) async fn stolen() -> Result<(), Failure> {
    let shop = Shop::open(connect().await?, None)?;
    let order = Order::new(7, "19:00", "Dan");
    let lock = |who: &str| shop.tenure.mutex(order.name()).meta("request", who);
    let dan = lock("dan").ttl(Duration::from_millis(500)).renew(false).acquire().await?;
    let reason = dan.lost().await;
    info!("Dan works on without knowing that {reason}");
    let cleo = lock("cleo").wait(BOUND).acquire().await?;
    let first = shop.write(cleo.name(), cleo.fence(), &Order::new(7, "19:00", "Cleo"), "cleo")?;

    let late = shop.write(dan.name(), dan.fence(), &order, "dan")?;
    let released = dan.release().await?;
    let still_hers = cleo.is_live() && lock("eve").try_acquire().await?.is_none();
    let in_time = cleo.release().await?;
    info!("Cleo: {first:?}, {in_time:?}; Dan: {late:?}, {released:?}");
    shop.tenure.close().await;
    let kept = matches!((first, late), (Booked::Yes, Booked::TooLate))
        && (released, in_time) == (Released::Late, Released::InTime)
        && still_hers;
    check(kept, "the second hold is to be untouched by the first")
}

fn check(kept: bool, promise: &str) -> Result<(), Failure> {
    if kept { Ok(()) } else { Err(format!("not kept: {promise}").into()) }
}
