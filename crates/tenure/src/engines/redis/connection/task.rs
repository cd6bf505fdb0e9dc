//! The task that keeps a connection up, reads from it, and batches writes.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::{Arc, MutexGuard};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::ReadBuf;
use tokio::task::JoinHandle;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::handshake::{self, Greeting};
use super::stream;
use super::stream::halves::{self, Reader};
use super::{Connection, Phase, Purpose, ReplyTo, State};
use crate::engines::redis::config::Address;
use crate::engines::redis::protocol::refusal::Refusal;
use crate::engines::redis::protocol::resp::{Frame, Malformed, Parser};
use crate::engines::redis::turns;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::observe;
use crate::system;

/// How often a connection that claims wait on is checked for signs of life.
const PING_EVERY: Duration = Duration::from_secs(5);
/// The watchdog's connection is closed after this long without requests.
const IDLE: Duration = Duration::from_secs(30);
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
const READ: usize = 16 << 10;

/// When its runtime shuts down, reports that to every request on this connection.
struct Driving(Arc<Connection>, u64);

impl Drop for Driving {
    fn drop(&mut self) {
        let error = Error::new(
            ErrorKind::Unavailable,
            "the tokio runtime that drives the connection has shut down",
        );
        self.0.is_down(self.1, &error, Phase::Idle);
    }
}

/// The task that listens to the sentinels. It ends with the connection.
struct Watch(JoinHandle<()>);

impl Drop for Watch {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl Connection {
    /// Connects, serves requests, and reconnects.
    ///
    /// `driver` is the number of this task. Once another task has a higher one, this task must not touch
    /// the connection.
    pub(crate) fn drive(self: Arc<Connection>, driver: u64) -> impl Future<Output = ()> + Send {
        let driving = Driving(self, driver);
        async move {
            let connection = &driving.0;
            let mut drives = std::pin::pin!(connection.keep_up(driver));
            let mut begins = true;
            poll_fn(|cx| {
                if std::mem::take(&mut begins) {
                    connection.driver.begins(cx.waker().clone());
                }
                connection.driver.runs();
                drives.as_mut().poll(cx)
            })
            .await;
        }
    }

    async fn keep_up(self: &Arc<Connection>, driver: u64) {
        let connection = self;
        let mut failures = 0;
        while connection.goes_on(driver) {
            let broken = connection.serve(driver, &mut failures).await;
            let Some(error) = broken.filter(|_| connection.goes_on(driver)) else { return };
            observe::connection_lost(&connection.shared.setup.profile.label, &error);
            // Right after a break, new requests wait for the next connection.
            let phase = match failures {
                0 | 1 => Phase::Connecting,
                _ => Phase::Down(error.clone()),
            };
            connection.is_down(driver, &error, phase);
            if failures > 0 && connection.shared.setup.is_cluster {
                // Another server may have taken over its slots.
                let _ = connection.shared.learn_map().await;
            }
            let longest = LONGEST_PAUSE.min(connection.shared.setup.config.connect_timeout / 2);
            sleep(pause(failures, longest, connection.shared.setup.random())).await;
            connection.no_longer_down(driver);
        }
    }

    fn goes_on(&self, driver: u64) -> bool {
        self.state_of(driver).is_some_and(|state| !matches!(state.phase, Phase::Closed))
    }

    fn no_longer_down(&self, driver: u64) {
        let Some(mut state) = self.state_of(driver) else { return };
        if let Phase::Down(_) = state.phase {
            state.phase = Phase::Connecting;
        }
    }

