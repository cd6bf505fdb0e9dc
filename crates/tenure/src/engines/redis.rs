//! `redis://`: lines kept by a Redis or Valkey server, alone, behind sentinels or in a cluster.
//!
//! Every step is one script that applies the rule of the ledger atomically and hands over by push.
//! `docs/engines/redis.md` says what is promised, what a restart or a failover can cost, and which
//! rights the user needs.

mod answer;
mod clock;
mod config;
mod drive;
mod examine;
mod guard;
mod halves;
mod handshake;
mod link;
mod parcel;
mod push;
mod pushed;
mod refusal;
mod resp;
mod roads;
mod scripts;
mod sentinels;
mod steps;
mod stream;
mod survey;
mod wire;

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock, Weak};
use std::time::Duration;

pub use config::{Address, AfterRestart, RedisConfig, Secret, Tls, Topology};

use crate::engine::{Ack, Engine, Finding, Page, Profile, Scope, Step, Turns};
use crate::model::claim::{
    Broken, Claim, ClaimId, Fence, Forgotten, Leave, Left, Note, OnceRecord, Renewal, Renewed,
    Verdict,
};
use crate::model::error::Result;
use crate::model::name::Name;
use crate::observe;
use crate::world::{SystemWorld, World};
use clock::Clocks;
use guard::Attention;
use link::{Duty, Link, Parcel, Reply, Target};
use push::Places;
use refusal::Refusal;
use roads::{Map, Roads};
use sentinels::Switch;
use steps::Steps;
use stream::TlsSetup;
use wire::{Layout, PARTITIONS, partition};

/// Lines kept by Redis. See [`Tenure::connect`](crate::Tenure::connect) for its URLs.
pub struct Redis {
    steps: Arc<Steps>,
}

/// What the callers' side and the watchdog's have in common.
pub(super) struct Shared {
    config: RedisConfig,
    tls: Option<TlsSetup>,
    layout: Layout,
    profile: Profile,
    is_cluster: bool,
    world: SystemWorld,
    clients: RwLock<Vec<Weak<dyn Turns>>>,
    places: Places,
    map: Map,
    /// The highest number seen of each partition. They count apart, so that the highest of all
    /// would push every partition on with each claim.
    seen: Box<[AtomicU64]>,
    highest_seen: AtomicU64,
    /// When all connections were last made anew.
    reconnected: AtomicU64,
    links: Mutex<Vec<Weak<Link>>>,
    attention: Attention,
    clocks: Clocks,
    /// The last change of the primary that a sentinel has told.
    switch: Mutex<Option<Switch>>,
    /// The side that hears pushes.
    callers: OnceLock<Weak<Steps>>,
    pid: u32,
    warned: AtomicBool,
    warned_of_muteness: AtomicBool,
}

impl Redis {
    /// Connects, logs in, and checks that the server can keep locks.
    ///
    /// # Cancel safety
    /// Safe: nothing is kept of a connection that was not returned.
    pub async fn connect(config: RedisConfig) -> Result<Redis> {
        let redis = Redis::unconnected(config)?;
        redis.reach().await?;
        Ok(redis)
    }

    /// Connects, if that was not done yet.
    pub(crate) async fn reach(&self) -> Result<()> {
        self.steps.shared.learn_map().await?;
        self.steps.health().await
    }

    /// Everything but the connections, which are made when something is asked.
    pub(crate) fn unconnected(config: RedisConfig) -> Result<Redis> {
        config.check()?;
        let mut process = [0; 8];
        process.copy_from_slice(&SystemWorld.mint()?.to_bytes()[..8]);
        let mut profile = Profile::new(config.label());
        profile.longest_ttl = config.longest_ttl();
        profile.patience = config.connect_timeout;
        let shared = Arc::new(Shared {
            tls: config.tls.as_ref().map(TlsSetup::new).transpose()?,
            layout: Layout::new(&config, process),
            profile,
            is_cluster: matches!(config.topology, Topology::Cluster(_)),
            world: SystemWorld,
            clients: RwLock::default(),
            places: Places::default(),
            map: Map::default(),
            seen: (0..PARTITIONS).map(|_| AtomicU64::new(0)).collect(),
            highest_seen: AtomicU64::new(0),
            reconnected: AtomicU64::new(0),
            links: Mutex::default(),
            attention: Attention::default(),
            clocks: Clocks::default(),
            switch: Mutex::default(),
            callers: OnceLock::new(),
            pid: std::process::id(),
            warned: AtomicBool::new(false),
            warned_of_muteness: AtomicBool::new(false),
            config,
        });
        let redis = Redis::on(shared, Duty::Data);
        let _ = redis.steps.shared.callers.set(Arc::downgrade(&redis.steps));
        Ok(redis)
    }

