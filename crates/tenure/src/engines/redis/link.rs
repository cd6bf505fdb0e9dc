//! One connection to one server, made again for as long as it is needed.
//!
//! Commands are queued by whoever asks, in the order in which they ask, from any thread; the first one
//! on a quiet wire is written on the spot, the others are gathered by the task that reads. That task
//! lives on the runtime of the first caller; when that runtime goes, the next call starts another, and when
//! it does not run, the watchdog's takes over (see `guard`).
//! A connection that breaks fails what was sent on it as in doubt: nothing is ever sent twice.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;
use std::time::Duration;

use tokio::runtime::Handle;

use super::Shared;
use super::answer::{self, FirstLook, Marks};
use super::clock::ServerClock;
use super::config::Address;
use super::guard::Driver;
use super::halves::Writer;
use super::handshake::Greeting;
pub(super) use super::parcel::{Heard, Parcel, Reply};
use super::refusal::Refusal;
use super::resp::{self, Value};
use super::roads::beside;
use super::wire::{By, Request, partition};
use crate::engine::Ack;
use crate::model::claim::Leave;
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::World;

/// What a link is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Duty {
    /// Hears pushes, and stays.
    Data,
    /// Hears no pushes, and stays.
    Commands,
    /// The watchdog's: hears no pushes, and goes when nothing was asked for a while.
    Lifeline,
}

/// Where the server is.
#[derive(Debug)]
pub(super) enum Target {
    Fixed(Address),
    /// Where the sentinels say.
    Sentinels,
}

pub(super) struct Link {
    pub(super) shared: Arc<Shared>,
    pub(super) target: Target,
    pub(super) duty: Duty,
    pub(super) clock: Arc<ServerClock>,
    pub(super) driver: Driver,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Encoded and not written yet.
    pub(super) out: Vec<u8>,
    /// One for each answer that is still to come, in order.
    pub(super) pending: VecDeque<Pending>,
    /// How many of them, the last ones, are in `out` as a whole.
    pub(super) unwritten: usize,
    /// Asked for while there was no connection.
    backlog: Vec<(Request, Parcel)>,
    /// The partitions that the server was greeted for on this connection.
    greeted: [u64; 4],
    /// The partitions whose channel is subscribed on this connection.
    subscribed: [u64; 4],
    /// The scripts that the server was sent the text of on this connection.
    taught: u8,
    /// Of the server at the other end, or of the last one.
    run_id: String,
    /// Where that is, if the sentinels say it.
    pub(super) primary: Option<Address>,
    /// The most replicas that it had on this connection.
    pub(super) replicas: usize,
    pub(super) writer: Option<Writer>,
    pub(super) waker: Option<Waker>,
    pub(super) kicked: bool,
    /// Whether the reading task looks at the clock by itself.
    pub(super) timed: bool,
    pub(super) last_heard: Moment,
}

#[derive(Default)]
pub(super) enum Phase {
    /// Nobody has asked for anything yet, or not for long.
    #[default]
    Idle,
    Connecting,
    Up,
    /// There is none, and it is too early to try again.
    Down(Error),
    Closed,
}

pub(super) struct Pending {
    pub(super) sent: Moment,
    pub(super) reply: Reply,
}

impl Link {
    pub(super) fn new(shared: Arc<Shared>, target: Target, duty: Duty) -> Arc<Link> {
        let (clock, driver) = (shared.clock_of(&target), Driver::default());
        let state = Mutex::default();
        let link = Arc::new(Link { shared, target, duty, clock, driver, state });
        link.shared.links().push(Arc::downgrade(&link));
        link
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if that task still drives the link.
    pub(super) fn state_of(&self, driver: u64) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        self.driver.is(driver).then_some(state)
    }

