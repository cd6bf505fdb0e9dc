//! Runs the test programs, several at a time.
//!
//! Most tests wait for servers and processes most of the time: a single program leaves half of the machine
//! idle.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::failure::Failure;
use crate::workspace;

/// The arguments of every call of cargo, so that nothing is built again.
const BUILD: [&str; 4] = ["test", "--workspace", "--all-features", "--locked"];
/// This program runs hundreds of cases at once, in real time: it needs the machine for itself, and runs first.
const ALONE: &str = "conformance";
/// The programs that take longest. They start first, so that none of them is the last one running.
const LONGEST: [&str; 5] = ["engines", "command", "outage", "server_torture", "relay"];
/// The time limit of a program: several times what the longest takes. A program that hangs is ended, and its
/// running tests are shown.
const LIMIT: Duration = Duration::from_secs(1_200);
/// How much output of a failed program is shown. The caller may read nothing before this process has ended, and
/// a pipe holds 64 KiB.
const LONGEST_REPORT: usize = 16_384;
/// How many programs run at a time.
const PROGRAMS: usize = 2;

/// One call of cargo: its name, and its arguments.
struct Job {
    name: String,
    args: Vec<String>,
}

/// Builds all test programs and the commands that they run.
pub(super) fn build() -> Result<(), Failure> {
    workspace::run(workspace::cargo(BUILD).arg("--no-run"))
}

/// Builds all test programs and runs them, with these variables set.
pub(super) fn run(with: &[(&str, &str)]) -> Result<(), Failure> {
    build()?;
    let logs = workspace::scratch().join("test-output");
    fs::create_dir_all(&logs)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", logs.display())))?;
    let is_manifest = |path: &str| path.ends_with("/Cargo.toml");
    let manifests = workspace::sources(&workspace::root(), is_manifest)?;
    let jobs = jobs(manifests.iter().map(|manifest| manifest.text.as_str()));
    let failed = Mutex::new(Vec::new());
    let run = |job: Job| {
        if let Err(failure) = job.run(&logs, with) {
            lock(&failed).push(failure.to_string());
        }
    };
    let (alone, others): (VecDeque<_>, VecDeque<_>) =
        jobs.into_iter().partition(|job| job.name == ALONE);
    alone.into_iter().for_each(&run);
    let others = Mutex::new(others);
    thread::scope(|scope| {
        for _ in 0..PROGRAMS {
            scope.spawn(|| {
                // Not in the loop header, where the lock would be held during the body.
                let next = || lock(&others).pop_front();
                while let Some(job) = next() {
                    run(job);
                }
            });
        }
    });
    let failed = lock(&failed);
    match failed.is_empty() {
        true => Ok(()),
        false => Err(Failure::new(failed.join("\n"))),
    }
}

/// The test programs that the manifests name, the unit tests, and the examples in the docs.
fn jobs<'a>(manifests: impl Iterator<Item = &'a str>) -> VecDeque<Job> {
    let named = manifests.flat_map(|manifest| manifest.split("[[test]]\nname = \"").skip(1));
    let mut programs: Vec<_> = named.filter_map(|rest| rest.split('"').next()).collect();
    programs.sort_by_key(|name| {
        let rank = LONGEST.iter().position(|longest| longest == name);
        (*name != ALONE, rank.unwrap_or(LONGEST.len()), *name)
    });
    // One call runs all programs with the same name.
    programs.dedup();
    let job = |name: &str, args: &[&str]| Job {
        name: name.to_owned(),
        args: args.iter().map(ToString::to_string).collect(),
    };
    let mut jobs: VecDeque<_> = programs.iter().map(|name| job(name, &["--test", name])).collect();
    jobs.push_back(job("unit tests", &["--lib", "--bins", "--examples"]));
    jobs.push_back(job("examples in the docs", &["--doc"]));
    jobs
}

