//! Every engine against the suite. A program of its own, and one engine at a time: the suite plays all its cases at
//! once, by real time, and keeps a machine busy.
#![allow(clippy::unwrap_used, reason = "clippy does not see that the helpers of tests are tests")]

mod file;
mod file_processes;
mod memory;
mod postgres;
mod redis;

/// Held while a test runs the suite, so that only one does at a time.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
