//! Holds that their process hands over among its own claims, where several servers keep them.

use std::sync::Arc;

use tenure::engine::{
    Claim, Ended, Engine, Fence, Fences, Keep, Kept, Name, Space, SystemWorld, Verdict, World,
};
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::{Cluster, Redis, Sentinels};

use super::sentinels::replicated;
use crate::redis_site::*;

fn claim(name: &str) -> Claim {
    Claim::new(Name::new(Space::Lock, name).unwrap(), SystemWorld.mint().unwrap())
}

fn keep(claim: &Claim, fence: Fence) -> Keep {
    let (name, id, ttl) = (claim.name.clone(), claim.id, claim.ttl);
    let mut keep = Keep::new(name, id, fence, ttl, claim.details.clone());
    keep.fences = 1_000;
    keep
}

/// Claims until it is granted: a server that has just come up may grant nothing for a second.
async fn hold(engine: &Arc<dyn Engine>, claim: &Claim) -> Fence {
    let mut fence = None;
    until("it grants", async || match soon(engine.claim(claim)).await {
        Ok(Verdict::Granted(grant)) => {
            fence = Some(grant.fence);
            true
        }
        _ => false,
    })
    .await;
    fence.unwrap()
}

/// Keeps the hold until the server answers.
async fn kept(engine: &Arc<dyn Engine>, claim: &Claim, fence: Fence) -> Kept {
    let mut kept = None;
    until("it answers", async || {
        kept = soon(engine.keep(&keep(claim, fence))).await.ok();
        kept.is_some()
    })
    .await;
    kept.unwrap()
}

/// The same, until there are fences.
async fn block(engine: &Arc<dyn Engine>, claim: &Claim, fence: Fence) -> Fences {
    loop {
        match kept(engine, claim, fence).await {
            Kept::Held { fences, .. } if fences.next <= fences.last => return fences,
            Kept::Held { .. } => {}
            gone => panic!("not kept: {gone:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s84_a_hold_that_is_handed_over_survives_a_failover_and_one_that_is_not_known_is_gone() {
    let servers = Sentinels::start(2).unwrap();
    let (engine, _taker) = engine_with_taker(&servers.url()).await;
    let claim = claim("x");
    let first = hold(&engine, &claim).await;
    let before = block(&engine, &claim, first).await;
    let fence = Fence::new(before.next);
    kept(&engine, &claim, fence).await;
    let former = servers.primary().unwrap();
    replicated(former, 2);
    former.kill().unwrap();
    servers.await_failover(former).unwrap();
    let after = block(&engine, &claim, Fence::new(before.last)).await;
    assert!(after.next > before.last, "{after:?} after {before:?}");
    // The new primary loses its memory.
    servers.primary().unwrap().command(&["FLUSHALL"]).unwrap();
    let gone = kept(&engine, &claim, Fence::new(after.last)).await;
    assert!(matches!(gone, Kept::Gone(Ended::Expired)), "{gone:?}");
    let (newcomer, _also) = engine_with_taker(&servers.url()).await;
    let next = hold(&newcomer, &self::claim("x")).await;
    assert!(next.get() > after.last, "{next} after {after:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_replicas_a_keep_that_the_replica_does_not_have_does_not_count() {
    let primary = server();
    let link = Proxy::start(primary.port()).unwrap();
    let _replica = Redis::build().replica_of(link.port()).start().unwrap();
    replicated(&primary, 1);
    let url = format!("{}?wait_replicas=1&wait_timeout=500ms&connect_timeout=2s", primary.url());
    let (engine, _taker) = engine_with_taker(&url).await;
    let claim = claim("x");
    let first = hold(&engine, &claim).await;
    let fence = Fence::new(block(&engine, &claim, first).await.next);
    link.hold(Direction::Upstream);
    let error = soon(engine.keep(&keep(&claim, fence))).await.unwrap_err();
    assert!(error.may_have_happened(), "{error}");
    assert!(error.to_string().contains("0 of 1 replicas"), "{error}");
    link.pass().unwrap();
    assert!(matches!(kept(&engine, &claim, fence).await, Kept::Held { .. }));
}

/// The key of the partition may be at one server and that of the name at the other.
#[tokio::test(flavor = "multi_thread")]
async fn s86_a_hold_is_kept_while_its_slot_moves() {
    let cluster = Cluster::start().unwrap();
    let (engine, _taker) = engine_with_taker(&cluster.url()).await;
    let names = (0..).map(|number| claim(&format!("n{number}")));
    let names: Vec<_> = names.filter(|claim| engine.shard(&claim.name) == 7).take(20).collect();
    let mut held = Vec::new();
    for claim in &names {
        held.push(hold(&engine, claim).await);
    }
    let mut last = 0;
    let slot = cluster.slot_of("{7}").unwrap();
    let owner = cluster.owner_of(slot).unwrap().port();
    let primaries = [0, 6000, 12000].map(|slot| cluster.owner_of(slot).unwrap());
    let to = primaries.into_iter().find(|node| node.port() != owner).unwrap();
    for phase in 0..4 {
        for (claim, fence) in names.iter().zip(&mut held) {
            // Without a refusal: every single keep counts.
            let kept = soon(engine.keep(&keep(claim, *fence))).await;
            let Ok(Kept::Held { fences, .. }) = kept else { panic!("phase {phase}: {kept:?}") };
            if fences.next <= fences.last {
                assert!(fences.next > last, "phase {phase}");
                (last, *fence) = (fences.last, Fence::new(fences.last));
            }
        }
        match phase {
            0 => cluster.begin_move(slot, to).unwrap(),
            1 => {
                // Only the partition moves, then the rest.
                let from = cluster.nodes().iter().find(|node| node.port() == owner).unwrap();
                let port = to.port().to_string();
                let moved =
                    from.command(&["MIGRATE", "127.0.0.1", &port, "tenure:{7}:p", "0", "5000"]);
                assert_eq!(moved.unwrap().text(), Some("OK"));
            }
            2 => {
                cluster.migrate_keys(slot, to).unwrap();
                cluster.finish_move(slot, to).unwrap();
                cluster.settle().unwrap();
            }
            _ => {}
        }
    }
    for (claim, fence) in names.iter().zip(&held) {
        let fences = block(&engine, claim, *fence).await;
        assert!(fences.next > last);
        last = fences.last;
    }
}
