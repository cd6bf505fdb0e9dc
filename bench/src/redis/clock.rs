//! The clocks and the CPU that all processes of a run share.

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};

use super::failure::Failure;

pub(crate) use tenure_measure::clock::{cpu, now, until};

/// Pins a process to one CPU: this process, which must not have other threads yet, or the one with the given
/// id.
pub(crate) fn pin(process: Option<i32>, cpu: usize) -> Result<(), Failure> {
    let mut cpus = CpuSet::new();
    cpus.set(cpu);
    Ok(sched_setaffinity(process.and_then(Pid::from_raw), &cpus)?)
}
