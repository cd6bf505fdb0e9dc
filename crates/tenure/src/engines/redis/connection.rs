//! One connection to one server. It reconnects for as long as it is needed.
//!
//! Callers queue commands from any thread, and commands are sent in the order of the calls. The first command on
//! an idle connection is written at once; later ones are batched by the task that reads. That task lives on
//! the runtime of the first caller. If that runtime ends, the next call starts another task; if it is not being
//! polled, the watchdog's runtime takes over (see `takeover`).
//! When a connection breaks, everything sent on it fails as in doubt: nothing is ever sent twice.

mod groups;
pub(super) mod handshake;
mod outgoing;
mod queue;
pub(super) mod registry;
pub(super) mod server_clock;
pub(super) mod stream;
pub(super) mod takeover;
mod task;

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use tokio::runtime::Handle;

use self::groups::Gathered;
use self::handshake::Greeting;
pub(super) use self::outgoing::{Outgoing, Reply, ReplyTo};
use self::server_clock::ServerClock;
use self::stream::halves::Writer;
use self::takeover::Driver;
use super::config::Address;
use super::protocol::answer::{self, Marks, PlaceAfter};
use super::protocol::layout::partition;
use super::protocol::refusal::Refusal;
use super::protocol::request::Request;
use super::protocol::resp::Value;
use super::protocol::scripts::ScriptForm;
use super::router::beside;
use super::shared::Shared;
use super::turns;
use crate::engine::Ack;
use crate::model::claim::Leave;
use crate::model::error::{Error, ErrorKind};
use crate::model::moment::Moment;
use crate::model::name::Name;

/// What a connection is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// Receives pushes and stays open.
    Turns,
    /// Receives no pushes and stays open.
    Commands,
    /// For the watchdog: receives no pushes, and closes after some time without requests.
    Lifeline,
}

/// Where the server is.
#[derive(Debug)]
pub(super) enum Target {
    Fixed(Address),
    /// The primary that the sentinels name.
    Sentinels,
}

pub(super) struct Connection {
    pub(super) shared: Arc<Shared>,
    pub(super) target: Target,
    pub(super) purpose: Purpose,
    pub(super) clock: Arc<ServerClock>,
    pub(super) driver: Driver,
    state: Mutex<State>,
}

#[derive(Default)]
pub(super) struct State {
    pub(super) phase: Phase,
    /// Steps that are not encoded yet. They go behind those that are.
    gathered: Gathered,
    /// Encoded, but not written yet.
    pub(super) out: Vec<u8>,
    /// One entry for each answer that is still due, in order.
    pub(super) pending: VecDeque<Pending>,
    /// How many of these, counted from the back, are entirely in `out`.
    pub(super) unwritten: usize,
    /// Requests that came while there was no connection.
    backlog: Vec<(Arc<Request>, Outgoing)>,
    /// The partitions for which this connection has sent a hello.
    greeted: [u64; 4],
    /// The partitions whose channel this connection has subscribed to.
    subscribed: [u64; 4],
    /// The scripts whose text was sent on this connection.
    taught: u16,
    /// The run id of the server at the other end, or of the last one.
    run_id: String,
    /// The server's address, if it came from the sentinels.
    pub(super) primary: Option<Address>,
    /// The most replicas that the server had during this connection.
    pub(super) replicas: usize,
    pub(super) writer: Option<Writer>,
    pub(super) waker: Option<Waker>,
    pub(super) kicked: bool,
    /// Several tasks have just been woken by their answers. The reading task runs after them and writes what they send.
    pub(super) crowded: bool,
    /// Whether the reading task has set its timer.
    pub(super) timed: bool,
    pub(super) last_heard: Moment,
    /// When the last answer came.
    pub(super) last_answer: Moment,
}

#[derive(Default)]
pub(super) enum Phase {
    /// There have been no requests yet, or none for a while.
    #[default]
    Idle,
    Connecting,
    Up,
    /// The last attempt failed, and it is too early for another.
    Down(Error),
    Closed,
}

