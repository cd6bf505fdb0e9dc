//! The faulty engine: an engine behind a bad network.
//!
//! It wraps an engine and carries each request, answer and push over a link that delays, loses, duplicates and
//! breaks, as the seed determines. A link keeps the order, as a connection does. When it breaks, requests under
//! way may still take effect later, and their answers are lost. A request that was sent takes effect even if
//! its caller gives up.
//!
//! On virtual time the order is exact. On real time a link without delays keeps it only approximately.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tenure::engine::{
    Ack, Broken, Claim, ClaimId, Engine, Error, ErrorExt, ErrorKind, Fence, Finding, Forgotten,
    Grant, Keep, Kept, Leave, Left, Moment, Name, Note, OnceRecord, Page, Place, Profile, Renewal,
    Renewed, Result, Scope, Step, Turn, Turns, Verdict, World,
};

use crate::rng::Rng;
use crate::runtime::Runtime;

/// How bad the network is. Probabilities are per thousand.
#[derive(Clone, Copy, Debug)]
pub struct Faults {
    /// The minimum and maximum delay of a message, in microseconds.
    pub latency: (u64, u64),
    /// A request breaks the link.
    pub cut: u64,
    /// A request arrives twice.
    pub duplicate: u64,
    /// A push is lost although the link holds.
    pub lost_push: u64,
    /// A later message overtakes a push, as if the push had a connection of its own.
    pub late_push: u64,
    /// The time-out of a caller.
    pub time_out: Duration,
}

impl Faults {
    /// A network without faults.
    pub const NONE: Faults = Faults {
        latency: (0, 0),
        cut: 0,
        duplicate: 0,
        lost_push: 0,
        late_push: 0,
        time_out: Duration::from_secs(2),
    };
}

/// A network fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mishap {
    /// A link broke.
    Cut,
    /// A push was lost.
    LostPush,
    /// A push was delayed by this much.
    LatePush(Duration),
}

/// An engine behind a bad network.
#[derive(Clone)]
pub struct Faulty {
    shared: Arc<Shared>,
    link: Arc<Mutex<Link>>,
}

/// The faults for one client, with their times.
pub type MishapLog = Arc<Mutex<Vec<(Moment, Mishap)>>>;

struct Shared {
    engine: Arc<dyn Engine>,
    /// The world in which messages travel: it outlives the client.
    network: Arc<dyn Runtime>,
    /// The client's clock, which stamps answers.
    world: Arc<dyn World>,
    faults: Faults,
    rng: Mutex<Rng>,
    is_dead: Box<dyn Fn() -> bool + Send + Sync>,
    data: Arc<Mutex<Link>>,
    /// The claims of this client. For each, when its last request that was answered "waiting" was sent, and its
    /// floor: the base of a pushed turn. An answer that reports the grant is no base, because the grant is
    /// older than it.
    contacts: Mutex<HashMap<ClaimId, Option<(Moment, Fence)>>>,
    mishaps: MishapLog,
    pushes: OnceLock<Arc<Pushes>>,
}

/// When the previous request of one direction has arrived; the other direction is for answers.
#[derive(Default)]
struct Link {
    epoch: u64,
    last_request: Moment,
    last_answer: Moment,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The fate of a request.
struct Trip {
    epoch: u64,
    delay: Duration,
    arrives: bool,
    twice: bool,
}

impl Faulty {
    /// Wraps `engine` for one client, which lives in `world` until `is_dead` returns true.
    pub fn new(
        engine: Arc<dyn Engine>,
        network: Arc<dyn Runtime>,
        world: Arc<dyn World>,
        faults: Faults,
        rng: Rng,
        is_dead: impl Fn() -> bool + Send + Sync + 'static,
    ) -> Faulty {
        let data = Arc::new(Mutex::new(Link::default()));
        let shared = Shared {
            engine,
            network,
            world,
            faults,
            rng: Mutex::new(rng),
            is_dead: Box::new(is_dead),
            data: data.clone(),
            contacts: Mutex::default(),
            mishaps: Arc::default(),
            pushes: OnceLock::new(),
        };
        Faulty { shared: Arc::new(shared), link: data }
    }