    /// Runs one connection from start to end. Returns `None` if it is no longer needed.
    async fn serve(self: &Arc<Connection>, driver: u64, failures: &mut u32) -> Option<Error> {
        let limit = self.shared.setup.config.connect_timeout;
        let connected = match timeout(limit, self.connect(driver)).await {
            Ok(connected) => connected,
            Err(_) => {
                let reason = format!("the server did not answer within {limit:?}");
                Err(Error::new(ErrorKind::Unavailable, reason).next("is the address right?"))
            }
        };
        match connected {
            Ok((reader, greeting)) => {
                let since = self.shared.setup.now();
                let watch = greeting.primary.and_then(|primary| self.watch(primary));
                let broken = self.run(driver, reader, greeting.parser).await;
                drop(watch);
                // A connection that the server drops at once counts as a failure.
                let lasted = self.shared.setup.now().since(since) > LONGEST_PAUSE;
                *failures = if lasted { 0 } else { *failures + 1 };
                broken
            }
            Err(error) => {
                *failures += 1;
                Some(error)
            }
        }
    }

    async fn connect(self: &Arc<Connection>, driver: u64) -> Result<(Reader, Greeting)> {
        let (stream, greeting) = handshake::reach(&self.shared, &self.target, self.purpose).await?;
        let (reader, writer) = halves::split(stream);
        self.is_up(driver, writer, &greeting);
        Ok((reader, greeting))
    }

    /// Listens to the sentinels, and drops all connections to this server when another one takes over.
    fn watch(self: &Arc<Connection>, primary: Address) -> Option<Watch> {
        if self.purpose == Purpose::Commands {
            return None;
        }
        let connection = self.clone();
        Some(Watch(tokio::spawn(async move {
            connection.shared.sentinels.replaced(&primary).await;
            connection.reconnect();
            connection.shared.primary_changed(&connection, &Refusal::NotPrimary);
        })))
    }

    async fn run(
        self: &Arc<Connection>,
        driver: u64,
        reader: Reader,
        parser: Parser,
    ) -> Option<Error> {
        let timer = Box::pin(sleep(self.shared.setup.config.command_timeout));
        let room = vec![0; READ].into_boxed_slice();
        let base = Moment::ORIGIN;
        let lent_until = match self.purpose != Purpose::Lifeline && system::is_own_thread() {
            true => self.driver.stays_until(self.shared.setup.now()),
            false => Moment::FAR,
        };
        let (connection, stepped_back, has_answered, answered) = (self, false, false, 0);
        let mut run = Run {
            connection,
            driver,
            reader,
            parser,
            room,
            timer,
            base,
            stepped_back,
            has_answered,
            answered,
            lent_until,
        };
        poll_fn(|cx| run.poll(cx)).await
    }
}

struct Run<'a> {
    connection: &'a Arc<Connection>,
    driver: u64,
    reader: Reader,
    parser: Parser,
    room: Box<[u8]>,
    timer: Pin<Box<Sleep>>,
    /// When the last answered request of this connection was sent: whatever is pushed now happened later than that.
    base: Moment,
    stepped_back: bool,
    /// Whether the last read has answered anything.
    has_answered: bool,
    /// How many steps it has answered.
    answered: usize,
    /// When a connection that was taken over is given back to the callers.
    lent_until: Moment,
}

