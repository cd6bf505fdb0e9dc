//! The clock of `run`, which continues while the machine sleeps.

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;

use crate::system;

/// The time since boot. All processes of a machine agree on it.
pub(super) fn now() -> Duration {
    let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
    Duration::new(tv_sec.unsigned_abs(), tv_nsec.unsigned_abs() as u32)
}

/// Rings at a given time. The runtime's timers stop while the machine sleeps, and a command must not run on for
/// as long as it slept.
pub(super) struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// An alarm that is not set.
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Boottime, flags)?;
        Ok(Alarm { timer: system::register(timer)? })
    }

    /// Sets it for a time, or for never.
    pub(super) fn set(&self, at: Option<Duration>) -> io::Result<()> {
        // Zero means never, so a time in the past becomes the first nanosecond.
        let at = at.map_or(Duration::ZERO, |at| at.max(Duration::from_nanos(1)));
        let it_value = Timespec {
            tv_sec: i64::try_from(at.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: at.subsec_nanos().into(),
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval: once, it_value };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &value)?;
        Ok(())
    }

    /// Waits until it rings.
    pub(super) async fn rung(&self) -> io::Result<()> {
        loop {
            let mut ready = self.timer.readable().await?;
            match rustix::io::read(self.timer.get_ref(), &mut [0; 8]) {
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                read => return read.map(drop).map_err(Into::into),
            }
        }
    }
}