    fn on(shared: Arc<Shared>, duty: Duty) -> Redis {
        let roads = Roads::new(shared.clone(), duty);
        Redis { steps: Arc::new(Steps { shared, roads }) }
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        // A forked child has a copy of the links, and must not touch what the parent goes on using.
        if self.steps.shared.pid == std::process::id() {
            self.steps.roads.close();
        }
    }
}

impl fmt::Debug for Redis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Redis({})", self.steps.shared.profile.label)
    }
}

impl Engine for Redis {
    fn profile(&self) -> &Profile {
        &self.steps.shared.profile
    }

    fn attach(&self, turns: Weak<dyn Turns>) {
        let shared = &self.steps.shared;
        let mut clients = shared.clients.write().unwrap_or_else(PoisonError::into_inner);
        clients.retain(|client| client.strong_count() > 0);
        clients.push(turns);
    }

    fn claim(&self, claim: &Claim) -> Step<Verdict> {
        self.steps.claim(claim)
    }

    fn shard(&self, name: &Name) -> u32 {
        if self.steps.shared.is_cluster { partition(name).into() } else { 0 }
    }

    fn renew(&self, _shard: u32, batch: &[Renewal]) -> Step<Vec<Renewed>> {
        self.steps.renew(batch)
    }

    fn leave(&self, leave: &Leave) -> Step<Left> {
        self.steps.leave(leave)
    }

    fn leave_soon(&self, leave: Leave, done: Ack) {
        let Steps { shared, roads } = &*self.steps;
        let has_line = shared.places.forget(&leave.name, &leave.id);
        let request = shared.layout.leave(&leave, has_line);
        if let Ok(link) = roads.to(request.partition()) {
            let parcel = Parcel::new(Reply::Left(done, leave));
            link.send(&request, Parcel { lazy: true, ..parcel });
        }
    }

    fn detach(&self, name: &Name, id: &ClaimId) -> Step<()> {
        // The server keeps it in any case, and here nobody will leave it.
        self.steps.shared.places.forget(name, id);
        Step::ready(Ok(()))
    }

    fn resize(&self, name: &Name, capacity: u32) -> Step<()> {
        self.steps.resize(name, capacity)
    }

    fn break_hold(&self, name: &Name, fence: Fence, note: &Note) -> Step<Broken> {
        self.steps.break_hold(name, fence, note)
    }

    fn forget(&self, name: &Name, seen: &OnceRecord) -> Step<Forgotten> {
        self.steps.forget(name, seen)
    }

    fn inspect(&self, scope: &Scope) -> Step<Page> {
        self.steps.clone().inspect(scope.clone())
    }

    fn lifeline(&self) -> Option<Arc<dyn Engine>> {
        self.steps.shared.guard();
        Some(Arc::new(Redis::on(self.steps.shared.clone(), Duty::Lifeline)))
    }

    fn health(&self) -> Step<()> {
        self.steps.clone().is_healthy()
    }

    fn examine(&self) -> Step<Vec<Finding>> {
        let shared = self.steps.shared.clone();
        Step::pending(async move { shared.examine().await })
    }

    fn close(&self) -> Step<()> {
        self.steps.roads.close();
        Step::ready(Ok(()))
    }
}