    /// The faults so far, with their times by the network's clock.
    pub fn mishaps(&self) -> MishapLog {
        self.shared.mishaps.clone()
    }

    /// Decides the fate of a request when it is sent.
    fn depart(&self) -> Trip {
        let shared = &self.shared;
        let mut rng = lock(&shared.rng);
        let (low, high) = shared.faults.latency;
        let now = shared.network.now();
        let mut link = lock(&self.link);
        let mut arrival = (now + rng.micros(low, high)).max(link.last_request + TICK);
        let cut = rng.chance(shared.faults.cut);
        let trip = Trip {
            epoch: link.epoch,
            delay: Duration::ZERO,
            arrives: !cut || rng.chance(500),
            twice: rng.chance(shared.faults.duplicate),
        };
        if cut {
            shared.went_wrong(Mishap::Cut);
            // Messages of the old link may arrive later than those of the new one.
            arrival = arrival + rng.micros(0, 3_000_000);
            link.epoch += 1;
            link.last_request = now;
            drop((link, rng));
            self.reconnect();
        } else {
            link.last_request = arrival;
        }
        Trip { delay: now.until(arrival), ..trip }
    }

    /// A new link: pushes may have been lost with the old one.
    fn reconnect(&self) {
        let shared = self.shared.clone();
        let network = shared.network.clone();
        let pause = shared.latency();
        network.clone().start(Box::pin(async move {
            network.sleep(pause).await;
            if let Some(turns) = shared.turns() {
                turns.look_again(0);
            }
        }));
    }

    /// Carries a request to the engine and its answer back.
    fn carry<T, A, H>(
        &self,
        act: A,
        heard: H,
    ) -> impl Future<Output = Result<T>> + Send + use<T, A, H>
    where
        T: Send + 'static,
        A: Fn(&dyn Engine) -> Step<T> + Send + 'static,
        H: FnOnce(&Shared, T, Moment) -> T + Send + 'static,
    {
        let Trip { epoch, delay, arrives, twice } = self.depart();
        let (shared, link) = (self.shared.clone(), self.link.clone());
        let sent = shared.world.now();
        let network = shared.network.clone();
        let dead = (shared.is_dead)();
        let answer = network.spawn(async move {
            if dead {
                return None;
            }
            shared.network.sleep(delay).await;
            if !arrives {
                return None;
            }
            let answer = act(&*shared.engine).await;
            if twice {
                let _ = act(&*shared.engine).await;
            }
            let back = shared.answer_delay(&link);
            shared.network.sleep(back).await;
            let whole = lock(&link).epoch == epoch && !(shared.is_dead)();
            whole.then(|| answer.map(|answer| heard(&shared, answer, sent)))
        });
        let time_out = self.shared.faults.time_out;
        async move {
            match network.within(time_out, answer).await {
                Some(Some(answer)) => answer,
                Some(None) => Err(unavailable("the connection broke")),
                None => Err(unavailable("no answer in time")),
            }
        }
    }
}

const TICK: Duration = Duration::from_nanos(1);

fn unavailable(reason: &str) -> Error {
    Error::new(ErrorKind::Unavailable, reason).in_doubt()
}

impl Shared {
    fn went_wrong(&self, mishap: Mishap) {
        lock(&self.mishaps).push((self.network.now(), mishap));
    }

    fn latency(&self) -> Duration {
        let (low, high) = self.faults.latency;
        lock(&self.rng).micros(low, high)
    }

    fn answer_delay(&self, link: &Mutex<Link>) -> Duration {
        let now = self.network.now();
        let latency = self.latency();
        let mut link = lock(link);
        link.last_answer = (now + latency).max(link.last_answer + TICK);
        now.until(link.last_answer)
    }

