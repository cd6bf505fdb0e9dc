//! What stays the same for as long as an engine is open: its configuration, and what follows from it.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::config::{RedisConfig, Topology};
use super::connection::stream::TlsSetup;
use super::protocol::layout::Layout;
use crate::engine::Profile;
use crate::model::error::Result;
use crate::model::moment::Moment;
use crate::observe;
use crate::world::{SystemWorld, World};

pub(super) struct Setup {
    pub(super) config: RedisConfig,
    pub(super) tls: Option<TlsSetup>,
    pub(super) layout: Layout,
    pub(super) profile: Profile,
    pub(super) is_cluster: bool,
    warned_of_eviction: AtomicBool,
    warned_of_muteness: AtomicBool,
}

impl Setup {
    pub(super) fn new(config: RedisConfig) -> Result<Setup> {
        config.check()?;
        let mut process = [0; 8];
        process.copy_from_slice(&SystemWorld.mint()?.to_bytes()[..8]);
        let mut profile = Profile::new(config.label());
        profile.longest_ttl = config.longest_ttl();
        profile.patience = config.connect_timeout;
        profile.hands_over = true;
        Ok(Setup {
            tls: config.tls.as_ref().map(TlsSetup::new).transpose()?,
            layout: Layout::new(&config, process),
            profile,
            is_cluster: matches!(config.topology, Topology::Cluster(_)),
            warned_of_eviction: AtomicBool::new(false),
            warned_of_muteness: AtomicBool::new(false),
            config,
        })
    }

    pub(super) fn now(&self) -> Moment {
        SystemWorld.now()
    }

    pub(super) fn random(&self) -> u64 {
        SystemWorld.mint().map(|id| id.bits()).unwrap_or_default()
    }

    /// How long a server may be silent while an answer is due.
    pub(super) fn longest_answer(&self) -> Duration {
        let RedisConfig { command_timeout, wait_replicas, wait_timeout, .. } = self.config;
        command_timeout + if wait_replicas > 0 { wait_timeout } else { Duration::ZERO }
    }

    pub(super) fn warn_of_muteness(&self) {
        if !self.warned_of_muteness.swap(true, Relaxed) {
            let (engine, channels) = (&self.profile.label, self.layout.channels());
            tracing::warn!(
                %engine,
                channels,
                "engine.may_not_publish: this user may not publish, so waiters are served late"
            );
        }
    }

    pub(super) fn warn_of_eviction(&self, policy: &str) {
        if !self.warned_of_eviction.swap(true, Relaxed) {
            observe::may_evict(&self.profile.label, policy);
        }
    }
}
