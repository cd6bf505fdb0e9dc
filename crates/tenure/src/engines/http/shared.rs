//! What the callers' side, the watchdog's and the IO thread share.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

use foldhash::fast::RandomState;
use hyper::header::HeaderValue;
use tokio::sync::watch;

use super::config::HttpConfig;
use super::protocol::{Event, TurnEvent};
use crate::engine::{Profile, Turns};
use crate::model::claim::{ClaimId, Fence, Leave, Turn};
use crate::model::error::{Error, Result};
use crate::model::moment::Moment;
use crate::model::name::Name;
use crate::world::{SystemWorld, World};

/// How many batches are remembered. The time left in a turn counts from one of them.
const REMEMBERED: usize = 256;
/// How long a server that is being upgraded may be away.
const PATIENCE: Duration = Duration::from_secs(15);
/// How long the first claims wait for the stream that brings their turns.
const STREAMS_WITHIN: Duration = Duration::from_secs(1);
/// The shortest ttl leaves room for one missed renewal.
const SHORTEST_TTL: Duration = Duration::from_secs(1);

pub(super) struct Shared {
    pub(super) config: HttpConfig,
    pub(super) label: String,
    pub(super) authorization: Option<HeaderValue>,
    /// The number that this process has given itself.
    pub(super) session: u128,
    batches: AtomicU64,
    sent: Mutex<VecDeque<(u64, Moment)>>,
    clients: RwLock<Vec<Weak<dyn Turns>>>,
    /// The claims that wait, each with the highest fence at the time when it was last told so: a turn with a lower
    /// one is stale.
    floors: Mutex<hashbrown::HashMap<ClaimId, Fence, RandomState>>,
    assumed: Profile,
    known: OnceLock<Profile>,
    engine_id: Mutex<Option<String>>,
    /// Whether the first stream brings turns, or could not be opened.
    first_stream: watch::Sender<bool>,
    closed: watch::Sender<bool>,
}

impl Shared {
    pub(super) fn new(config: HttpConfig) -> Result<Shared> {
        let authorization = match &config.token {
            None => None,
            Some(token) => {
                let value = HeaderValue::from_str(&format!("Bearer {token}"));
                let mut value = value.map_err(|_| Error::invalid("the token cannot be sent"))?;
                value.set_sensitive(true);
                Some(value)
            }
        };
        let label = config.label();
        let mut assumed = Profile::new(label.clone());
        (assumed.shortest_ttl, assumed.patience) = (SHORTEST_TTL, PATIENCE);
        Ok(Shared {
            session: u128::from_be_bytes(SystemWorld.mint()?.to_bytes()),
            config,
            label,
            authorization,
            batches: AtomicU64::new(0),
            sent: Mutex::default(),
            clients: RwLock::default(),
            floors: Mutex::default(),
            assumed,
            known: OnceLock::new(),
            engine_id: Mutex::default(),
            first_stream: watch::Sender::new(false),
            closed: watch::Sender::new(false),
        })
    }

    pub(super) fn profile(&self) -> &Profile {
        self.known.get().unwrap_or(&self.assumed)
    }

    /// Records what the engine behind the server promises.
    pub(super) fn learn(&self, mut profile: Profile) {
        profile.label = format!("{} ({})", self.label, profile.label);
        profile.shortest_ttl = profile.shortest_ttl.max(SHORTEST_TTL);
        profile.patience = profile.patience.max(PATIENCE);
        let _ = self.known.set(profile);
    }

    pub(super) fn attach(&self, turns: Weak<dyn Turns>) {
        let mut clients = self.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(turns);
    }

    fn clients(&self) -> Vec<Arc<dyn Turns>> {
        let clients = self.clients.read().unwrap_or_else(PoisonError::into_inner);
        clients.iter().filter_map(Weak::upgrade).collect()
    }

    fn floors(&self) -> MutexGuard<'_, hashbrown::HashMap<ClaimId, Fence, RandomState>> {
        self.floors.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The claim was told that it waits.
    pub(super) fn waits(&self, id: ClaimId, floor: Fence) {
        self.floors().insert(id, floor);
    }

    pub(super) fn forget(&self, id: &ClaimId) {
        self.floors().remove(id);
    }

    /// The number of a batch that is about to be sent.
    pub(super) fn next_batch(&self) -> (u64, Moment) {
        let mut sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        let number = self.batches.fetch_add(1, Relaxed) + 1;
        let now = SystemWorld.now();
        sent.push_back((number, now));
        if sent.len() > REMEMBERED {
            sent.pop_front();
        }
        (number, now)
    }

    fn sent_at(&self, batch: u64) -> Option<Moment> {
        let sent = self.sent.lock().unwrap_or_else(PoisonError::into_inner);
        sent.iter().find(|(number, _)| *number == batch).map(|(_, at)| *at)
    }

    /// An answer came from this engine. If it is not the same as before, it may have none of our claims.
    pub(super) fn heard_from(&self, engine: &str) {
        let mut known = self.engine_id.lock().unwrap_or_else(PoisonError::into_inner);
        let before = known.replace(engine.to_owned());
        drop(known);
        if before.is_some_and(|before| before != engine) {
            self.look_again();
        }
    }

    /// Makes all waiting claims ask again.
    pub(super) fn look_for_turns(&self) {
        self.clients().iter().for_each(|client| client.look_again(0));
    }

    /// Makes all waiting claims ask again, and has every hold renewed: turns and losses may have been missed.
    pub(super) fn look_again(&self) {
        for client in self.clients() {
            client.check_holds(&[0]);
            client.look_again(0);
        }
    }

    /// A stream has been opened, or could not be.
    pub(super) fn has_tried_to_stream(&self) {
        self.first_stream.send_replace(true);
    }

    /// Waits until a stream brings turns, because what is pushed before that is lost. Later streams are not waited
    /// for: everyone looks again once they are open.
    pub(super) async fn until_streaming(&self) {
        let mut tried = self.first_stream.subscribe();
        let _ = tokio::time::timeout(STREAMS_WITHIN, tried.wait_for(|tried| *tried)).await;
    }

    /// Handles what a stream has brought. Returns a leave for a grant that nobody takes.
    pub(super) fn hear(&self, event: Event) -> Option<Leave> {
        match event {
            Event::LookAgain => self.look_again(),
            Event::CheckHolds => self.clients().iter().for_each(|client| client.check_holds(&[0])),
            Event::Moving => {}
            Event::Turn { batch, name, id, turn } => return self.deliver(batch, &name, id, turn),
        }
        None
    }

    fn deliver(&self, batch: u64, name: &Name, id: ClaimId, turn: TurnEvent) -> Option<Leave> {
        let (turn, fence) = match self.sent_at(batch) {
            Some(sent) => turn.at(sent),
            // Nobody knows how old it is.
            None => (Turn::LookAgain, None),
        };
        if let Some(fence) = fence
            && self.floors().get(&id).is_some_and(|floor| fence <= *floor)
        {
            return None;
        }
        if matches!(turn, Turn::Ended(_) | Turn::Settled(_)) {
            self.forget(&id);
        }
        let taken = self.clients().iter().any(|client| client.deliver(name, &id, turn.clone()));
        let fence = fence.filter(|_| !taken)?;
        Some(Leave { only: Some(fence), unbegun: true, ..Leave::new(name.clone(), id) })
    }

    pub(super) fn close(&self) {
        self.closed.send_replace(true);
    }

    pub(super) fn is_closed(&self) -> bool {
        *self.closed.borrow()
    }

    pub(super) fn closing(&self) -> watch::Receiver<bool> {
        self.closed.subscribe()
    }
}