    /// Sends it in the order of calls. Failures reach whoever hears the answer.
    pub(super) fn send(self: &Arc<Link>, request: &Request, parcel: Parcel) {
        if self.duty != Duty::Lifeline {
            self.shared.be_guarded();
        }
        let mut state = self.state();
        match &state.phase {
            Phase::Up => {
                let lazy = parcel.lazy;
                state.enqueue(&self.shared, self.duty, request, parcel);
                let kick = if lazy { state.kick() } else { state.push_out() };
                drop(state);
                kick.into_iter().for_each(Waker::wake);
            }
            Phase::Connecting => state.backlog.push((request.clone(), parcel)),
            Phase::Idle => {
                let Ok(runtime) = Handle::try_current() else {
                    drop(state);
                    let reason = "there is no connection, and no tokio runtime to make one on";
                    let error = Error::new(ErrorKind::Unavailable, reason);
                    parcel.fail(&self.shared, &error.next("call it from within a tokio runtime"));
                    return;
                };
                state.phase = Phase::Connecting;
                state.backlog.push((request.clone(), parcel));
                let driver = self.driver.next(&state);
                drop(state);
                // A runtime that is shutting down drops it at once, which takes the lock.
                runtime.spawn(self.clone().drive(driver));
            }
            Phase::Down(error) => {
                let error = error.copy();
                drop(state);
                parcel.fail(&self.shared, &error);
            }
            Phase::Closed => {
                drop(state);
                parcel.fail(&self.shared, &Error::closed());
            }
        }
    }

    /// Makes sure that the link is up or will be, if this is called on a runtime.
    pub(super) fn wake_up(self: &Arc<Link>) {
        let mut state = self.state();
        if let (Phase::Idle, Ok(runtime)) = (&state.phase, Handle::try_current()) {
            state.phase = Phase::Connecting;
            let driver = self.driver.next(&state);
            drop(state);
            runtime.spawn(self.clone().drive(driver));
        }
    }

