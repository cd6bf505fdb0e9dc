//! The claims that clients of this server wait for, and who is told of their turns.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use tenure::engine::{ClaimId, Engine, Leave, Name, Turn, Turns};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;

use crate::sessions::Session;

type HashMap<K, V> = hashbrown::HashMap<K, V, RandomState>;

/// How long a place is kept for a client that has no request here. A turn lasts just as long until it is confirmed.
pub(crate) const ABSENT_FOR: Duration = Duration::from_secs(2);

/// The claims that are waited for at this server, each with its listeners.
pub(crate) struct Waiting {
    table: Mutex<Table>,
    engine: Arc<dyn Engine>,
    stopping: watch::Receiver<bool>,
    own: Weak<Waiting>,
}

#[derive(Default)]
struct Table {
    claims: HashMap<(Name, ClaimId), Listeners>,
    /// Counts requests that began to listen.
    last: u64,
}

#[derive(Default)]
struct Listeners {
    requests: Vec<(u64, UnboundedSender<Turn>)>,
    session: Option<Arc<Session>>,
    /// When the last request ended, as the count of requests at that time.
    absent_since: u64,
}

impl fmt::Debug for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Waiting")
    }
}

/// A request that listens for the turn of its claim. When it is dropped, the place is kept for a while.
pub(crate) struct Listener {
    of: Arc<Waiting>,
    claim: (Name, ClaimId),
    number: u64,
    turns: UnboundedReceiver<Turn>,
    is_over: bool,
}

impl Waiting {
    pub(crate) fn new(engine: Arc<dyn Engine>, stopping: watch::Receiver<bool>) -> Arc<Waiting> {
        Arc::new_cyclic(|own| Waiting {
            table: Mutex::default(),
            engine,
            stopping,
            own: own.clone(),
        })
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to listen. Must come before the claim is sent, so that no turn comes too early.
    pub(crate) fn listen(self: &Arc<Waiting>, name: &Name, id: ClaimId) -> Listener {
        let (sender, turns) = unbounded_channel();
        let claim = (name.clone(), id);
        let mut table = self.table();
        table.last += 1;
        let number = table.last;
        table.claims.entry(claim.clone()).or_default().requests.push((number, sender));
        Listener { of: self.clone(), claim, number, turns, is_over: false }
    }

    /// Tells a session of the turns of this claim from now on.
    pub(crate) fn listen_for(&self, name: &Name, id: ClaimId, session: &Arc<Session>) {
        let mut table = self.table();
        table.claims.entry((name.clone(), id)).or_default().session = Some(session.clone());
    }

    /// No longer tells a session.
    pub(crate) fn forget(&self, name: &Name, id: ClaimId, session: &Arc<Session>) {
        let claim = (name.clone(), id);
        let mut table = self.table();
        let Some(listeners) = table.claims.get_mut(&claim) else { return };
        if listeners.session.as_ref().is_some_and(|known| Arc::ptr_eq(known, session)) {
            listeners.session = None;
            if listeners.requests.is_empty() {
                table.claims.remove(&claim);
            }
        }
    }

    /// The last request for a claim has ended. Unless another one comes, or a session listens, the claim leaves the
    /// line.
    fn ended(&self, claim: &(Name, ClaimId), number: u64, is_over: bool) {
        let mut table = self.table();
        let Some(listeners) = table.claims.get_mut(claim) else { return };
        listeners.requests.retain(|(other, _)| *other != number);
        if !listeners.requests.is_empty() || listeners.session.is_some() {
            return;
        }
        if is_over {
            table.claims.remove(claim);
            return;
        }
        listeners.absent_since = number;
        let (claim, own) = (claim.clone(), self.own.clone());
        // Outside a runtime the server is gone, and with it everyone who listened.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            tokio::time::sleep(ABSENT_FOR).await;
            if let Some(own) = own.upgrade() {
                own.give_up(claim, number).await;
            }
        });
    }

    /// Leaves the line for a client that did not come back, unless it waits at another server by now.
    async fn give_up(&self, claim: (Name, ClaimId), number: u64) {
        {
            let mut table = self.table();
            let Some(listeners) = table.claims.get(&claim) else { return };
            let is_back = !listeners.requests.is_empty() || listeners.session.is_some();
            if is_back || listeners.absent_since != number {
                return;
            }
            table.claims.remove(&claim);
        }
        // A server that shuts down leaves everything as it is: its clients go to another one.
        if *self.stopping.borrow() {
            return;
        }
        let (name, id) = claim;
        let leave = Leave { only_waiting: true, ..Leave::new(name, id) };
        if let Err(error) = self.engine.leave(&leave).await {
            tracing::debug!(event = "server.leave", %error);
        }
    }

    /// How many claims are waited for.
    pub(crate) fn len(&self) -> usize {
        self.table().claims.len()
    }
}

impl Turns for Waiting {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let mut table = self.table();
        let claim = (name.clone(), *id);
        let Some(listeners) = table.claims.get_mut(&claim) else { return false };
        let session = listeners.session.clone();
        // A client that is absent may come back within the turn's first life.
        let mut is_there = listeners.requests.is_empty() && session.is_none();
        for (_, sender) in &listeners.requests {
            is_there |= sender.send(turn.clone()).is_ok();
        }
        drop(table);
        match session {
            Some(session) => session.deliver(name, id, &turn) || is_there,
            None => is_there,
        }
    }

    fn look_again(&self, _shard: u32) {
        let table = self.table();
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        for listeners in table.claims.values() {
            for (_, sender) in &listeners.requests {
                let _ = sender.send(Turn::LookAgain);
            }
            if let Some(session) = &listeners.session
                && !sessions.iter().any(|known| Arc::ptr_eq(known, session))
            {
                sessions.push(session.clone());
            }
        }
        drop(table);
        sessions.iter().for_each(|session| session.look_again());
    }

    fn check_holds(&self, _shards: &[u32]) {
        let table = self.table();
        let mut sessions: Vec<Arc<Session>> = Vec::new();
        for session in table.claims.values().filter_map(|listeners| listeners.session.as_ref()) {
            if !sessions.iter().any(|known| Arc::ptr_eq(known, session)) {
                sessions.push(session.clone());
            }
        }
        drop(table);
        sessions.iter().for_each(|session| session.check_holds());
    }
}

impl Listener {
    /// The next message to the claim.
    pub(crate) async fn turn(&mut self) -> Turn {
        match self.turns.recv().await {
            Some(turn) => turn,
            // The table keeps the sender for as long as this exists.
            None => std::future::pending().await,
        }
    }

    /// A message that has already arrived.
    pub(crate) fn said(&mut self) -> Option<Turn> {
        self.turns.try_recv().ok()
    }

    /// The claim no longer waits.
    pub(crate) fn over(mut self) {
        self.is_over = true;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.of.ended(&self.claim, self.number, self.is_over);
    }
}