pub(super) struct Pending {
    pub(super) sent: Moment,
    pub(super) reply: ReplyTo,
}

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, target: Target, purpose: Purpose) -> Arc<Connection> {
        let address = match &target {
            Target::Fixed(address) if shared.setup.is_cluster => Some(address.clone()),
            _ => None,
        };
        let (clock, driver) = (shared.clocks.of(address), Driver::default());
        let state = Mutex::default();
        let connection = Arc::new(Connection { shared, target, purpose, clock, driver, state });
        connection.shared.registry.add(&connection);
        connection
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The state, if the task with this number still drives the connection.
    pub(super) fn state_of(&self, driver: u64) -> Option<MutexGuard<'_, State>> {
        let state = self.state();
        self.driver.is(driver).then_some(state)
    }

    /// Sends a request, in the order of the calls. A failure is reported as its reply.
    pub(super) fn send(
        self: &Arc<Connection>,
        request: impl Into<Arc<Request>>,
        outgoing: Outgoing,
    ) {
        let request = request.into();
        if self.purpose != Purpose::Lifeline {
            self.shared.registry.wakeup.asked();
        }
        let mut state = self.state();
        match &state.phase {
            Phase::Up => {
                let lazy = outgoing.lazy;
                state.enqueue(&self.shared, self.purpose, request, outgoing);
                let kick = if lazy { state.kick() } else { state.push_out(&self.shared) };
                drop(state);
                kick.into_iter().for_each(Waker::wake);
            }
            Phase::Connecting => state.backlog.push((request, outgoing)),
            Phase::Idle => {
                let Ok(runtime) = Handle::try_current() else {
                    drop(state);
                    let reason = "there is no connection, and no tokio runtime to make one on";
                    let error = Error::new(ErrorKind::Unavailable, reason);
                    outgoing.fail(&self.shared, &error.next("call it from within a tokio runtime"));
                    return;
                };
                state.phase = Phase::Connecting;
                state.backlog.push((request, outgoing));
                let driver = self.driver.next(&state);
                drop(state);
                // After unlocking: a runtime that is shutting down drops the task here, which locks.
                runtime.spawn(self.clone().drive(driver));
            }
            Phase::Down(error) => {
                let error = error.clone();
                drop(state);
                outgoing.fail(&self.shared, &error);
            }
            Phase::Closed => {
                drop(state);
                outgoing.fail(&self.shared, &Error::closed());
            }
        }
    }

    /// Connects unless the connection is up. Does nothing outside of a runtime.
    pub(super) fn wake_up(self: &Arc<Connection>) {
        let mut state = self.state();
        if let (Phase::Idle, Ok(runtime)) = (&state.phase, Handle::try_current()) {
            state.phase = Phase::Connecting;
            let driver = self.driver.next(&state);
            drop(state);
            runtime.spawn(self.clone().drive(driver));
        }
    }

    /// Closes the connection as soon as everything queued has been written.
    pub(super) fn close(&self) {
        let waker = {
            let mut state = self.state();
            state.phase = Phase::Closed;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// Reconnects, because the server has been replaced or is no longer the primary.
    pub(super) fn reconnect(&self) {
        let waker = {
            let mut state = self.state();
            state.writer = None;
            state.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    }

    /// The connection is up: sends the requests that were queued while it was being made.
    pub(super) fn is_up(self: &Arc<Connection>, driver: u64, writer: Writer, greeting: &Greeting) {
        let (run_id, primary) = (greeting.run_id.clone(), greeting.primary.clone());
        let now = self.shared.setup.now();
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
        state.queue(&[b"TIME"], now, ReplyTo::Time);
        for partition in self.shared.waited_for_at(self) {
            state.subscribe(&self.shared, partition, now);
        }
        for (request, outgoing) in backlog {
            state.enqueue(&self.shared, self.purpose, request, outgoing);
        }
        drop(state);
        if self.purpose == Purpose::Turns && !self.shared.setup.is_cluster {
            self.shared.waiting.look_again_in(0);
        }
        if is_another {
            self.shared.is_another(self);
        }
    }

    /// The connection broke or could not be made: passes the error to every request that waits.
    pub(super) fn is_down(&self, driver: u64, error: &Error, phase: Phase) {
        let Some(mut state) = self.state_of(driver) else { return };
        let closed = matches!(state.phase, Phase::Closed);
        let State { pending, gathered, backlog, unwritten, run_id, .. } =
            std::mem::take(&mut *state);
        state.run_id = run_id;
        state.phase = if closed { Phase::Closed } else { phase };
        drop(state);
        let sent = pending.len() - unwritten;
        for (at, pending) in pending.into_iter().enumerate() {
            pending.reply.fail(&self.shared, error, at < sent);
        }
        gathered.into_replies().for_each(|reply| reply.fail(&self.shared, error, false));
        for (_, outgoing) in backlog {
            outgoing.fail(&self.shared, error);
        }
        if error.kind() == ErrorKind::Denied && self.purpose == Purpose::Turns {
            self.shared.waiting.all_ask_again();
        }
    }

    /// Handles the answer to the oldest command.
    pub(super) fn answered(self: &Arc<Connection>, Pending { sent, reply }: Pending, value: Value) {
        match reply {
            ReplyTo::One(heard) => {
                let _ = heard.send(Ok(Reply { value, sent }));
            }
            ReplyTo::Claim(heard, name, id) => {
                let places = &self.shared.waiting.places;
                let early = match answer::place_after(&value) {
                    PlaceAfter::Waits(ticket, floor) => {
                        places.stands((partition(&name), ticket), &name, id, sent, floor)
                    }
                    PlaceAfter::Refused => {
                        places.forget(&name, &id);
                        Vec::new()
                    }
                    PlaceAfter::Other => Vec::new(),
                };
                let _ = heard.send(Ok(Reply { value, sent }));
                early.into_iter().for_each(|early| turns::deliver_to_place(self, early));
            }
            ReplyTo::Left(ack, leave) => self.has_left(ack, leave, value),
            ReplyTo::Group(steps) => self.heard_group(sent, steps, value),
            ReplyTo::Ticked(name) => {
                if let Some(marks) = answer::read_marks(&value) {
                    self.go_on(name, marks);
                }
            }
            ReplyTo::Hello(partition) if matches!(value, Value::Error(_)) => {
                unmark(&mut self.state().greeted, partition);
            }
            ReplyTo::Subscribed(partition) => {
                unmark(&mut self.state().subscribed, partition);
                if let (Value::Error(text), Target::Fixed(asked)) = (&value, &self.target)
                    && let Refusal::Moved(address) = Refusal::read(text)
                {
                    self.shared.moved(partition, beside(asked, address));
                }
            }
            ReplyTo::Role => {
                let role = value.as_list().and_then(|items| items.first()?.as_str());
                if role.is_some_and(|role| role != "master") {
                    self.shared.primary_changed(self, &Refusal::NotPrimary);
                }
            }
            ReplyTo::Time => self.heard_time(sent, &value),
            ReplyTo::Hello(_) | ReplyTo::Nobody => {}
        }
    }

    /// Handles the answer to a leave that nobody waits for.
    fn has_left(self: &Arc<Connection>, ack: Ack, leave: Leave, value: Value) {
        if let Value::Error(text) = &value
            && Refusal::read(text) == Refusal::NoScript
        {
            // The watchdog would send it again, but maybe not before this thread's next claim.
            let request = self.shared.setup.layout.leave(&leave, true);
            let outgoing = Outgoing::new(ReplyTo::Left(ack, leave));
            return self.send(request, Outgoing { form: ScriptForm::Text, ..outgoing });
        }
        match answer::read_leave(&value) {
            None => drop(ack),
            Some((left, marks)) => {
                self.go_on(leave.name, marks);
                ack.done(Ok(left));
            }
        }
    }

    /// Acts on the marks of an answer.
    pub(super) fn go_on(self: &Arc<Connection>, name: Name, Marks { more, mute }: Marks) {
        if more {
            self.tick(name);
        }
        if mute {
            self.shared.setup.warn_of_muteness();
        }
    }

    /// Subscribes to the channel of the partition, now or as soon as the connection is up.
    pub(super) fn subscribe(self: &Arc<Connection>, partition: u16) {
        let kick = {
            let mut state = self.state();
            let up = matches!(state.phase, Phase::Up);
            if up {
                state.subscribe(&self.shared, partition, self.shared.setup.now());
            }
            up.then(|| state.kick()).flatten()
        };
        kick.into_iter().for_each(Waker::wake);
        self.wake_up();
    }

    /// Another server has kept the partition in the meantime, so this one needs another hello.
    pub(super) fn greet_again(&self, partition: u16) {
        unmark(&mut self.state().greeted, partition);
    }

    /// The server has ended the subscription to the channel of the partition.
    pub(super) fn unsubscribed(&self, partition: u16) {
        unmark(&mut self.state().subscribed, partition);
    }

    /// Continues a step that stopped at its limit.
    pub(super) fn tick(self: &Arc<Connection>, name: Name) {
        let request = self.shared.setup.layout.tick(&name);
        // Send the script's text: nobody waits for the answer, or would repeat the step after NOSCRIPT.
        self.send(
            request,
            Outgoing { form: ScriptForm::Text, ..Outgoing::new(ReplyTo::Ticked(name)) },
        );
    }
}

/// Marks a partition. Returns whether it was unmarked before.
fn mark(bits: &mut [u64; 4], partition: u16) -> bool {
    let (word, bit) = (&mut bits[usize::from(partition >> 6) & 3], 1 << (partition & 63));
    let before = *word & bit != 0;
    *word |= bit;
    !before
}

fn unmark(bits: &mut [u64; 4], partition: u16) {
    bits[usize::from(partition >> 6) & 3] &= !(1 << (partition & 63));
}
