//! Holds that their process hands over among its own claims: the server is told which fence has the hold, and gives the
//! process fences.

use std::sync::Arc;

use tenure::engine::{
    Broken, Claim, ClaimId, Details, Ended, Engine, ErrorKind, Fence, Fences, Keep, Kept, Leave,
    Left, Name, Note, Renewal, Renewed, Space, SystemWorld, Verdict, World,
};
use tenure::{Result, Tenure};
use tenure_testkit::proxy::Direction;
use tenure_testkit::servers::{Flavour, Redis};

use crate::redis_site::*;

const FLAVOURS: [Flavour; 3] = [Flavour::Debian, Flavour::Redis62, Flavour::Valkey];

fn claim(name: &str) -> Claim {
    Claim::new(Name::new(Space::Lock, name).unwrap(), SystemWorld.mint().unwrap())
}

/// The claim with this id has the hold now, and says this.
fn keep(claim: &Claim, fence: Fence, says: &str) -> Keep {
    let mut details = Details::default();
    details.owner = says.to_owned();
    let mut keep = Keep::new(claim.name.clone(), claim.id, fence, claim.ttl, Arc::new(details));
    keep.fences = 1_000;
    keep
}

async fn hold(engine: &Arc<dyn Engine>, claim: &Claim) -> Fence {
    match soon(engine.claim(claim)).await.unwrap() {
        Verdict::Granted(grant) => grant.fence,
        other => panic!("not granted: {other:?}"),
    }
}

fn fences(kept: Result<Kept>) -> Fences {
    match kept {
        Ok(Kept::Held { fences, .. }) => fences,
        other => panic!("not kept: {other:?}"),
    }
}

/// Keeps the hold until there are fences: right after a grant by the full rule the counter is at the clock.
async fn block(engine: &Arc<dyn Engine>, claim: &Claim, fence: Fence) -> Fences {
    loop {
        let given = fences(soon(engine.keep(&keep(claim, fence, "has it"))).await);
        if given.next <= given.last {
            return given;
        }
    }
}

/// The fence and the owner of the only holder, as operators see them.
async fn shown(tenure: &Tenure, name: &str) -> Option<(u64, String)> {
    let view = view(tenure, name).await?;
    let [holder] = &view.holders[..] else { return None };
    Some((holder.fence.get(), holder.details.owner.clone()))
}

/// A hold alone, which has the short form, and one with a claim behind it.
async fn both_forms(server: &Redis, engine: &Arc<dyn Engine>) -> [(Claim, Fence); 2] {
    let (alone, with_line) = (claim("alone"), claim("line"));
    let held = [(alone.clone(), hold(engine, &alone).await), {
        let fence = hold(engine, &with_line).await;
        (with_line.clone(), fence)
    }];
    let waits = claim("line");
    assert!(matches!(soon(engine.claim(&waits)).await.unwrap(), Verdict::Waiting(_)));
    let kind = |name| {
        let kind = server.command(&["TYPE", &key_of(server, name)]).unwrap();
        kind.text().unwrap().to_owned()
    };
    assert_eq!((kind("alone").as_str(), kind("line").as_str()), ("string", "hash"));
    held
}

