//! Long runs: processes on real servers under more faults than a change needs, fuzzing, and the simulation with
//! many more seeds.
//!
//! In a timed run, the simulation and the processes take turns until the time is over. The first seed comes
//! from the clock, so every run tries new ones. The tests print a seed that fails; in the simulation it replays
//! the failure.

mod fuzz;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::failure::Failure;
use crate::workspace;

/// The tests that run processes against faults on real servers.
const PROCESS_TESTS: [&str; 2] = ["server_torture", "file_torture"];
/// What the processes must reach on each of their servers: served requests, and faults.
const PROCESSES: [(&str, &str); 2] = [("TENURE_ACQUISITIONS", "100000"), ("TENURE_FAULTS", "200")];
/// The number of leaders that are killed on each engine; some of them may have only just started.
const KILLS: (&str, &str) = ("TENURE_KILLS", "1100");
/// How many times all processes of a command must have ended before the next holder starts.
const ROUNDS: (&str, &str) = ("TENURE_ROUNDS", "100");
/// The number of transactions for the exact guard, with holders that are stopped.
const TRANSACTIONS: (&str, &str) = ("TENURE_TRANSACTIONS", "100000");
/// The number of seeds in a run without `--minutes`.
const SEEDS: u64 = 1_000_000;
/// The number of seeds in the first round, when the time per seed is unknown.
const FIRST_ROUND: u64 = 1_000;
/// The approximate length of a round in a timed run: starting one costs less than a second.
const ROUND: Duration = Duration::from_secs(30);

/// The time limit and the first seed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Torture {
    /// New rounds begin until this time; `None` tries a fixed number of seeds.
    pub(crate) at_least: Option<Duration>,
    /// The first seed; `None` takes it from the clock.
    pub(crate) first_seed: Option<u64>,
}

/// Runs the processes, and then the simulation until all seeds are tried; in a timed run, both in turn until
/// the time is over. Ends at the first failure.
pub(crate) fn run(torture: Torture) -> Result<(), Failure> {
    let mut seed = torture.first_seed.unwrap_or_else(seed_from_clock);
    let began = Instant::now();
    processes(seed)?;
    // How long the last run of the processes took.
    let mut took = began.elapsed() / PROCESS_TESTS.len() as u32;
    leaders()?;
    commands()?;
    fences()?;
    fuzz::run()?;
    let Some(at_least) = torture.at_least else { return round(seed, SEEDS) };
    let mut count = FIRST_ROUND;
    let mut tests = PROCESS_TESTS.into_iter().cycle();
    while began.elapsed() < at_least {
        // The simulation gets as much time as the processes before it, because both find different bugs.
        let until = (began.elapsed() + took).min(at_least);
        while began.elapsed() < until {
            let round_began = Instant::now();
            round(seed, count)?;
            seed = seed.wrapping_add(count);
            count = next_count(count, round_began.elapsed());
        }
        if let Some(test) = tests.next().filter(|_| began.elapsed() < at_least) {
            let processes_began = Instant::now();
            processes_of(test, seed)?;
            took = processes_began.elapsed();
        }
    }
    println!("no seed failed in {:.1} min", began.elapsed().as_secs_f64() / 60.0);
    Ok(())
}

fn processes(seed: u64) -> Result<(), Failure> {
    PROCESS_TESTS.into_iter().try_for_each(|test| processes_of(test, seed))
}

fn processes_of(test: &str, seed: u64) -> Result<(), Failure> {
    println!("processes of {test} from seed {seed}");
    let args = ["test", "--release", "--locked", "-p", "tenure-testkit", "--test", test];
    let mut processes = workspace::cargo(args);
    // The report of a long run is what it met, so it is printed.
    processes.args(["--", "--nocapture"]).env("TENURE_SEED", seed.to_string()).envs(PROCESSES);
    workspace::run(&mut processes).map_err(|failure| {
        failure.next(format!(
            "the output above says where the journals are; `TENURE_SEED={seed} cargo {}` deals the \
             same faults again",
            args.join(" ")
        ))
    })
}

fn leaders() -> Result<(), Failure> {
    println!("leaders, killed");
    let args = ["test", "--release", "--locked", "-p", "tenure-testkit", "--test", "engines"];
    let mut leaders = workspace::cargo(args);
    workspace::run(leaders.args(["leaders::", "--", "--nocapture"]).env(KILLS.0, KILLS.1))
}

fn commands() -> Result<(), Failure> {
    println!("commands under `tenure run`, killed and lost");
    let args = [
        "test",
        "--release",
        "--locked",
        "-p",
        "tenure-cli",
        "--all-features",
        "--test",
        "command",
    ];
    let mut commands = workspace::cargo(args);
    workspace::run(commands.arg("run::").env(ROUNDS.0, ROUNDS.1))
}

fn fences() -> Result<(), Failure> {
    println!("transactions of holders that are stopped");
    let args = ["test", "--release", "--locked", "-p", "tenure-testkit", "--test", "engines"];
    let mut fences = workspace::cargo(args);
    let only = ["fences::stopping::", "--", "--nocapture", "--test-threads=1"];
    workspace::run(fences.args(only).env(TRANSACTIONS.0, TRANSACTIONS.1))
}

fn round(first: u64, count: u64) -> Result<(), Failure> {
    println!("{count} seeds from {first}");
    let args = ["test", "--release", "--locked", "-p", "tenure-testkit", "--test", "simulation"];
    let mut simulation = workspace::cargo(args);
    simulation.env("TENURE_FIRST_SEED", first.to_string()).env("TENURE_SEEDS", count.to_string());
    workspace::run(&mut simulation).map_err(|failure| {
        failure.next(format!(
            "the seed is in the output above; `TENURE_FIRST_SEED=<seed> TENURE_SEEDS=1 cargo {}` \
             replays it",
            args.join(" ")
        ))
    })
}

/// The number of seeds for about one [`ROUND`], and at most four times as many as before: the first round
/// includes building the test, and a short one is no good measure.
fn next_count(count: u64, took: Duration) -> u64 {
    let fits = count as f64 * ROUND.as_secs_f64() / took.as_secs_f64().max(0.001);
    (fits as u64).clamp(FIRST_ROUND, count.saturating_mul(4).min(SEEDS))
}

fn seed_from_clock() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Seeds in microseconds differ between runs, and are short enough to copy by hand.
    since.as_micros() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_grow_towards_their_length_and_shrink_back() {
        assert_eq!(next_count(1_000, Duration::from_secs(1)), 4_000);
        assert_eq!(next_count(1_000, Duration::from_secs(20)), 1_500);
        assert_eq!(next_count(60_000, Duration::from_secs(60)), 30_000);
        assert_eq!(next_count(1_000, Duration::from_secs(3_600)), FIRST_ROUND);
        assert_eq!(next_count(1_000, Duration::ZERO), 4_000);
        assert_eq!(next_count(SEEDS, Duration::ZERO), SEEDS);
    }
}
