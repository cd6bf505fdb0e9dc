//! The clocks and the CPU that all processes of a run share.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

use super::failure::Failure;

/// Nanoseconds of `CLOCK_MONOTONIC`, which is the same in every process.
pub(crate) fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds that this process has spent on a CPU.
pub(crate) fn cpu() -> u64 {
    read(ClockId::ProcessCPUTime)
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// How long it is until a moment.
pub(crate) fn until(moment: u64) -> Duration {
    Duration::from_nanos(moment.saturating_sub(now()))
}

/// Keeps a process on one CPU: this one, which must have no other thread yet, or the one with that id.
pub(crate) fn pin(process: Option<i32>, cpu: usize) -> Result<(), Failure> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(process.and_then(Pid::from_raw), &cpus)?)
}
