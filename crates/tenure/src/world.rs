//! What the core needs from outside: a clock, randomness and a thread for the watchdog.
//!
//! Production uses [`SystemWorld`]. The simulation has its own, so the same code runs on virtual time.

use std::cell::RefCell;
use std::fmt::Debug;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use chacha20::ChaCha12Rng;
use chacha20::rand_core::{Rng, SeedableRng};
use rustix::time::{
    ClockId, Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, clock_gettime,
    timerfd_create, timerfd_settime,
};
use tokio::io::unix::AsyncFd;
use tokio::runtime::Runtime;

use crate::model::claim::ClaimId;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::system;

/// The clock, the randomness and the threads that the core uses.
pub trait World: Debug + Send + Sync + 'static {
    /// The current time, on a clock that continues while the machine sleeps.
    fn now(&self) -> Moment;

    /// A claim id that nobody can guess and no other process will ever make.
    fn mint(&self) -> Result<ClaimId>;

    /// Runs the watchdog's job until it ends, on a thread that the caller's code cannot block.
    fn start(&self, job: Job) -> io::Result<()>;
}

/// The watchdog's work. It is given its alarm, and ends when there is nothing left to watch.
pub type Job =
    Box<dyn FnOnce(Box<dyn Alarm>) -> Pin<Box<dyn Future<Output = ()> + Send>> + Send + 'static>;

/// Rings once when a given moment has come.
pub trait Alarm: Send {
    /// Sets the moment and replaces the earlier one. [`Moment::FAR`] means never.
    fn set(&mut self, at: Moment);

    /// Ready once the moment has come.
    fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<()>;
}

/// The real world: `CLOCK_BOOTTIME`, the operating system's random numbers, a thread for the watchdog.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemWorld;

impl World for SystemWorld {
    fn now(&self) -> Moment {
        let Timespec { tv_sec, tv_nsec } = clock_gettime(ClockId::Boottime);
        Moment::from_nanos(tv_sec as u64 * 1_000_000_000 + tv_nsec as u64)
    }

    fn mint(&self) -> Result<ClaimId> {
        RANDOM.with_borrow_mut(Random::mint)
    }

    fn start(&self, job: Job) -> io::Result<()> {
        // Built here, so the caller gets the error if the process has no descriptors left. Timers are for the
        // engine's own time-outs; the alarm does not use them.
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let runtime = Own(Some(runtime));
        let alarm = {
            let _inside = runtime.0.as_ref().map(Runtime::enter);
            BoottimeAlarm::new()?
        };
        let thread = std::thread::Builder::new().name("tenure-watchdog".into());
        let work = move || {
            system::is_own_thread_from_now_on();
            if let Some(runtime) = &runtime.0 {
                runtime.block_on(job(Box::new(alarm)));
            }
        };
        thread.spawn(work).map(drop)
    }
}

/// A runtime that may be dropped within another runtime, which happens when its thread or descriptor cannot be
/// made. There, tokio panics unless the runtime is shut down in the background.
struct Own(Option<Runtime>);

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Makes ids with ChaCha12 and a key from the operating system. Asking the system for each id, or for a page of
/// them, would cost more than a claim in memory.
struct Random {
    generator: ChaCha12Rng,
    left: u32,
    generation: u64,
}

/// How many ids are made with one key, so that a leaked key reveals little.
const IDS_PER_KEY: u32 = 4096;

thread_local! {
    static RANDOM: RefCell<Option<Random>> = const { RefCell::new(None) };
}

impl Random {
    fn mint(slot: &mut Option<Random>) -> Result<ClaimId> {
        // A forked child has a copy of the parent's key, and would make the parent's next ids.
        let generation = system::generation();
        let usable = |random: &&mut Random| random.left > 0 && random.generation == generation;
        let random = match slot.as_mut().filter(usable) {
            Some(random) => random,
            None => slot.insert(Random::new(generation)?),
        };
        random.left -= 1;
        let (low, high) = (random.generator.next_u64(), random.generator.next_u64());
        let bits = u128::from(high) << 64 | u128::from(low);
        Ok(ClaimId::from_bytes(bits.to_le_bytes()))
    }

    fn new(generation: u64) -> Result<Random> {
        let mut key = [0; 32];
        getrandom::fill(&mut key).map_err(|error| {
            let reason = format!("the operating system has no random bytes: {error}");
            Error::new(ErrorKind::Internal, reason)
        })?;
        Ok(Random { generator: ChaCha12Rng::from_seed(key), left: IDS_PER_KEY, generation })
    }
}

/// A timer on `CLOCK_BOOTTIME`. Tokio's timers stop while the machine sleeps, but a hold must be lost on time
/// when it wakes up.
struct BoottimeAlarm {
    timer: AsyncFd<std::os::fd::OwnedFd>,
    set_for: Moment,
}

impl BoottimeAlarm {
    fn new() -> io::Result<BoottimeAlarm> {
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = system::register(timerfd_create(TimerfdClockId::Boottime, flags)?)?;
        Ok(BoottimeAlarm { timer, set_for: Moment::FAR })
    }
}

impl Alarm for BoottimeAlarm {
    fn set(&mut self, at: Moment) {
        if at == self.set_for {
            return;
        }
        self.set_for = at;
        // Zero disarms the timer, so a moment that has passed is set to one nanosecond after the origin.
        let nanos = if at == Moment::FAR { 0 } else { at.as_nanos().max(1) };
        let it_value = Timespec {
            tv_sec: (nanos / 1_000_000_000) as i64,
            tv_nsec: (nanos % 1_000_000_000) as i64,
        };
        let once = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Itimerspec { it_interval: once, it_value };
        // It can only fail for a bad descriptor or value, and both are ours.
        let set = timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::ABSTIME, &value);
        debug_assert!(set.is_ok(), "timerfd_settime: {set:?}");
    }

    fn poll_rung(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let Ok(mut guard) = ready!(self.timer.poll_read_ready(cx)) else {
                return Poll::Pending;
            };
            let mut count = [0; 8];
            if rustix::io::read(guard.get_inner(), &mut count).is_ok() {
                self.set_for = Moment::FAR;
                return Poll::Ready(());
            }
            guard.clear_ready();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn ids_differ() {
        let ids: std::collections::HashSet<_> =
            (0..10_000).map(|_| SystemWorld.mint().unwrap()).collect();
        assert_eq!(ids.len(), 10_000);
    }

    #[test]
    fn the_alarm_rings_when_its_moment_has_come_and_can_be_set_again() {
        let (tell, heard) = mpsc::channel();
        let start = SystemWorld.now();
        let first = start + Duration::from_millis(20);
        let job: Job = Box::new(move |mut alarm| {
            Box::pin(async move {
                for at in [Moment::ORIGIN, first, first, Moment::ORIGIN] {
                    alarm.set(at);
                    std::future::poll_fn(|cx| alarm.poll_rung(cx)).await;
                    tell.send(SystemWorld.now()).unwrap();
                }
            })
        });
        SystemWorld.start(job).unwrap();
        let rung: Vec<_> = heard.iter().collect();
        assert_eq!(rung.len(), 4);
        assert!(rung[1] >= first);
    }
}
