//! Fuzzes the relay's parsers of untrusted input.

use std::process::{Command, Stdio};
use std::time::Duration;

use crate::failure::Failure;
use crate::workspace;

/// The targets in `fuzz/fuzz_targets`.
const TARGETS: [&str; 3] = ["envelope", "reply", "transaction"];
/// How long each target runs; it tries some hundred thousand inputs per second.
const EACH: Duration = Duration::from_secs(60);

/// Runs each target for a while, if cargo-fuzz is installed.
pub(crate) fn run() -> Result<(), Failure> {
    if !is_installed() {
        println!("no fuzzing, for want of cargo-fuzz: `cargo install cargo-fuzz --locked`");
        return Ok(());
    }
    TARGETS.into_iter().try_for_each(target)
}

fn is_installed() -> bool {
    let mut asked = workspace::cargo(["fuzz", "--version"]);
    asked.stdout(Stdio::null()).stderr(Stdio::null());
    asked.status().is_ok_and(|status| status.success())
}

fn target(name: &str) -> Result<(), Failure> {
    println!("bytes for {name}");
    // Interesting inputs are kept there for the next run.
    let corpus = workspace::root().join("fuzz").join("corpus").join(name);
    std::fs::create_dir_all(&corpus)
        .map_err(|error| Failure::new(format!("cannot make {}: {error}", corpus.display())))?;
    workspace::run(&mut command(name)).map_err(|failure| {
        failure.next(format!(
            "the output above names the file with the bytes; `RUSTC_BOOTSTRAP=1 cargo fuzz run -s \
             none {name} <file>` tries them again"
        ))
    })
}

fn command(name: &str) -> Command {
    let (corpus, seeds) = (format!("fuzz/corpus/{name}"), format!("fuzz/seeds/{name}"));
    let seconds = format!("-max_total_time={}", EACH.as_secs());
    let mut command = workspace::cargo(["fuzz", "run", "-s", "none", name, &corpus, &seeds]);
    // The coverage flags are for nightly only, unless a stable compiler is told to accept them. There is no
    // `unsafe` here for a sanitizer to check.
    command.args(["--", &seconds]).env("RUSTC_BOOTSTRAP", "1");
    command
}
