//! One connection that keeps itself up. Statements are sent in the order in which they were queued, without waiting for
//! each other's answers.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{AsyncMessage, Client, Row};

use super::errors::{Then, cannot_connect, fault};
use super::shared::Shared;
use super::statements::Statement;
use super::tls::Tls;
use crate::model::error::{Error, ErrorKind, Result};
use crate::model::moment::Moment;
use crate::world::{SystemWorld, World};

/// How often a step is repeated that the server undid in favour of others.
const REPEATS: u32 = 20;
/// How long to pause before the second repeat, and before each of the last: in all nearly a second. A session looks functions
/// up as they were before `tenure setup` until that has told it, which takes a moment on a busy server.
const SHORTEST_PAUSE: Duration = Duration::from_millis(1);
const LONGEST_PAUSE: Duration = Duration::from_millis(64);
/// How long nobody tries to connect after that failed: longer each time.
const SHORTEST_BACK_OFF: Duration = Duration::from_millis(100);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(2);

/// An answer, and when its request was sent.
pub(super) type Reply = Result<(Vec<Row>, Moment)>;

/// A statement on its way, and who hears the answer.
struct Request {
    statement: Statement,
    tell: Box<dyn FnOnce(Reply) + Send>,
}

/// The callers' end of a connection. The connection is closed when it is dropped.
#[derive(Clone)]
pub(super) struct Link(UnboundedSender<Request>);

impl Link {
    /// `hears`: who is told of notifications, and of the end of a session.
    pub(super) fn start(
        server: tokio_postgres::Config,
        bound: Duration,
        tls: Tls,
        hears: Option<Weak<Shared>>,
        io: &tokio::runtime::Handle,
    ) -> Link {
        let (sender, requests) = mpsc::unbounded_channel();
        io.spawn(run(server, bound, tls, hears, requests));
        Link(sender)
    }

    /// Queues a statement. If the engine was closed, `tell` is dropped.
    pub(super) fn send(&self, statement: Statement, tell: impl FnOnce(Reply) + Send + 'static) {
        let _ = self.0.send(Request { statement, tell: Box::new(tell) });
    }
}

/// A session, and the task that reads it.
pub(super) struct Session {
    pub(super) client: Arc<Client>,
    reader: JoinHandle<()>,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.reader.abort();
    }
}

impl Session {
    pub(super) async fn connect(
        server: &tokio_postgres::Config,
        tls: &Tls,
        hears: Option<Weak<Shared>>,
    ) -> Result<Session> {
        let connecting = server.connect(tls.clone());
        // The limit of tokio-postgres is for each host's socket, not for what follows.
        let hosts = server.get_hosts().len().max(server.get_hostaddrs().len()).max(1) as u32;
        let each = server.get_connect_timeout().copied().unwrap_or(Duration::from_secs(5));
        let bound = each * (hosts + 1);
        let connected = tokio::time::timeout(bound, connecting).await;
        let connected = connected.map_err(|_| {
            let reason = format!("no connection for {}", humantime::format_duration(bound));
            Error::new(ErrorKind::Unavailable, reason).next("is the server up?")
        })?;
        let (client, mut connection) = connected.map_err(|error| cannot_connect(&error))?;
        let reader = tokio::spawn(async move {
            while let Some(Ok(message)) = poll_fn(|cx| connection.poll_message(cx)).await {
                if let AsyncMessage::Notification(notification) = message
                    && let Some(shared) = hears.as_ref().and_then(Weak::upgrade)
                {
                    shared.pushed(notification.payload());
                }
            }
        });
        Ok(Session { client: Arc::new(client), reader })
    }
}

/// Attempts to connect that failed, one after the other.
#[derive(Default)]
struct Attempts {
    last: Option<(Moment, Error)>,
    count: u32,
}

impl Attempts {
    fn failed(&mut self, error: Error) {
        self.last = Some((SystemWorld.now(), error));
        self.count = self.count.saturating_add(1);
    }

    /// Why nobody tries to connect now.
    fn resting(&self) -> Option<Error> {
        let (at, error) = self.last.as_ref()?;
        let back_off = SHORTEST_BACK_OFF * 2_u32.pow(self.count.min(8) - 1);
        let rests = SystemWorld.now().since(*at) < back_off.min(LONGEST_BACK_OFF);
        rests.then(|| error.clone())
    }
}

