//! Rights that are revoked while the user holds and waits: no step is half done.

use std::sync::Arc;

use tenure::engine::{
    Claim, Engine, ErrorKind, Fence, Leave, Left, Name, Renewal, Renewed, Space, SystemWorld,
    Verdict, World,
};
use tenure::{Released, Tenure};
use tenure_testkit::servers::{Flavour, Redis};

use crate::redis_site::*;

/// All commands that the scripts use after their first write.
const COMMANDS: [&str; 16] = [
    "hset",
    "hdel",
    "hincrby",
    "hget",
    "hmget",
    "zadd",
    "zrem",
    "zcard",
    "zcount",
    "zrangebyscore",
    "pexpire",
    "del",
    "set",
    "get",
    "pttl",
    "time",
];

fn server_of(flavour: Flavour) -> Redis {
    let users = ["user default on nopass ~* &* +@all", "user locks on >secret ~* &* +@all"];
    Redis::build().flavour(flavour).acl(&users).start().unwrap()
}

fn url(server: &Redis) -> String {
    server.url().replace("redis://", "redis://locks:secret@")
}

fn set_user(server: &Redis, rule: &str) {
    server.command(&["ACL", "SETUSER", "locks", rule]).unwrap();
}

fn claim(name: &str, capacity: u32) -> Claim {
    let mut claim = Claim::new(Name::new(Space::Lock, name).unwrap(), SystemWorld.mint().unwrap());
    (claim.capacity, claim.fixed) = (capacity, capacity == 1);
    claim
}

/// Holders and waiters, by fence and ticket.
async fn facts(tenure: &Tenure, name: &str) -> (Vec<u64>, Vec<u64>) {
    let Some(view) = view(tenure, name).await else { return (Vec::new(), Vec::new()) };
    let holders = view.holders.iter().map(|holder| holder.fence.get()).collect();
    (holders, view.waiters.iter().map(|waiter| waiter.ticket.get()).collect())
}

async fn granted(engine: &Arc<dyn Engine>, claim: &Claim) -> Fence {
    match soon(engine.claim(claim)).await.unwrap() {
        Verdict::Granted(grant) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

async fn all_or_nothing(flavour: Flavour) {
    let server = server_of(flavour);
    let tenure = connect(&server.url()).await;
    let (ours, _takes) = engine_with_taker(&url(&server)).await;
    let (theirs, _also_takes) = engine_with_taker(&server.url()).await;
    for (command, capacity) in COMMANDS.iter().flat_map(|command| [(command, 1), (command, 2)]) {
        let name = format!("{command}{capacity}");
        let held: Vec<_> = (0..capacity).map(|_| claim(&name, capacity)).collect();
        let mut fence = Fence::default();
        for claim in &held {
            fence = granted(&ours, claim).await;
        }
        let waits = claim(&name, capacity);
        let stands = soon(theirs.claim(&waits)).await.unwrap();
        assert!(matches!(stands, Verdict::Waiting(_)));
        let before = facts(&tenure, &name).await;
        set_user(&server, &format!("-{command}"));
        // Another claim arrives, a hold is renewed, and one leaves: each of them is done, or not at all.
        let comes = claim(&name, capacity);
        let joined = soon(ours.claim(&comes)).await;
        let line = before.1.len() + usize::from(joined.is_ok());
        assert_eq!(facts(&tenure, &name).await.1.len(), line, "{command}: {joined:?}");
        let (id, ttl) = (held.last().unwrap().id, secs(20));
        let renewal = Renewal::Hold { name: comes.name.clone(), id, fence, ttl };
        let renewed = soon(ours.renew(0, &[renewal])).await.unwrap();
        assert!(matches!(renewed[0], Renewed::Held(_) | Renewed::Unknown(_)), "{renewed:?}");
        assert_eq!(facts(&tenure, &name).await.0, before.0, "{command}: {renewed:?}");
        let leave = Leave::new(comes.name.clone(), held[0].id);
        match soon(ours.leave(&leave)).await {
            Ok(left) => assert_eq!(left, Left::Released),
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Denied, "{command}: {error}");
                assert_eq!(facts(&tenure, &name).await.0, before.0, "{command}");
                set_user(&server, &format!("+{command}"));
                assert_eq!(soon(ours.leave(&leave)).await.unwrap(), Left::Released, "{command}");
            }
        }
        set_user(&server, &format!("+{command}"));
        // The next in line gets it in this very step.
        let after = facts(&tenure, &name).await;
        assert_eq!(after.0.len(), before.0.len(), "{command}: {before:?} {after:?}");
        assert!(after.0.iter().all(|fence| *fence != before.0[0]), "{command}: {after:?}");
        assert_eq!(after.1.len(), line - 1, "{command}: {after:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_right_leaves_no_step_half_done() {
    all_or_nothing(Flavour::Debian).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_right_leaves_no_step_half_done_on_the_oldest_redis() {
    all_or_nothing(Flavour::Redis62).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_no_longer_publish_still_releases_and_the_line_stays() {
    let server = server_of(Flavour::Debian);
    let (ours, theirs) = (connect(&url(&server)).await, connect(&server.url()).await);
    for shared in [false, true] {
        let name = format!("x{shared}");
        let capacity = if shared { 2 } else { 1 };
        let hold = ours.semaphore(&name, capacity).acquire_many(capacity).await.unwrap();
        let waits = tokio::spawn(theirs.semaphore(&name, capacity).join_many(capacity));
        until_waiting(&theirs, &name, 1).await;
        set_user(&server, "resetchannels");
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
        // It was not notified, and not skipped because of that: the next client notifies it.
        until_free(&theirs, &name).await;
        assert!(soon(theirs.semaphore(&name, capacity).try_acquire()).await.unwrap().is_none());
        drop(served(waits).await);
        set_user(&server, "allchannels");
        until("the user is let on", async || ours.health().await.is_ok()).await;
    }
}

/// Such a user cannot notify waiters, but they know that there is one.
#[tokio::test(flavor = "multi_thread")]
async fn waiters_behind_a_user_that_may_not_publish_ask_more_often() {
    for flavour in [Flavour::Debian, Flavour::Redis62] {
        let server = server_of(flavour);
        set_user(&server, "-publish");
        let (ours, theirs) = (connect(&url(&server)).await, connect(&server.url()).await);
        let hold = ours.mutex("x").acquire().await.unwrap();
        let waits = wait_for(&theirs, "x", secs(30));
        until_waiting(&theirs, "x", 1).await;
        // By then it has looked for the first time.
        pause(LOOKED).await;
        let released = now();
        assert_eq!(soon(hold.release()).await.unwrap(), Released::InTime);
        drop(served(waits).await);
        // Not at its next contact, which is 20 s after the last.
        assert!(now().since(released) < secs(8), "{:?}", now().since(released));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_may_no_longer_listen_asks_again_and_again() {
    let server = server_of(Flavour::Debian);
    let (ours, theirs) = (connect(&url(&server)).await, connect(&server.url()).await);
    let hold = theirs.mutex("x").acquire().await.unwrap();
    let waits = wait_for(&ours, "x", secs(30));
    until_waiting(&theirs, "x", 1).await;
    // The server closes the connection on which it listened.
    set_user(&server, "resetchannels");
    until("nobody hears it", async || view(&theirs, "x").await.unwrap().waiters.is_empty()).await;
    let released = now();
    hold.release().await.unwrap();
    drop(served(waits).await);
    // Not at its next contact, which is 20 s after the last.
    assert!(now().since(released) < secs(8), "{:?}", now().since(released));
}