impl Run<'_> {
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Error>> {
        if let Err(error) = self.read(cx) {
            return Poll::Ready(Some(error));
        }
        match self.write(cx) {
            Ok(true) => {}
            Ok(false) => return Poll::Ready(None),
            Err(error) => return Poll::Ready(Some(error)),
        }
        self.watch_the_clock(cx)
    }

    fn read(&mut self, cx: &mut Context<'_>) -> Result<()> {
        loop {
            let mut into = ReadBuf::new(&mut self.room);
            match self.reader.poll_read(cx, &mut into) {
                Poll::Pending => return Ok(()),
                Poll::Ready(Err(error)) => return Err(self.explain(&error)),
                Poll::Ready(Ok(())) if into.filled().is_empty() => {
                    let reason = "the server closed the connection";
                    return Err(Error::new(ErrorKind::Unavailable, reason));
                }
                Poll::Ready(Ok(())) => self.parser.feed(into.filled()),
            }
            while let Some(frame) = self.parser.next().map_err(malformed)? {
                self.hear(frame)?;
            }
            // Two answers may belong to one task: a release that nobody waits for, and its next claim.
            let crowded = std::mem::take(&mut self.answered) > 2;
            let has_answered = std::mem::take(&mut self.has_answered);
            let mut state = self.state()?;
            state.last_heard = self.connection.shared.setup.now();
            if has_answered {
                state.last_answer = state.last_heard;
            }
            if crowded {
                (state.crowded, state.kicked) = (true, true);
            }
        }
    }

    fn hear(&mut self, frame: Frame) -> Result<()> {
        let connection = self.connection;
        match frame {
            Frame::Reply(value) => {
                let Some(pending) = self.state()?.pending.pop_front() else {
                    let reason = "the server sent a reply that no command is waiting for";
                    return Err(Error::new(ErrorKind::Internal, reason));
                };
                (self.base, self.has_answered) = (pending.sent, true);
                self.answered += pending.reply.steps();
                connection.answered(pending, value);
            }
            Frame::Push(items) => {
                let mut items = items.into_iter();
                let kind = items.next();
                let channel = items.next();
                let kind = kind.as_ref().and_then(|kind| kind.as_bytes()).unwrap_or_default();
                match kind {
                    b"message" | b"smessage" => {
                        if let Some(text) = items.next().as_ref().and_then(|text| text.as_bytes()) {
                            turns::pushed(connection, self.base, text);
                        }
                    }
                    b"ssubscribe" => {
                        // The confirmation arrives in place of an answer.
                        let mut state = self.state()?;
                        let front = state.pending.front().map(|pending| &pending.reply);
                        if let Some(&ReplyTo::Subscribed(partition)) = front {
                            state.pending.pop_front();
                            drop(state);
                            // Pushes from before the subscription were missed.
                            connection.shared.waiting.look_again_in(partition);
                        }
                    }
                    b"sunsubscribe" => {
                        let channel = channel.as_ref().and_then(|channel| channel.as_str());
                        connection.shared.unsubscribed(connection, channel.unwrap_or_default());
                    }
                    _ => {}
                }
            }
        }
        Ok(())
    }

    /// Writes what is queued. Returns `false` if the connection is closed.
    fn write(&mut self, cx: &mut Context<'_>) -> Result<bool> {
        let Some(mut state) = self.connection.state_of(self.driver) else { return Ok(false) };
        let state = &mut *state;
        state.waker = Some(cx.waker().clone());
        let closed = matches!(state.phase, Phase::Closed);
        let waits = !state.out.is_empty() || !state.gathered.is_empty();
        // More than one command is under way, so more than one task is sending.
        let more = state.pending.len() + state.gathered.len() > 1;
        if (waits && more || state.crowded) && !self.stepped_back && !closed {
            // Lets the tasks that are about to add commands run first. Otherwise an idle worker would write
            // each command on its own.
            self.stepped_back = true;
            cx.waker().wake_by_ref();
            return Ok(true);
        }
        (self.stepped_back, state.kicked, state.crowded) = (false, false, false);
        state.encode_gathered(&self.connection.shared);
        let Some(writer) = &mut state.writer else {
            return if closed { Ok(false) } else { Err(not_the_one()) };
        };
        let mut wrote = 0;
        let mut result = Ok(());
        while wrote < state.out.len() {
            match writer.poll_write(cx, &state.out[wrote..]) {
                Poll::Ready(Ok(0)) => {
                    result = Err(std::io::ErrorKind::WriteZero.into());
                    break;
                }
                Poll::Ready(Ok(count)) => wrote += count,
                Poll::Ready(Err(error)) => {
                    result = Err(error);
                    break;
                }
                Poll::Pending => break,
            }
        }
        let flushed = writer.poll_flush(cx);
        let done = state.written(wrote);
        if let (Err(error), _) | (_, Poll::Ready(Err(error))) = (result, flushed) {
            return Err(self.explain(&error));
        }
        if done && self.lent_until != Moment::FAR && self.gives_back(state) {
            return Ok(false);
        }
        Ok(!(closed && done))
    }

    /// Gives up on a server that does not answer in time; asks a silent one for a sign of life.
    fn watch_the_clock(&mut self, cx: &mut Context<'_>) -> Poll<Option<Error>> {
        let connection = self.connection;
        let limit = connection.shared.setup.longest_answer();
        let mut rang = false;
        loop {
            let Some(mut state) = connection.state_of(self.driver) else {
                return Poll::Ready(None);
            };
            if state.timed && !rang {
                drop(state);
                if self.timer.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                rang = true;
                continue;
            }
            let now = connection.shared.setup.now();
            // The answers come in order, so each one shows that the next is on its way.
            let oldest = state.pending.front().map(|oldest| oldest.sent.max(state.last_answer));
            let oldest = oldest.map(|since| since + limit);
            let quiet_until = match connection.purpose {
                Purpose::Turns if connection.shared.waiting.is_any() => {
                    state.last_heard + PING_EVERY
                }
                Purpose::Lifeline => state.last_heard + IDLE,
                _ => Moment::FAR,
            };
            if oldest.is_some_and(|due| due <= now) {
                let reason = format!("the server did not answer within {limit:?}");
                return Poll::Ready(Some(Error::new(ErrorKind::Unavailable, reason)));
            }
            if oldest.is_none() && quiet_until <= now {
                if connection.purpose == Purpose::Lifeline {
                    state.writer = None;
                    return Poll::Ready(None);
                }
                state.queue(&[b"ROLE"], now, ReplyTo::Role);
                cx.waker().wake_by_ref();
            }
            state.timed = oldest.is_some() || quiet_until != Moment::FAR;
            if !state.timed {
                return Poll::Pending;
            }
            // Early enough for the deadline of a command that is sent in the meantime.
            let next = oldest.unwrap_or(now + limit).min(quiet_until);
            drop(state);
            let left = now.until(next).max(Duration::from_millis(1));
            self.timer.as_mut().reset(Instant::now() + left);
            rang = false;
        }
    }

    /// The state, unless another task now drives the connection.
    fn state(&self) -> Result<MutexGuard<'_, State>> {
        self.connection.state_of(self.driver).ok_or_else(not_ours)
    }

    /// Ends a connection that was taken over, if it is idle: the next caller's runtime will make a new one.
    fn gives_back(&self, state: &mut State) -> bool {
        let shared = &self.connection.shared;
        let free = !state.is_under_way() && !shared.waiting.is_any();
        let back =
            free && matches!(state.phase, Phase::Up) && shared.setup.now() >= self.lent_until;
        if back {
            self.connection.driver.next(state);
            state.end();
        }
        back
    }

    fn explain(&self, error: &std::io::Error) -> Error {
        match &self.connection.target {
            super::Target::Fixed(address) => stream::explain(address, error),
            super::Target::Sentinels => {
                Error::new(ErrorKind::Unavailable, format!("the connection broke: {error}"))
            }
        }
    }
}