    /// Ends it when what is queued is written.
    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.state();
            state.phase = Phase::Closed;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The connection is of no use: the server is another one, or no primary any more.
    pub(super) fn reconnect(&self) {
        let waker = {
            let mut state = self.state();
            state.writer = None;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// There is a connection: what was asked for meanwhile goes out.
    pub(super) fn is_up(self: &Arc<Link>, driver: u64, writer: Writer, greeting: &Greeting) {
        let (run_id, primary) = (greeting.run_id.clone(), greeting.primary.clone());
        let now = self.shared.world.now();
        let Some(mut state) = self.state_of(driver) else { return };
        if matches!(state.phase, Phase::Closed) {
            return;
        }
        let backlog = std::mem::take(&mut state.backlog);
        state.phase = Phase::Up;
        let is_another = !state.run_id.is_empty() && state.run_id != run_id;
        (state.writer, state.run_id, state.last_heard) = (Some(writer), run_id, now);
        (state.greeted, state.subscribed, state.taught) = ([0; 4], [0; 4], 0);
        (state.primary, state.replicas) = (primary, 0);
        state.queue(&[b"TIME"], now, Reply::Time);
        for partition in self.shared.waited_for_at(self) {
            state.subscribe(&self.shared, partition, now);
        }
        for (request, parcel) in backlog {
            state.enqueue(&self.shared, self.duty, &request, parcel);
        }
        drop(state);
        if self.duty == Duty::Data && !self.shared.is_cluster {
            self.shared.look_again_in(0);
        }
        if is_another {
            self.shared.is_another(self);
        }
    }

    /// There is no connection any more, or none was made: everyone hears why.
    pub(super) fn is_down(&self, driver: u64, error: &Error, phase: Phase) {
        let Some(mut state) = self.state_of(driver) else { return };
        let closed = matches!(state.phase, Phase::Closed);
        let State { pending, backlog, unwritten, run_id, .. } = std::mem::take(&mut *state);
        state.run_id = run_id;
        state.phase = if closed { Phase::Closed } else { phase };
        drop(state);
        let sent = pending.len() - unwritten;
        for (at, pending) in pending.into_iter().enumerate() {
            pending.reply.fail(&self.shared, error, at < sent);
        }
        for (_, parcel) in backlog {
            parcel.fail(&self.shared, error);
        }
        if error.kind() == ErrorKind::Denied && self.duty == Duty::Data {
            self.shared.all_ask_again();
        }
    }

    /// An answer to the oldest command.
    pub(super) fn answered(self: &Arc<Link>, Pending { sent, reply }: Pending, value: Value) {
        match reply {
            Reply::One(heard) => {
                let _ = heard.send(Ok(Heard { value, sent }));
            }
            Reply::Claim(heard, name, id) => {
                let places = &self.shared.places;
                let early = match answer::first_look(&value) {
                    FirstLook::Waits(ticket, floor) => {
                        places.stands((partition(&name), ticket), &name, id, sent, floor)
                    }
                    FirstLook::Refused => {
                        places.forget(&name, &id);
                        Vec::new()
                    }
                    FirstLook::Other => Vec::new(),
                };
                let _ = heard.send(Ok(Heard { value, sent }));
                early.into_iter().for_each(|early| self.shared.for_place(self, early));
            }
            Reply::Left(ack, leave) => self.has_left(ack, leave, value),
            Reply::Ticked(name) => {
                if let Some((_, marks)) = answer::read(&value, Duration::ZERO) {
                    self.go_on(name, marks);
                }
            }
            Reply::Hello(partition) if matches!(value, Value::Error(_)) => {
                unmark(&mut self.state().greeted, partition);
            }
            Reply::Subscribed(partition) => {
                unmark(&mut self.state().subscribed, partition);
                if let (Value::Error(text), Target::Fixed(asked)) = (&value, &self.target)
                    && let Refusal::Moved(address) = Refusal::read(text)
                {
                    self.shared.moved(partition, beside(asked, address));
                }
            }
            Reply::Role => {
                let role = value.as_list().and_then(|items| items.first()?.as_str());
                if role.is_some_and(|role| role != "master") {
                    self.shared.primary_changed(self, &Refusal::NotPrimary);
                }
            }
            Reply::Time => self.heard_time(sent, &value),
            Reply::Hello(_) | Reply::Nobody => {}
        }
    }

    /// The answer to a leave that nobody waits for.
    fn has_left(self: &Arc<Link>, ack: Ack, leave: Leave, value: Value) {
        if let Value::Error(text) = &value
            && Refusal::read(text) == Refusal::NoScript
        {
            // The watchdog would send it again, but only after this thread's next claim.
            let request = self.shared.layout.leave(&leave, true);
            let parcel = Parcel::new(Reply::Left(ack, leave));
            return self.send(&request, Parcel { by: By::Text, ..parcel });
        }
        match answer::read(&value, Duration::ZERO) {
            None => drop(ack),
            Some((answer, marks)) => {
                self.go_on(leave.name, marks);
                ack.done(answer::left(answer));
            }
        }
    }

    /// Sees to what an answer says besides.
    pub(super) fn go_on(self: &Arc<Link>, name: Name, Marks { more, mute }: Marks) {
        if more {
            self.tick(name);
        }
        if mute {
            self.shared.warn_of_muteness();
        }
    }

    /// Hears the channel of the partition from now on, or as soon as it is up.
    pub(super) fn subscribe(self: &Arc<Link>, partition: u16) {
        let kick = {
            let mut state = self.state();
            let up = matches!(state.phase, Phase::Up);
            if up {
                state.subscribe(&self.shared, partition, self.shared.world.now());
            }
            up.then(|| state.kick()).flatten()
        };
        kick.into_iter().for_each(Waker::wake);
        self.wake_up();
    }

    /// The server has not kept the partition all the time.
    pub(super) fn greet_again(&self, partition: u16) {
        unmark(&mut self.state().greeted, partition);
    }

    /// The channel of the partition is not heard here any more.
    pub(super) fn unsubscribed(&self, partition: u16) {
        unmark(&mut self.state().subscribed, partition);
    }

    /// A step stopped at its bound: it goes on.
    pub(super) fn tick(self: &Arc<Link>, name: Name) {
        let request = self.shared.layout.tick(&name);
        // With its text: nobody would hear that the server does not know it.
        self.send(&request, Parcel { by: By::Text, ..Parcel::new(Reply::Ticked(name)) });
    }
}

impl State {
    fn enqueue(&mut self, shared: &Shared, duty: Duty, request: &Request, parcel: Parcel) {
        let Parcel { by, reply, may_wait, asking, wait, .. } = parcel;
        let sent = shared.world.now();
        let partition = request.partition();
        // Where a slot is still arriving, what the partition knows is on its way, too.
        if request.counts() && !asking && mark(&mut self.greeted, partition) {
            // With its text: it must run before what follows, whatever the server remembers.
            shared.layout.hello(partition, &self.run_id).encode(By::Text, &mut self.out);
            self.expect(sent, Reply::Hello(partition));
        }
        if may_wait && duty == Duty::Data && shared.is_cluster {
            self.subscribe(shared, partition, sent);
        }
        if asking {
            self.queue(&[b"ASKING"], sent, Reply::Nobody);
        }
        // The first of its kind with its text: nobody asks again for a leave that was dropped.
        let bit = request.script().map_or(0, |script| 1 << script as u8);
        let by = if self.taught & bit == bit { by } else { By::Text };
        self.taught |= bit;
        request.encode(by, &mut self.out);
        self.expect(sent, reply);
        if let Some((replicas, millis, heard)) = wait {
            shared.layout.mark(partition, &mut self.out);
            self.expect(sent, Reply::Nobody);
            let (replicas, millis) = (replicas.to_string(), millis.to_string());
            let parts: [&[u8]; 3] = [b"WAIT", replicas.as_bytes(), millis.as_bytes()];
            self.queue(&parts, sent, Reply::One(heard));
        }
    }

    fn subscribe(&mut self, shared: &Shared, partition: u16, sent: Moment) {
        if mark(&mut self.subscribed, partition) {
            let channel = shared.layout.channel(partition);
            self.queue(&[b"SSUBSCRIBE", channel.as_bytes()], sent, Reply::Subscribed(partition));
        }
    }

    pub(super) fn queue(&mut self, parts: &[&[u8]], sent: Moment, reply: Reply) {
        resp::command(&mut self.out, parts);
        self.expect(sent, reply);
    }

    fn expect(&mut self, sent: Moment, reply: Reply) {
        self.pending.push_back(Pending { sent, reply });
        self.unwritten += 1;
    }

    /// Writes at once if the wire is quiet; else leaves it to the reading task, which gathers.
    fn push_out(&mut self) -> Option<Waker> {
        let quiet = self.pending.len() == self.unwritten;
        if quiet && self.write() && self.timed {
            return None;
        }
        self.kick()
    }

    /// Writes what the socket takes. Returns whether that was all.
    fn write(&mut self) -> bool {
        let Some(Ok(written)) = self.writer.as_ref().map(|writer| writer.try_write(&self.out))
        else {
            return false;
        };
        self.written(written)
    }

    /// Whether something was asked and not answered.
    pub(super) fn is_under_way(&self) -> bool {
        !(self.pending.is_empty() && self.out.is_empty() && self.backlog.is_empty())
    }

    /// Ends the connection, so that the next one is driven by whoever asks next.
    pub(super) fn end(&mut self) {
        let run_id = std::mem::take(&mut self.run_id);
        *self = State { run_id, ..State::default() };
    }

    /// Returns whether everything is written.
    pub(super) fn written(&mut self, bytes: usize) -> bool {
        if bytes > 0 {
            // Where a command was cut is not worth knowing: all of them may have arrived.
            self.unwritten = 0;
        }
        if bytes == self.out.len() {
            self.out.clear();
            self.out.shrink_to(1 << 16);
        } else {
            self.out.drain(..bytes);
        }
        self.out.is_empty()
    }

    fn kick(&mut self) -> Option<Waker> {
        if std::mem::replace(&mut self.kicked, true) { None } else { self.waker.take() }
    }
}

/// Marks a partition; returns whether it was not marked before.
fn mark(bits: &mut [u64; 4], partition: u16) -> bool {
    let (word, bit) = (&mut bits[usize::from(partition >> 6) & 3], 1 << (partition & 63));
    let before = *word & bit != 0;
    *word |= bit;
    !before
}

fn unmark(bits: &mut [u64; 4], partition: u16) {
    bits[usize::from(partition >> 6) & 3] &= !(1 << (partition & 63));
}
