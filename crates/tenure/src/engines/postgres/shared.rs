//! What the callers' side, the watchdog's side and the session that listens share.

use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread;
use std::time::Duration;

use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};

use super::config::PostgresConfig;
use super::leaves::Leaves;
use super::link::Link;
use super::listener::{Ask, Listener};
use super::places::{PlacePush, Places};
use super::pushes::{HowEnded, Push, Word, read_push};
use super::statements::Statement;
use super::tls::{self, Tls};
use crate::engine::Turns;
use crate::model::claim::{ClaimId, Grant, Leave, Turn, look_again};
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::name::Name;
use crate::model::profile::Profile;
use crate::observe;
use crate::world::{SystemWorld, World};

/// How long a claim that is the first to wait is not answered, so that its turn can be told.
const LISTENS_WITHIN: Duration = Duration::from_secs(1);

/// What the listener is told.
pub(super) type Asks = mpsc::UnboundedReceiver<Ask>;

pub(super) struct Shared {
    pub(super) config: Arc<PostgresConfig>,
    pub(super) profile: Profile,
    pub(super) tls: Tls,
    /// The number of this process, by which others push to it and know whether it listens.
    pub(super) process: i64,
    pub(super) places: Places,
    pub(super) leaves: Arc<Leaves>,
    /// Whether a session listens, or did and is being replaced. Before that, nobody takes this process for gone.
    pub(super) listening: watch::Sender<bool>,
    clients: RwLock<Vec<Weak<dyn Turns>>>,
    asks: mpsc::UnboundedSender<Ask>,
    io: Handle,
    /// Dropped to end the thread.
    stop: Mutex<Option<oneshot::Sender<()>>>,
    /// Where leaves of turns that nobody took go.
    back: Mutex<Option<Link>>,
}

impl Shared {
    /// Starts the thread that all connections live on: a caller's runtime may be busy, or end before them.
    pub(super) fn start(config: PostgresConfig) -> Result<(Arc<Shared>, Asks)> {
        let tls = tls::setup(&config)?;
        let fault = |error: std::io::Error| {
            let reason = format!("cannot start a thread: {error}");
            Error::new(ErrorKind::Internal, reason).next("check the limits of this process")
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(fault)?;
        let io = runtime.handle().clone();
        let (stop, stopped) = oneshot::channel::<()>();
        let thread = thread::Builder::new().name("tenure-postgres".into());
        let started = thread.spawn(move || {
            observe::keep_apart();
            let _ = runtime.block_on(stopped);
            runtime.shutdown_background();
        });
        started.map_err(fault)?;
        let mut profile = Profile::new(config.label());
        profile.push = config.listen != super::config::Listen::Never;
        // Longer than a step waits for the row of its name, so that a caller that gives up can say why.
        profile.patience = config.command_timeout;
        let (asks, asked) = mpsc::unbounded_channel();
        let shared = Arc::new(Shared {
            config: Arc::new(config),
            profile,
            tls,
            process: process_number()?,
            places: Places::default(),
            leaves: Arc::default(),
            listening: watch::Sender::new(false),
            clients: RwLock::default(),
            asks,
            io,
            stop: Mutex::new(Some(stop)),
            back: Mutex::new(None),
        });
        Ok((shared, asked))
    }

    /// A connection for steps.
    pub(super) fn link(&self) -> Link {
        let (server, bound) = (self.config.server.clone(), self.config.command_timeout);
        Link::start(server, bound, self.tls.clone(), None, &self.io)
    }

    /// A connection that hears, for steps, too, unless the server is behind a pooler.
    pub(super) fn hearing_link(self: &Arc<Shared>) -> Link {
        let (server, bound) = (self.config.listener(), self.config.command_timeout);
        Link::start(server, bound, self.tls.clone(), Some(Arc::downgrade(self)), &self.io)
    }

    /// Begins to listen over this connection when there is something to hear.
    pub(super) fn hear_over(self: &Arc<Shared>, link: Link, asks: Asks) {
        self.spawn(Listener { shared: self.clone(), link, asks }.run());
    }

    pub(super) fn session_ended(&self) {
        let _ = self.asks.send(Ask::Ended);
    }

    /// Runs something on the thread of the connections.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        drop(self.io.spawn(work));
    }