#[tokio::test(flavor = "multi_thread")]
async fn s12_a_keep_whose_reply_is_lost_is_sent_again_and_changes_nothing_more() {
    let server = server();
    let proxy = proxy(&server);
    let (engine, _taker) = engine_with_taker(&through(&proxy, "")).await;
    let watch = connect(&server.url()).await;
    for (claim, fence) in both_forms(&server, &engine).await {
        let name = claim.name.as_str().to_owned();
        let next = Fence::new(block(&engine, &claim, fence).await.next);
        proxy.hold(Direction::Downstream);
        let unheard = engine.keep(&keep(&claim, next, "the next"));
        let told = Some((next.get(), "the next".to_owned()));
        until("it has arrived", async || shown(&watch, &name).await == told).await;
        let since = view(&watch, &name).await.unwrap().holders[0].held_for;
        proxy.refuse().unwrap();
        proxy.reset();
        let error = soon(unheard).await.unwrap_err();
        assert!(error.may_have_happened(), "{error}");
        until("the connection is cut", async || proxy.connections() == 0).await;
        proxy.pass().unwrap();
        // The block that nobody heard of is lost, and given to nobody else.
        let mut again = soon(engine.keep(&keep(&claim, next, "the next"))).await;
        while again.is_err() {
            again = soon(engine.keep(&keep(&claim, next, "the next"))).await;
        }
        let Ok(Kept::Held { grant, .. }) = &again else { panic!("not kept: {again:?}") };
        assert_eq!((grant.fence, grant.first_life), (next, false));
        assert_eq!(shown(&watch, &name).await, told);
        assert!(view(&watch, &name).await.unwrap().holders[0].held_for >= since);
        // One that arrives late, with an older fence, takes nothing back.
        let late = soon(engine.keep(&keep(&claim, fence, "the first"))).await;
        assert!(matches!(late, Ok(Kept::Gone(_))), "{late:?}");
        assert_eq!(shown(&watch, &name).await, told);
        let leave = Leave::new(claim.name.clone(), claim.id);
        assert_eq!(soon(engine.leave(&leave)).await.unwrap(), Left::Released);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_break_names_the_fence_that_was_told_last() {
    for flavour in FLAVOURS {
        let server = Redis::build().flavour(flavour).start().unwrap();
        let (engine, _taker) = engine_with_taker(&server.url()).await;
        for (claim, first) in both_forms(&server, &engine).await {
            let next = Fence::new(block(&engine, &claim, first).await.last);
            fences(soon(engine.keep(&keep(&claim, next, "the next"))).await);
            let note = Note { by: "an operator".into(), reason: "stuck".into() };
            let broken = |fence| soon(engine.break_hold(&claim.name, fence, &note));
            // A fence that was given to the process, and that nobody has told the server about, is none of a hold.
            for other in [first, Fence::new(next.get() - 1), Fence::new(next.get() + 1)] {
                assert_eq!(broken(other).await.unwrap(), Broken::MovedOn);
            }
            assert_eq!(broken(next).await.unwrap(), Broken::Done);
            let kept = soon(engine.keep(&keep(&claim, next, "the next"))).await;
            let Ok(Kept::Gone(Ended::Broken(said))) = &kept else { panic!("{kept:?}") };
            assert_eq!(*said, note);
        }
    }
}

/// The partition of a name.
fn partition(name: &Name) -> u64 {
    let hash = format!("l{name}").bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    });
    (hash >> 32 ^ hash) % 256
}

/// The numbers of one partition, in the order in which they were given.
#[derive(Default)]
struct Given(u64);

impl Given {
    fn next(&mut self, what: &str, fence: u64) {
        assert!(fence > self.0, "{what}: {fence} after {}", self.0);
        self.0 = fence;
    }

    fn block(&mut self, fences: Fences) {
        self.next("a block", fences.next);
        assert!(fences.last >= fences.next && fences.last < fences.next + 1_000);
        self.0 = fences.last;
    }
}

#[tokio::test]
async fn fences_rise_over_blocks_groups_lines_and_a_flush() {
    for flavour in FLAVOURS {
        let server = Redis::build().flavour(flavour).start().unwrap();
        let (engine, _taker) = engine_with_taker(&server.url()).await;
        let carrier = claim("x");
        let beside = (0..).map(|number| claim(&format!("n{number}")));
        let beside: Vec<_> = beside
            .filter(|claim| partition(&claim.name) == partition(&carrier.name))
            .take(12)
            .collect();
        let mut given = Given::default();
        let mut fence = hold(&engine, &carrier).await;
        given.next("a claim", fence.get());
        for round in 0..20 {
            let fences = block(&engine, &carrier, fence).await;
            given.block(fences);
            let clock = server.command(&["TIME"]).unwrap();
            let part = |at: usize| clock.list()[at].text().unwrap().parse::<u64>().unwrap();
            assert!(fences.last <= part(0) * 1_000_000 + part(1), "{fences:?} is above {clock}");
            fence = Fence::new(fences.last);
            // The first goes by itself, and the others in a group, by the short form of a claim.
            let claims: Vec<_> = beside.iter().map(|it| claim(it.name.as_str())).collect();
            let steps: Vec<_> = claims.iter().map(|claim| engine.claim(claim)).collect();
            let kept = engine.keep(&keep(&carrier, fence, "has it"));
            for step in steps {
                match soon(step).await.unwrap() {
                    Verdict::Granted(grant) => given.next("a claim in a group", grant.fence.get()),
                    other => panic!("not granted: {other:?}"),
                }
            }
            let fences = self::fences(soon(kept).await);
            if fences.next <= fences.last {
                given.block(fences);
            }
            // A place in line, and a turn that is given at a leave.
            let name = &claims[round % claims.len()];
            let waits = claim(name.name.as_str());
            let Verdict::Waiting(place) = soon(engine.claim(&waits)).await.unwrap() else {
                panic!("it waits")
            };
            given.next("a ticket", place.ticket.get());
            given.block(block(&engine, &carrier, fence).await);
            for claim in claims.iter().chain([&waits]) {
                let leave = Leave::new(claim.name.clone(), claim.id);
                soon(engine.leave(&leave)).await.unwrap();
            }
        }
        server.command(&["FLUSHALL"]).unwrap();
        let kept = soon(engine.keep(&keep(&carrier, fence, "has it"))).await;
        assert!(matches!(kept, Ok(Kept::Gone(Ended::Expired))), "{kept:?}");
        // One that comes now has seen none of these numbers.
        let (newcomer, _also) = engine_with_taker(&server.url()).await;
        let next = claim("x");
        given.next("a claim after a flush", hold(&newcomer, &next).await.get());
        let claims: Vec<_> = beside.iter().map(|it| claim(it.name.as_str())).collect();
        let steps: Vec<_> = claims.iter().map(|claim| engine.claim(claim)).collect();
        for step in steps {
            let Verdict::Granted(grant) = soon(step).await.unwrap() else { panic!("not granted") };
            given.next("a claim in a group after a flush", grant.fence.get());
        }
    }
}