impl Job {
    /// Runs the call to its end. The output goes to a file; failures are shown.
    fn run(&self, logs: &Path, with: &[(&str, &str)]) -> Result<(), Failure> {
        let began = Instant::now();
        let log = logs.join(format!("{}.log", self.name));
        let cannot = |error| Failure::new(format!("cannot write {}: {error}", log.display()));
        let output = File::create(&log).map_err(cannot)?;
        let mut cargo = workspace::cargo(BUILD);
        cargo.arg("--no-fail-fast").args(&self.args).envs(with.iter().copied());
        cargo.env("RUST_TEST_THREADS", threads().to_string()).env("CARGO_TERM_QUIET", "false");
        let mut limited = workspace::limited(&cargo, LIMIT);
        limited.stdout(output.try_clone().map_err(cannot)?).stderr(output);
        let status = limited.status();
        let status =
            status.map_err(|error| workspace::cannot_run(&workspace::show(&limited), &error))?;
        let printed = String::from_utf8_lossy(&fs::read(&log).map_err(cannot)?).into_owned();
        let seconds = began.elapsed().as_secs_f64();
        if status.success() {
            println!("      {}: {} passed in {seconds:.1} s", self.name, passed(&printed));
            return Ok(());
        }
        println!("{}\n      all of it: {}", what_failed(&printed), log.display());
        if status.code().is_some_and(|code| workspace::TIMED_OUT.contains(&code)) {
            let hanging = hanging(&printed).join(", ");
            let why =
                format!("{} did not end within {seconds:.0} s; running: {hanging}", self.name);
            return Err(Failure::new(why));
        }
        Err(Failure::new(format!("`{}` ended with {status}", workspace::show(&cargo))))
    }
}

/// The number of tests that passed in all programs of one call of cargo.
fn passed(printed: &str) -> u64 {
    let results = printed.lines().filter_map(|line| line.strip_prefix("test result: ok. "));
    results.filter_map(|rest| rest.split(' ').next()?.parse::<u64>().ok()).sum()
}

/// What a program printed about failed tests, or the end of its output.
fn what_failed(printed: &str) -> &str {
    let from = printed.find("\nfailures:\n").unwrap_or_default();
    let from = from.max(printed.len().saturating_sub(LONGEST_REPORT));
    let from = (from..printed.len()).find(|at| printed.is_char_boundary(*at));
    from.map_or("", |from| &printed[from..])
}

/// The tests that had been running for a long time and had not ended when this was printed.
fn hanging(printed: &str) -> Vec<&str> {
    let names = |sign: &'static str| {
        let lines =
            printed.lines().filter_map(move |line| line.strip_prefix("test ")?.split_once(sign));
        lines.map(|(name, _)| name)
    };
    let ended: Vec<_> = names(" ... ").collect();
    names(" has been running").filter(|name| !ended.contains(name)).collect()
}

/// How many tests of a program run concurrently.
fn threads() -> usize {
    2 * thread::available_parallelism().map_or(1, usize::from)
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_program_is_run_once_and_the_longest_first() {
        let manifests = [
            "[package]\nname = \"a\"\n\n[[test]]\nname = \"api\"\n\n[[test]]\nname = \"engines\"\n",
            "[package]\nname = \"b\"\n\n[[test]]\nname = \"conformance\"\n\n[[test]]\nname = \"api\"\n",
        ];
        let jobs = jobs(manifests.into_iter());
        let names: Vec<_> = jobs.iter().map(|job| job.name.as_str()).collect();
        assert_eq!(names, [ALONE, "engines", "api", "unit tests", "examples in the docs"]);
    }

    #[test]
    fn what_hangs_is_found_in_what_was_printed() {
        let printed = "test a::b ... ok\ntest c has been running for over 60 seconds\n\
            test d has been running for over 60 seconds\ntest c ... FAILED\n";
        assert_eq!(hanging(printed), ["d"]);
    }

    #[test]
    fn a_report_says_how_many_passed_or_what_failed() {
        let printed = "test a ... ok\ntest result: ok. 1 passed; 0 failed\n\
            test b ... FAILED\n\nfailures:\n\n---- b ----\ntest result: FAILED. 2 passed; 1 failed\n\
            test result: ok. 40 passed; 0 failed\n";
        assert_eq!(passed(printed), 41);
        assert!(what_failed(printed).starts_with("\nfailures:\n\n---- b"));
        let long = "ü".repeat(LONGEST_REPORT);
        assert_eq!(what_failed(&long).len(), LONGEST_REPORT);
        assert_eq!(what_failed("short"), "short");
    }
}