    fn turns(&self) -> Option<Arc<dyn Turns>> {
        self.pushes.get().and_then(|pushes| pushes.to.upgrade())
    }

    fn verdict(&self, id: ClaimId, verdict: Verdict, sent: Moment) -> Verdict {
        match verdict {
            Verdict::Granted(grant) => Verdict::Granted(restamp(grant, sent)),
            Verdict::Waiting(place) => Verdict::Waiting(self.place(id, place, sent)),
            other => other,
        }
    }

    fn renewed(&self, renewal: &Renewal, renewed: Renewed, sent: Moment) -> Renewed {
        match (renewal, renewed) {
            (_, Renewed::Held(grant)) => Renewed::Held(restamp(grant, sent)),
            (Renewal::Place(claim), Renewed::Waiting(place)) => {
                Renewed::Waiting(self.place(claim.id, place, sent))
            }
            (_, other) => other,
        }
    }

    /// When the engine wants the claim to look, counted from the send on the client's clock.
    fn place(&self, id: ClaimId, place: Place, sent: Moment) -> Place {
        let mut contacts = lock(&self.contacts);
        let known = contacts.entry(id).or_default();
        *known = Some((sent, place.floor)).max(*known);
        let look_again = match place.look_again {
            Moment::FAR => Moment::FAR,
            at => sent + self.network.now().until(at),
        };
        Place { asked_at: sent, look_again, ..place }
    }
}

/// The same grant, counted from another send time.
fn restamp(grant: Grant, sent: Moment) -> Grant {
    let remaining = grant.sent.until(grant.start_by) * 2;
    Grant::new(grant.fence, sent, remaining, grant.first_life)
}

/// The turns of the wrapped engine, on their way to the client.
struct Pushes {
    to: Weak<dyn Turns>,
    faulty: Weak<Shared>,
}

impl Turns for Pushes {
    fn deliver(&self, name: &Name, id: &ClaimId, turn: Turn) -> bool {
        let Some(shared) = self.faulty.upgrade() else { return false };
        if (shared.is_dead)() || !lock(&shared.contacts).contains_key(id) {
            return false;
        }
        if lock(&shared.rng).chance(shared.faults.lost_push) {
            shared.went_wrong(Mishap::LostPush);
            return true;
        }
        let epoch = lock(&shared.data).epoch;
        let mut delay = shared.answer_delay(&shared.data);
        if lock(&shared.rng).chance(shared.faults.late_push) {
            let late = lock(&shared.rng).micros(0, 5_000_000);
            shared.went_wrong(Mishap::LatePush(late));
            delay += late;
        }
        let (name, id) = (name.clone(), *id);
        let network = shared.network.clone();
        network.start(Box::pin(async move {
            shared.network.sleep(delay).await;
            if lock(&shared.data).epoch == epoch && !(shared.is_dead)() {
                push(&shared, name, id, turn);
            }
        }));
        true
    }