/// The server has lost its counter and kept the name: what the process has seen is not given again.
#[tokio::test]
async fn a_partition_that_is_lost_repeats_no_fence_of_a_block() {
    let server = server();
    let (engine, _taker) = engine_with_taker(&server.url()).await;
    for (claim, first) in both_forms(&server, &engine).await {
        let mut fence = first;
        let key = key_of(&server, claim.name.as_str());
        let part = format!("{}}}:p", key.split_once('}').unwrap().0);
        for lost in [vec!["HSET", &part, "n", "1000000000000007"], vec!["DEL", &part]] {
            let before = block(&engine, &claim, fence).await;
            server.command(&lost).unwrap();
            // Nobody has told the server that this fence is in use.
            fence = Fence::new(before.last);
            let after = block(&engine, &claim, fence).await;
            assert!(after.next > before.last, "{after:?} after {before:?}, {lost:?}");
        }
    }
}

#[tokio::test]
async fn a_keep_arrives_before_whatever_the_same_connection_sends_after_it() {
    let server = server();
    let (engine, _taker) = engine_with_taker(&server.url()).await;
    for (claim, first) in both_forms(&server, &engine).await {
        let fences = block(&engine, &claim, first).await;
        let fence = |at: u64| Fence::new(fences.next + at);
        // Claims that are gathered for a group come before it, too.
        let beside: Vec<_> = (0..4).map(|at| self::claim(&format!("{}{at}", claim.name))).collect();
        let steps: Vec<_> = beside.iter().map(|claim| engine.claim(claim)).collect();
        let kept: Vec<_> = (0..5).map(|at| engine.keep(&keep(&claim, fence(at), "it"))).collect();
        let (name, id, ttl) = (claim.name.clone(), claim.id, claim.ttl);
        let renewed = engine.renew(0, &[Renewal::Hold { name, id, fence: fence(4), ttl }]);
        let last = engine.keep(&keep(&claim, fence(5), "it"));
        let mut leave = Leave::new(claim.name.clone(), claim.id);
        leave.only = Some(fence(5));
        let left = engine.leave(&leave);
        let late = engine.keep(&keep(&claim, fence(6), "it"));
        for step in steps {
            assert!(matches!(soon(step).await, Ok(Verdict::Granted(_))));
        }
        for step in kept.into_iter().chain([last]) {
            let kept = soon(step).await;
            assert!(matches!(kept, Ok(Kept::Held { .. })), "{kept:?}");
        }
        let renewed = soon(renewed).await.unwrap();
        assert!(matches!(renewed[..], [Renewed::Held(_)]), "{renewed:?}");
        assert_eq!(soon(left).await.unwrap(), Left::Released);
        let late = soon(late).await;
        assert!(matches!(late, Ok(Kept::Gone(_))), "{late:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn oom_a_full_server_still_keeps() {
    for flavour in FLAVOURS {
        let server = Redis::build().flavour(flavour).start().unwrap();
        let (engine, _taker) = engine_with_taker(&server.url()).await;
        let watch = connect(&server.url()).await;
        for (claim, first) in both_forms(&server, &engine).await {
            let next = Fence::new(block(&engine, &claim, first).await.next);
            server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
            fences(soon(engine.keep(&keep(&claim, next, "the next"))).await);
            let name = claim.name.as_str();
            assert_eq!(shown(&watch, name).await, Some((next.get(), "the next".to_owned())));
            block(&engine, &claim, next).await;
            let key = key_of(&server, name);
            let part = format!("{}}}:p", key.split_once('}').unwrap().0);
            server.command(&["DEL", &part]).unwrap();
            block(&engine, &claim, next).await;
            server.command(&["CONFIG", "SET", "maxmemory", "0"]).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_script_that_the_server_forgets_is_sent_again() {
    let server = server();
    let (engine, _taker) = engine_with_taker(&server.url()).await;
    let claim = claim("x");
    let fence = hold(&engine, &claim).await;
    let next = Fence::new(block(&engine, &claim, fence).await.next);
    server.command(&["SCRIPT", "FLUSH"]).unwrap();
    fences(soon(engine.keep(&keep(&claim, next, "the next"))).await);
}

/// A right that is taken away: a keep is done, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_right_leaves_no_keep_half_done() {
    let commands = [
        "hset",
        "hdel",
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
    for flavour in [Flavour::Debian, Flavour::Redis62] {
        let users = ["user default on nopass ~* &* +@all", "user locks on >secret ~* &* +@all"];
        let server = Redis::build().flavour(flavour).acl(&users).start().unwrap();
        let url = server.url().replace("redis://", "redis://locks:secret@");
        let (engine, _taker) = engine_with_taker(&url).await;
        let watch = connect(&server.url()).await;
        for (claim, first) in both_forms(&server, &engine).await {
            let name = claim.name.as_str();
            let mut fence = first;
            for command in commands {
                let next = Fence::new(block(&engine, &claim, fence).await.next);
                let before = shown(&watch, name).await;
                server.command(&["ACL", "SETUSER", "locks", &format!("-{command}")]).unwrap();
                let says = format!("without {command}");
                let kept = soon(engine.keep(&keep(&claim, next, &says))).await;
                server.command(&["ACL", "SETUSER", "locks", &format!("+{command}")]).unwrap();
                let after = shown(&watch, name).await;
                match kept {
                    Ok(Kept::Held { fences, .. }) => {
                        assert_eq!(after, Some((next.get(), says)));
                        let none = command == "hset" && name == "alone";
                        assert!(!none || fences.next > fences.last, "nobody counts {fences:?}");
                        fence = next;
                    }
                    Err(error) => {
                        assert_eq!(error.kind(), ErrorKind::Denied, "{command}: {error}");
                        assert_eq!(after, before, "{command}");
                    }
                    Ok(gone) => panic!("{command}: {gone:?}"),
                }
            }
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn after_restart_a_hold_is_kept_and_one_that_was_forgotten_is_gone() {
    let server = server();
    let url = format!("{}?after_restart=wait&max_ttl=1s&ttl=1s", server.url());
    let (engine, _taker) = engine_with_taker(&url).await;
    let mut claim = claim("x");
    claim.ttl = secs(1);
    let mut fence = None;
    until("it grants", async || match soon(engine.claim(&claim)).await.unwrap() {
        Verdict::Granted(grant) => {
            fence = Some(grant.fence);
            true
        }
        _ => false,
    })
    .await;
    let fences = block(&engine, &claim, fence.unwrap()).await;
    assert!(fences.next > fence.unwrap().get());
    server.command(&["FLUSHALL"]).unwrap();
    let kept = soon(engine.keep(&keep(&claim, Fence::new(fences.last), "it"))).await;
    assert!(matches!(kept, Ok(Kept::Gone(Ended::Expired))), "{kept:?}");
    // Nothing was granted meanwhile, and the wait begins again.
    claim.id = ClaimId::from_bytes([7; 16]);
    let verdict = soon(engine.claim(&claim)).await.unwrap();
    assert!(matches!(verdict, Verdict::Waiting(_)), "{verdict:?}");
}
