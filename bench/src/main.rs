//! tenure compared with its baselines, in one run.
//!
//! `cargo run --release -p bench` measures the memory engine, `cargo run --release -p bench -- redis` the Redis
//! engine; `-- help` lists the rest.
#![allow(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![allow(clippy::expect_used, reason = "a benchmark that fails has no figures")]

mod folder;
mod http;
mod memory;
mod postgres;
mod redis;
mod relay;
mod start;

const HELP: &str = "\
cargo run --release -p bench                  the memory engine
cargo run --release -p bench -- start         what `tenure run` costs beside the command itself
cargo run --release -p bench -- http          the lock server beside a bare echo
cargo run --release -p bench -- relay         the relay beside the way to the node without it
cargo run --release -p bench -- file [w3|holds] [OPTION...]   the file engine
cargo run --release -p bench -- postgres [18] [PART...]  the Postgres engine beside what is written by hand:
                                              pairs, idle, turns, lines, life; a number is how many
                                              rounds (5); alone: pairs of tenure only
cargo run --release -p bench -- redis [WORKLOAD...] [OPTION...]

  w1    one task, a fresh name each time           w4    200 waiters on a held name
  w2    64 tasks, each its own name                w4b   10 and 10,000 waiters on one name
  w3    64 tasks on one name, 1 and 4 processes    w5    a holder is killed
  w3h   8 tasks on one name, hold and think 2 ms   w5b   100 killed waiters ahead of a live one
  room  10,000 names held                          holds very many names held for a minute
  without a workload: all of them

  --rounds N      rounds, every kind once in each (5)
  --seconds S     length of one trial (1)
  --kinds A,B     only these: raw, redis-rs-script, rslock, tenure-awaited, tenure-dropped
  --names A,B     how many names are held (holds: 200000,400000,1000000; file: 10000,100000)
  --free          leaves the scheduler free; else server and clients of W1 to W5 share one CPU";

fn main() {
    let given: Vec<String> = std::env::args().skip(1).collect();
    match given.first().map(String::as_str) {
        None | Some("memory") => memory::run(),
        Some(engine @ ("redis" | "file")) => match redis::Options::read(engine, &given[1..]) {
            Ok(options) => redis::run(&options),
            Err(wrong) => println!("{wrong}\n\n{HELP}"),
        },
        Some("relay") => relay::run(),
        Some("postgres") => postgres::run(&given[1..]),
        Some("http") => http::run(),
        Some("start") => start::run(),
        Some(redis::CHILD) => redis::child(&given[1..]),
        Some(_) => println!("{HELP}"),
    }
}