    fn look_again(&self, shard: u32) {
        if let Some(turns) = self.to.upgrade() {
            turns.look_again(shard);
        }
    }
}

/// The push has arrived.
fn push(shared: &Arc<Shared>, name: Name, id: ClaimId, turn: Turn) {
    let Some(turns) = shared.turns() else { return };
    let base = lock(&shared.contacts).get(&id).copied().flatten();
    let turn = match (turn, base) {
        // Older than its base, which the client may not know yet.
        (Turn::Granted(grant), Some((_, floor))) if grant.fence <= floor => return,
        (Turn::Granted(grant), Some((sent, _))) => Turn::Granted(restamp(grant, sent)),
        // Without a base, its end is unknown.
        (Turn::Granted(_), None) => Turn::LookAgain,
        (Turn::LookAt(at), _) => Turn::LookAt(shared.world.now() + shared.network.now().until(at)),
        (other, _) => other,
    };
    let fence = match &turn {
        Turn::Granted(grant) => Some(grant.fence),
        _ => None,
    };
    if !turns.deliver(&name, &id, turn) && fence.is_some() {
        let faulty = Faulty { shared: shared.clone(), link: shared.data.clone() };
        // As in every engine: a once that nobody has taken was not begun.
        let leave = Leave { only: fence, unbegun: true, ..Leave::new(name, id) };
        let left = faulty.carry(move |engine| engine.leave(&leave), |_, left, _| left);
        shared.network.start(Box::pin(async move { drop(left.await) }));
    }
}

impl Engine for Faulty {
    fn profile(&self) -> &Profile {
        self.shared.engine.profile()
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let pushes = Arc::new(Pushes { to: turns, faulty: Arc::downgrade(&self.shared) });
        let weak: Weak<dyn Turns> = Arc::downgrade(&pushes) as _;
        assert!(self.shared.pushes.set(pushes).is_ok(), "one client for each faulty engine");
        self.shared.engine.attach(weak);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        let (claim, id) = (claim.clone(), claim.id);
        lock(&self.shared.contacts).entry(id).or_default();
        let act = move |engine: &dyn Engine| engine.claim(&claim);
        Step::pending(
            self.carry(act, move |shared, verdict, sent| shared.verdict(id, verdict, sent)),
        )
    }

    fn shard(&self, name: &Name) -> u32 {
        self.shared.engine.shard(name)
    }

    fn renew(&self, shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        let batch: Arc<[Renewal]> = batch.into();
        let asked = batch.clone();
        let act = move |engine: &dyn Engine| engine.renew(shard, &asked);
        let heard = move |shared: &Shared, answers: Vec<Renewed>, sent| {
            let pairs = batch.iter().zip(answers);
            pairs.map(|(renewal, answer)| shared.renewed(renewal, answer, sent)).collect()
        };
        Step::pending(self.carry(act, heard))
    }

    fn keep(&self, keep: &Keep) -> Step<Kept> {
        let keep = keep.clone();
        let heard = |_: &Shared, kept: Kept, sent| match kept {
            Kept::Held { grant, waiting, fences } => {
                Kept::Held { grant: restamp(grant, sent), waiting, fences }
            }
            gone => gone,
        };
        Step::pending(self.carry(move |engine| engine.keep(&keep), heard))
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        let leave = leave.clone();
        Step::pending(self.carry(move |engine| engine.leave(&leave), |_, left, _| left))
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let answer = self.carry(move |engine| engine.leave(&leave), |_, left, _| left);
        self.shared.network.start(Box::pin(async move { done.done(answer.await) }));
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        let (name, id) = (name.clone(), *id);
        Step::pending(self.carry(move |engine| engine.detach(&name, &id), |_, done, _| done))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        let name = name.clone();
        Step::pending(self.carry(move |engine| engine.resize(&name, capacity), |_, done, _| done))
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        let (name, note) = (name.clone(), note.clone());
        let act = move |engine: &dyn Engine| engine.break_hold(&name, fence, &note);
        Step::pending(self.carry(act, |_, done, _| done))
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        let (name, seen) = (name.clone(), seen.clone());
        let act = move |engine: &dyn Engine| engine.forget(&name, &seen);
        Step::pending(self.carry(act, |_, done, _| done))
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        let scope = scope.clone();
        Step::pending(self.carry(move |engine| engine.inspect(&scope), |_, page, _| page))
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        Some(Arc::new(Faulty { shared: self.shared.clone(), link: Arc::default() }))
    }

    fn health(&self) -> Step<()> {
        Step::pending(self.carry(|engine| engine.health(), |_, done, _| done))
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        Step::pending(self.carry(|engine| engine.examine(), |_, found, _| found))
    }

    fn close(&self) -> Step<()> {
        Step::ready(Ok(()))
    }
}

impl fmt::Debug for Faulty {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Faulty({:?})", self.shared.engine)
    }
}

impl fmt::Debug for Pushes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pushes")
    }
}
