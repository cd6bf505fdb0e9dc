//! Compares the servers' clocks with ours and with each other.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::engine::Finding;
use crate::engines::redis::config::Address;
use crate::engines::redis::connection::handshake::{SerialConnection, field};
use crate::engines::redis::connection::server_clock::read_time;
use crate::model::error::Result;

/// How far a server's clock may be from ours before it is reported, in microseconds.
const FROM_OURS: u64 = 500_000;
/// The same for two servers that may take over from each other.
const FROM_EACH_OTHER: u64 = 20_000;
/// How often the clock is read; the quickest answer counts.
const TRIES: usize = 5;

/// How far a clock is ahead of this machine's and the possible error, in microseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ahead {
    by: i64,
    error: u64,
}

/// Reads the server's clock; `None` if it cannot be read.
pub(super) async fn read(talk: &mut SerialConnection<'_>) -> Result<Option<Ahead>> {
    let mut best: Option<Ahead> = None;
    for _ in 0..TRIES {
        let asked = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let began = Instant::now();
        let Some(theirs) = time(talk).await? else { break };
        let took = began.elapsed();
        let ours = asked + took / 2;
        let by = theirs.as_micros() as i64 - ours.as_micros() as i64;
        let error = took.as_micros() as u64 / 2;
        if best.is_none_or(|best| error < best.error) {
            best = Some(Ahead { by, error });
        }
    }
    Ok(best)
}

async fn time(talk: &mut SerialConnection<'_>) -> Result<Option<Duration>> {
    let time = talk.reply(&[b"TIME"]).await?;
    if let Some(time) = read_time(&time) {
        return Ok(Some(time));
    }
    // Sentinels do not have that command.
    let info = talk.reply(&[b"INFO", b"server"]).await?;
    let micros = info.as_str().and_then(|info| field(info, "server_time_usec").parse().ok());
    Ok(micros.map(Duration::from_micros))
}

/// Compares a server's clock with ours.
pub(super) fn from_ours(Ahead { by, .. }: Ahead) -> Finding {
    let sign = if by < 0 { '-' } else { '+' };
    let what = match by.unsigned_abs() / 1000 {
        0 => "as this machine's".to_owned(),
        millis @ 1..10_000 => format!("{sign}{millis} ms from this machine's"),
        millis => format!("{sign}{} s from this machine's", millis / 1000),
    };
    if by.unsigned_abs() <= FROM_OURS {
        return Finding::good("clock", what);
    }
    Finding::warning("clock", what)
        .why("holds end by the server's clock: if it is corrected in one step, they end early or late")
        .fix("synchronise both clocks, by slewing")
}

/// Finds the two clocks of servers and sentinels that are furthest apart.
pub(super) fn from_each_other(clocks: &[(Address, Ahead)]) -> Option<Finding> {
    let (behind, least) = clocks.iter().min_by_key(|(_, ahead)| ahead.by)?;
    let (before, most) = clocks.iter().max_by_key(|(_, ahead)| ahead.by)?;
    if clocks.len() < 2 {
        return None;
    }
    let apart = most.by.abs_diff(least.by);
    let error = most.error + least.error;
    if apart < FROM_EACH_OTHER + error {
        let within = (apart + error).div_ceil(1000);
        let what = format!("servers and sentinels are within {within} ms of each other");
        return Some(Finding::good("clock", what));
    }
    let apart = apart / 1000;
    let what = format!("{before} is {apart} ms ahead of {behind}");
    let finding = Finding::warning("clock", what)
        .why("a failover between them moves the clock by that much, and holds end early or late by as much")
        .fix("synchronise all clocks, by slewing");
    Some(finding)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Mark;

    #[test]
    fn clocks_are_apart_if_no_slow_answer_explains_it() {
        let at = |port, by, error| (Address::Tcp { host: "h".into(), port }, Ahead { by, error });
        assert!(from_each_other(&[]).is_none());
        assert!(from_each_other(&[at(1, 90_000, 0)]).is_none());
        let close = from_each_other(&[at(1, -9_000, 500), at(2, 10_000, 400)]).unwrap();
        assert!(close.mark == Mark::Good && close.what.contains("within 20 ms"), "{close:?}");
        let slow = from_each_other(&[at(1, 0, 500), at(2, 25_000, 9_000)]).unwrap();
        assert_eq!(slow.mark, Mark::Good);
        let far = from_each_other(&[at(1, 0, 500), at(2, 25_000, 400), at(3, 9, 1)]).unwrap();
        assert_eq!(far.mark, Mark::Warning);
        assert_eq!(far.what, "h:2 is 25 ms ahead of h:1");
    }
}