impl Shared {
    fn links(&self) -> MutexGuard<'_, Vec<Weak<Link>>> {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        links.retain(|link| link.strong_count() > 0);
        links
    }

    fn switch(&self) -> MutexGuard<'_, Option<Switch>> {
        self.switch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sees to it that pushes come through, if this is called on a runtime.
    fn listen(&self) {
        let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
        links.iter().filter(|link| link.duty == Duty::Data).for_each(Link::wake_up);
    }

    /// The server at the end of `link` may not be the primary any more: what leads there is made anew.
    fn primary_changed(&self, link: &Link, why: &Refusal) {
        if self.is_cluster {
            if *why == Refusal::NotPrimary {
                link.reconnect();
            }
            return;
        }
        // Only sentinels would name another, and not more than once a second is asked.
        let asks = *why == Refusal::NotPrimary || matches!(link.target, Target::Sentinels);
        let now = self.world.now().as_nanos();
        let before = self.reconnected.load(Relaxed);
        if asks && now > before + 1_000_000_000 {
            self.reconnected.store(now, Relaxed);
            let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
            links.iter().for_each(|link| link.reconnect());
        }
    }

    /// How long a server may be silent while something is asked of it.
    fn longest_answer(&self) -> Duration {
        let RedisConfig { command_timeout, wait_replicas, wait_timeout, .. } = self.config;
        command_timeout + if wait_replicas > 0 { wait_timeout } else { Duration::ZERO }
    }

    fn someone_waits(&self) -> bool {
        !self.places.is_empty()
    }

    /// The partitions of a cluster in which someone waits for what this link must hear.
    fn waited_for_at(&self, link: &Link) -> Vec<u16> {
        let Target::Fixed(address) = &link.target else { return Vec::new() };
        if !self.is_cluster || link.duty != Duty::Data {
            return Vec::new();
        }
        let mut waited_for = self.places.partitions();
        waited_for.retain(|partition| self.map.owner(*partition).as_ref() == Some(address));
        waited_for
    }

    /// The partition lives there now. Whoever waits in it must be heard there.
    fn moved(&self, partition: u16, address: Address) {
        if self.map.set(partition, address) {
            self.taken_over(&[partition]);
        }
    }

    /// Other servers keep the partitions now, which may not know all that was granted. One that keeps
    /// a partition for the second time must hear that it does so anew.
    fn taken_over(&self, partitions: &[u16]) {
        let links: Vec<_> = self.links().iter().filter_map(Weak::upgrade).collect();
        for partition in partitions {
            links.iter().for_each(|link| link.greet_again(*partition));
            self.follow(*partition);
        }
        self.check_holds_in(partitions);
    }

    /// Sees to it that pushes for the partition come through from where it lives.
    fn follow(&self, partition: u16) {
        let steps = self.callers.get().and_then(Weak::upgrade);
        if let Some(steps) = steps.filter(|_| self.places.partitions().contains(&partition))
            && let Ok(link) = steps.roads.to(partition)
        {
            link.subscribe(partition);
        }
    }

    fn look_again_in(&self, shard: u16) {
        for client in self.clients() {
            client.look_again(shard.into());
        }
    }

    fn check_holds_in(&self, shards: &[u16]) {
        let shards: Vec<u32> = shards.iter().copied().map(Into::into).collect();
        for client in self.clients() {
            client.check_holds(&shards);
        }
    }

    /// Another server than before is at the end of `link`: it may not know what was granted last.
    fn is_another(&self, link: &Link) {
        match (&link.target, self.is_cluster) {
            (Target::Fixed(address), true) => self.check_holds_in(&self.map.all_kept_by(address)),
            _ => self.check_holds_in(&[0]),
        }
    }

    /// The server at the end of `link` does not keep the partition any more.
    fn unsubscribed(&self, link: &Link, channel: &str) {
        let tag = channel.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
        if let Some(partition) = tag.and_then(|(partition, _)| partition.parse().ok()) {
            link.unsubscribed(partition);
            self.follow(partition);
        }
    }

    fn saw(&self, partition: u16, fence: Fence) {
        // No fence is that high; a number from elsewhere must not stop the partition for ever.
        let possible = fence.get() < 1 << 53;
        if let Some(seen) = self.seen.get(usize::from(partition)).filter(|_| possible) {
            seen.fetch_max(fence.get(), Relaxed);
            self.highest_seen.fetch_max(fence.get(), Relaxed);
        }
    }

    /// The highest number that a claim must be above, as far as this process knows.
    fn seen_before(&self, claim: &Claim) -> Fence {
        if claim.seen.get() > self.highest_seen.load(Relaxed) {
            // From elsewhere, so it may be of this very name.
            return claim.seen;
        }
        Fence::new(self.seen[usize::from(partition(&claim.name))].load(Relaxed))
    }

    fn random(&self) -> u64 {
        self.world.mint().map(|id| id.bits()).unwrap_or_default()
    }

    fn warn_of_muteness(&self) {
        if !self.warned_of_muteness.swap(true, Relaxed) {
            let (engine, channels) = (&self.profile.label, self.layout.channels());
            tracing::warn!(
                %engine,
                channels,
                "engine.may_not_publish: this user may not publish, so that those who wait are served late"
            );
        }
    }

    fn warn_of_eviction(&self, policy: &str) {
        if !self.warned.swap(true, Relaxed) {
            observe::may_evict(&self.profile.label, policy);
        }
    }
}