    pub(super) fn attach(&self, turns: Weak<dyn Turns>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(turns);
    }

    /// There may be something to hear now.
    pub(super) fn listen(&self) {
        let _ = self.asks.send(Ask::Listen);
    }

    /// Ends when everything that was pushed until now has been delivered, or nobody listens.
    pub(super) async fn flush(&self) {
        let (done, flushed) = oneshot::channel();
        if self.asks.send(Ask::Flush(done)).is_ok() {
            let _ = flushed.await;
        }
    }

    /// Somebody listens now. Whoever asked before may have been passed over, or have missed a push.
    pub(super) fn hears_now(&self) {
        self.listening.send_replace(true);
        for client in self.clients() {
            client.look_again(0);
            // An operator may have broken one of them.
            client.check_holds(&[0]);
        }
    }

    /// Nobody could listen for a while: whoever waits must not count as dead because of that, and looks for itself.
    pub(super) fn hears_no_more(&self) {
        if self.listening.send_replace(false) {
            self.clients().iter().for_each(|client| client.look_again(0));
        }
    }

    pub(super) fn listens(&self) -> bool {
        *self.listening.borrow()
    }

    /// Listens, and ends when somebody does. If that takes too long it goes on by itself.
    pub(super) async fn until_listening(&self) {
        self.listen();
        let mut listening = self.listening.subscribe();
        let _ = tokio::time::timeout(LISTENS_WITHIN, listening.wait_for(|listens| *listens)).await;
    }

    /// Ends the thread and with it all connections.
    pub(super) fn close(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
    }

    fn clients(&self) -> Vec<Arc<dyn Turns>> {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        self.clients().iter().any(|client| client.deliver(name, id, turn.clone()))
    }

    /// A notification has come.
    pub(super) fn pushed(&self, text: &str) {
        match read_push(text) {
            Some(Push::Place(name, ticket, word)) => {
                let heard = SystemWorld.now();
                self.to_place(PlacePush { at: (name, ticket), heard, word });
            }
            Some(Push::Ended(name, id, how)) => {
                self.places.forget(&id);
                let turn = match how {
                    HowEnded::Ended(ended) => Turn::Ended(ended),
                    HowEnded::Settled(outcome) => Turn::Settled(outcome),
                };
                self.deliver(&name, &id, turn);
            }
            None => observe::strange_push(&self.profile.label),
        }
    }

    /// Delivers a push to its claim, now or as soon as the claim is known.
    pub(super) fn to_place(&self, push: PlacePush) {
        let Some((spot, push)) = self.places.find(push) else { return };
        let (name, _) = push.at;
        let turn = match push.word {
            // Older than the last answer, which the core may not have handled yet.
            Word::Granted { fence, .. } if fence <= spot.floor => return,
            Word::Granted { fence, life, first_life } => {
                Turn::Granted(Grant::new(fence, spot.base, life, first_life))
            }
            Word::LookAfter(after) => Turn::LookAt(look_again(push.heard + after, 0)),
            Word::AskAgain => Turn::LookAgain,
        };
        let granted = if let Turn::Granted(grant) = &turn { Some(grant.fence) } else { None };
        let taken = self.deliver(&name, &spot.id, turn);
        match granted {
            Some(fence) if !taken => {
                let leave = Leave { only: Some(fence), unbegun: true, ..Leave::new(name, spot.id) };
                let mut back = self.back.lock().unwrap_or_else(PoisonError::into_inner);
                let link = back.get_or_insert_with(|| self.link());
                // If it fails, the first life ends it.
                link.send(Statement::leave(&leave, self.process), drop);
            }
            Some(_) => self.places.holds(spot.id, push.heard),
            None => {}
        }
    }
}

/// A number that no other process has. Positive, because it is part of a channel's name.
fn process_number() -> Result<i64> {
    let mut bytes = [0; 8];
    getrandom::fill(&mut bytes).map_err(|error| {
        let reason = format!("the operating system has no random bytes: {error}");
        Error::new(ErrorKind::Internal, reason)
    })?;
    Ok((i64::from_le_bytes(bytes) & i64::MAX).max(1))
}
