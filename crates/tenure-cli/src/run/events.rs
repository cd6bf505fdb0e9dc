//! The events of a supervisor, while it waits or supervises.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as PlainStream;

use rustix::process::Pid;
use tokio::io::unix::AsyncFd;
use tokio::net::UnixStream;

use super::channel::Message;
use super::clock::Alarm;
use super::signals;
use crate::system::{self, Inherited};

/// An event.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Event {
    /// The user, or someone else, sent this signal.
    Signal(i32),
    /// A child process has exited, was stopped or continued.
    Child,
    /// The foreground was killed.
    ForegroundGone,
    /// The alarm rings.
    Alarm,
}

/// Where the events come from.
pub(super) struct Events {
    /// The foreground's process.
    pub(super) foreground: Pid,
    /// Rings at the time that it is set for.
    pub(super) alarm: Alarm,
    signals: AsyncFd<OwnedFd>,
    came: VecDeque<i32>,
    link: UnixStream,
    /// Makes the guard look at the shared state.
    wake_guard: OwnedFd,
    foreground_gone: bool,
}

impl Events {
    /// Must be called in the supervisor, within its runtime. If it fails, the socket can still be used to report
    /// that.
    pub(super) fn new(
        foreground: Pid,
        link: PlainStream,
        wake_guard: OwnedFd,
        inherited: Inherited,
    ) -> Result<Events, (io::Error, PlainStream)> {
        let registered = || {
            let link = UnixStream::from_std(link.try_clone()?)?;
            Ok((Alarm::new()?, system::register(inherited.taken()?)?, link))
        };
        match registered() {
            Ok((alarm, signals, link)) => {
                let (came, foreground_gone) = (VecDeque::new(), false);
                Ok(Events { foreground, alarm, signals, came, link, wake_guard, foreground_gone })
            }
            Err(error) => Err((error, link)),
        }
    }

    /// Sends a message to the foreground, and wakes the guard if it must look, if they still exist. It bypasses
    /// the runtime, which would first have to poll whether the socket is writable.
    pub(super) fn tell(&self, message: Message) {
        if message == Message::DeadlineSet {
            let _ = rustix::io::write(&self.wake_guard, &1u64.to_ne_bytes());
        }
        let _ = rustix::io::write(&self.link, &message.to_bytes());
    }

    pub(super) fn foreground_is_gone(&self) -> bool {
        self.foreground_gone
    }

    /// The next event. Cancel safe: no event is lost.
    pub(super) async fn next(&mut self) -> Event {
        // If it cannot be heard any more, it is gone.
        self.hear().await.unwrap_or(Event::ForegroundGone)
    }

    async fn hear(&mut self) -> io::Result<Event> {
        loop {
            if let Some(event) = self.at_hand() {
                return Ok(event);
            }
            tokio::select! {
                ready = self.signals.readable() => {
                    let mut ready = ready?;
                    self.came.extend(signals::read(self.signals.get_ref()));
                    ready.clear_ready();
                }
                ready = self.link.readable(), if !self.foreground_gone => ready?,
                rung = self.alarm.rung() => {
                    rung?;
                    return Ok(Event::Alarm);
                }
            }
        }
    }

    fn at_hand(&mut self) -> Option<Event> {
        while let Some(signal) = self.came.pop_front() {
            match signal {
                libc::SIGCHLD => return Some(Event::Child),
                // This process itself was stopped: look for everything that was missed.
                libc::SIGCONT => return Some(Event::Alarm),
                signal if signals::is_for_command(signal) => return Some(Event::Signal(signal)),
                _ => {}
            }
        }
        if self.foreground_gone {
            return None;
        }
        let mut signal = [0];
        match self.link.try_read(&mut signal) {
            Ok(1) => Some(Event::Signal(signal[0].into())),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => None,
            _ => {
                self.foreground_gone = true;
                Some(Event::ForegroundGone)
            }
        }
    }
}
