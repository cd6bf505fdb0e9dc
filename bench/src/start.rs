//! The cost of starting: `tenure run x -- true` on a file compared with `true` alone, in turn.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::folder::Folder;

const ROUNDS: usize = 50;

/// Needs a previous `cargo build --release -p tenure-cli`.
pub(crate) fn run() {
    let own = std::env::current_exe().expect("a path");
    let tenure = own.with_file_name("tenure");
    assert!(tenure.exists(), "run `cargo build --release -p tenure-cli` first");
    let folder = Folder::new().expect("a folder");
    let url = format!("file:{}/locks.db", folder.path().display());
    let tenure = tenure.to_str().expect("UTF-8");
    let kinds: [(&str, &[&str]); 4] = [
        ("true", &["true"]),
        ("tenure --version", &[tenure, "--version"]),
        ("tenure ls", &[tenure, "ls"]),
        ("tenure run x -- true", &[tenure, "run", "x", "--", "true"]),
    ];
    let mut times = kinds.map(|_| Vec::with_capacity(ROUNDS));
    for _ in 0..ROUNDS {
        for ((_, words), times) in kinds.iter().zip(&mut times) {
            times.push(took(words, &url));
        }
    }
    for ((name, _), times) in kinds.iter().zip(&mut times) {
        times.sort_unstable();
        let (median, fastest) = (times[ROUNDS / 2], times[0]);
        println!("{name:<22} median {median:>8.2?}  fastest {fastest:>8.2?}");
    }
}

fn took(words: &[&str], url: &str) -> Duration {
    let began = Instant::now();
    let mut command = Command::new(words[0]);
    command.args(&words[1..]).env("TENURE_URL", url).stdout(Stdio::null());
    assert!(command.status().expect("it starts").success(), "{words:?}");
    began.elapsed()
}
