//! The clocks of a run: one that all processes of this host share, and CPU time.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`, which is the same in every process.
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Nanoseconds of CPU time that all threads of this process have used.
pub fn cpu() -> u64 {
    read(ClockId::ProcessCPUTime)
}

/// The time until a moment.
pub fn until(moment: u64) -> Duration {
    Duration::from_nanos(moment.saturating_sub(now()))
}

/// The moment this much later than now.
pub fn after(time: Duration) -> u64 {
    now().saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

fn read(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    // Neither clock is ever negative.
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}