fn malformed(what: Malformed) -> Error {
    Error::new(ErrorKind::Unavailable, what.to_string()).next("is this a Redis server?")
}

fn not_ours() -> Error {
    Error::new(ErrorKind::Unavailable, "another task has taken over the connection")
}

fn not_the_one() -> Error {
    Error::new(ErrorKind::Unavailable, "the server is no longer the primary")
}

/// Doubles up to a second. Half of it is random, so that a thousand clients do not reconnect at the same moment.
fn pause(failures: u32, longest: Duration, random: u64) -> Duration {
    let longest = (SHORTEST_PAUSE * (1 << failures.min(6))).min(longest);
    longest / 2 + longest.mul_f64((random % 1000) as f64 / 2000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_to_a_second_and_are_spread() {
        let range = |failures| [0, 999].map(|random| pause(failures, LONGEST_PAUSE, random));
        let mut before = Duration::ZERO;
        for failures in 0..6 {
            let [least, most] = range(failures);
            assert!(least >= before && least < most, "{failures}: {least:?} to {most:?}");
            before = least;
        }
        for failures in [6, 100] {
            let [least, most] = range(failures);
            assert!(least >= LONGEST_PAUSE / 2 && most <= LONGEST_PAUSE, "{least:?} to {most:?}");
        }
    }
}