async fn run(
    server: tokio_postgres::Config,
    bound: Duration,
    tls: Tls,
    hears: Option<Weak<Shared>>,
    mut requests: UnboundedReceiver<Request>,
) {
    let (broken, mut breaks) = mpsc::unbounded_channel();
    let mut session: Option<Session> = None;
    let mut generation = 0_u64;
    let mut attempts = Attempts::default();
    loop {
        let request = tokio::select! {
            biased;
            () = ended(&mut session) => {
                session = None;
                tell_end(hears.as_ref());
                continue;
            }
            Some(which) = breaks.recv() => {
                // What is said of an earlier one is not about this one.
                session.take_if(|_| which == generation).inspect(|_| tell_end(hears.as_ref()));
                continue;
            }
            request = requests.recv() => request,
        };
        let Some(request) = request else { return };
        if session.is_none() {
            if let Some(error) = attempts.resting() {
                (request.tell)(Err(error));
                continue;
            }
            match Session::connect(&server, &tls, hears.clone()).await {
                Ok(connected) => {
                    (session, attempts) = (Some(connected), Attempts::default());
                    generation += 1;
                }
                Err(error) => {
                    (request.tell)(Err(error.clone()));
                    attempts.failed(error);
                    continue;
                }
            }
        }
        let Some(Session { client, .. }) = &session else { continue };
        let (client, tls) = (client.clone(), tls.clone());
        let task = ask(client, request, bound, tls, generation, broken.clone());
        let mut task = Box::pin(task);
        // The first poll sends it, so that the order is that of the queue.
        if poll_once(task.as_mut()).await.is_pending() {
            tokio::spawn(task);
        }
    }
}

/// Sends a statement, and says so if the session is of no more use.
async fn ask(
    client: Arc<Client>,
    request: Request,
    bound: Duration,
    tls: Tls,
    generation: u64,
    broken: UnboundedSender<u64>,
) {
    let cancel = client.cancel_token();
    if answered(client, request, bound).await == Then::Reconnect {
        let _ = broken.send(generation);
        // A session whose client is gone goes on until its statement ends, and one that waits for a standby may do so
        // for ever: they must not pile up.
        let _ = tokio::time::timeout(bound, cancel.cancel_query(tls)).await;
    }
}

/// The end of the session, if there is one.
async fn ended(session: &mut Option<Session>) {
    match session {
        Some(session) => drop((&mut session.reader).await),
        None => std::future::pending().await,
    }
}

fn tell_end(hears: Option<&Weak<Shared>>) {
    if let Some(shared) = hears.and_then(Weak::upgrade) {
        shared.session_ended();
    }
}

async fn poll_once<F: Future + ?Sized>(mut future: Pin<&mut F>) -> Poll<F::Output> {
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await
}

/// Sends a statement and tells the answer. Returns whether the session is still of use.
async fn answered(client: Arc<Client>, request: Request, bound: Duration) -> Then {
    let Request { statement, tell } = request;
    let mut repeats = REPEATS;
    let mut pause = Duration::ZERO;
    loop {
        let sent = SystemWorld.now();
        let (error, then) = match tokio::time::timeout(bound, query(&client, &statement)).await {
            Ok(Ok(rows)) => {
                tell(Ok((rows, sent)));
                return Then::Keep;
            }
            Ok(Err(error)) => {
                let fault = fault(&error);
                (fault.error, fault.then)
            }
            Err(_) => {
                let reason = format!("no answer for {}", humantime::format_duration(bound));
                let error = Error::new(ErrorKind::Unavailable, reason).next("is the server up?");
                (error.in_doubt(), Then::Reconnect)
            }
        };
        if then == Then::Repeat && repeats > 0 {
            repeats -= 1;
            tokio::time::sleep(pause).await;
            pause = (pause * 2).clamp(SHORTEST_PAUSE, LONGEST_PAUSE);
            continue;
        }
        tell(Err(error));
        return then;
    }
}

/// Sends a statement without a name, which works behind a pooler, too.
pub(super) async fn query(
    client: &Client,
    statement: &Statement,
) -> Result<Vec<Row>, tokio_postgres::Error> {
    let values: Vec<(&(dyn ToSql + Sync), Type)> = statement
        .values
        .iter()
        .map(|(value, ty)| (&**value as &(dyn ToSql + Sync), ty.clone()))
        .collect();
    client.query_typed(&statement.sql, &values).await
}
