//! Steps that travel in groups: each has its own answer and its own failure, whatever happens to the others.
//!
//! Claims that one task sends in a row, without waiting, are such a group: the first finds the connection quiet and
//! goes by itself, the others go together.

use std::sync::Arc;

use tenure::engine::{
    Claim, ClaimId, Engine, Fence, Grant, Leave, Left, Name, Renewal, Renewed, Space, Step,
    SystemWorld, Verdict, World,
};
use tenure::{Error, ErrorKind, Result};
use tenure_testkit::proxy::{Direction, Fault};
use tenure_testkit::servers::{Flavour, Redis};

use crate::redis_site::*;

fn claim(name: &str) -> Claim {
    Claim::new(Name::new(Space::Lock, name).unwrap(), SystemWorld.mint().unwrap())
}

fn claims(prefix: &str, count: usize) -> Vec<Claim> {
    (0..count).map(|number| claim(&format!("{prefix}{number}"))).collect()
}

fn leave(claim: &Claim) -> Leave {
    Leave::new(claim.name.clone(), claim.id)
}

async fn all<T>(steps: Vec<Step<T>>) -> Vec<Result<T>> {
    let mut answers = Vec::new();
    for step in steps {
        answers.push(soon(step).await);
    }
    answers
}

async fn claim_all(engine: &Arc<dyn Engine>, claims: &[Claim]) -> Vec<Result<Verdict>> {
    all(claims.iter().map(|claim| engine.claim(claim)).collect()).await
}

async fn leave_all(engine: &Arc<dyn Engine>, claims: &[Claim]) -> Vec<Result<Left>> {
    all(claims.iter().map(|claim| engine.leave(&leave(claim))).collect()).await
}

async fn renew_all(engine: &Arc<dyn Engine>, held: &[(Claim, Fence)]) -> Vec<Renewed> {
    let renewal = |(claim, fence): &(Claim, Fence)| {
        let (name, id, fence, ttl) = (claim.name.clone(), claim.id, *fence, claim.ttl);
        Renewal::Hold { name, id, fence, ttl }
    };
    let batch: Vec<_> = held.iter().map(renewal).collect();
    soon(engine.renew(0, &batch)).await.unwrap()
}

fn grant(verdict: Result<Verdict>) -> Grant {
    match verdict {
        Ok(Verdict::Granted(grant)) => grant,
        other => panic!("not granted: {other:?}"),
    }
}

async fn hold_all(engine: &Arc<dyn Engine>, claims: &[Claim]) -> Vec<(Claim, Fence)> {
    let fences = claim_all(engine, claims).await.into_iter().map(|it| grant(it).fence);
    claims.iter().cloned().zip(fences).collect()
}

/// How many scripts have run.
fn scripts(server: &Redis) -> u64 {
    calls(server, "eval") + calls(server, "evalsha")
}

fn forget_calls(server: &Redis) {
    server.command(&["CONFIG", "RESETSTAT"]).unwrap();
}

/// Meets all partitions, and sends the texts of all scripts.
async fn warm_up(engine: &Arc<dyn Engine>) {
    for round in 0..2 {
        let claims = claims(&format!("warm{round}."), 1_500);
        let held = hold_all(engine, &claims).await;
        renew_all(engine, &held).await;
        leave_all(engine, &claims).await;
    }
}

#[tokio::test]
async fn steps_ready_at_the_same_moment_are_one_call_and_a_step_alone_is_not_grouped() {
    for flavour in [Flavour::Debian, Flavour::Redis62, Flavour::Valkey] {
        let server = Redis::build().flavour(flavour).start().unwrap();
        let engine = engine(&server.url()).await;
        warm_up(&engine).await;
        for (count, groups) in [(1, 0), (2, 0), (3, 1), (65, 1), (66, 2), (640, 10)] {
            let claims = claims(&format!("{count}."), count);
            forget_calls(&server);
            let held = hold_all(&engine, &claims).await;
            // The first goes by itself, and so does one that nothing else is ready with.
            let alone = if groups == 0 { count } else { 1 };
            let calls_for_all = (alone + groups) as u64;
            assert_eq!(scripts(&server), calls_for_all, "{count} claims");
            assert_eq!(calls(&server, "set"), count as u64);
            forget_calls(&server);
            assert!(
                renew_all(&engine, &held).await.iter().all(|it| matches!(it, Renewed::Held(_)))
            );
            let expected = if count == 1 { 1 } else { count.div_ceil(64) as u64 };
            assert_eq!(scripts(&server), expected, "{count} renewals");
            forget_calls(&server);
            let left = leave_all(&engine, &claims).await;
            assert!(left.iter().all(|it| matches!(it, Ok(Left::Released))), "{left:?}");
            assert_eq!(scripts(&server), calls_for_all, "{count} leaves");
            assert_eq!(keys_of_names(&server), Vec::<String>::new());
        }
    }
}

#[tokio::test]
async fn a_group_is_no_larger_than_the_server_can_bear() {
    let server = server();
    let engine = engine(&server.url()).await;
    warm_up(&engine).await;
    let long = "x".repeat(400);
    let mut claims = claims(&long, 64);
    for claim in &mut claims {
        let mut details = (*claim.details).clone();
        details.reason = Some("y".repeat(1_000));
        claim.details = Arc::new(details);
    }
    forget_calls(&server);
    let held = hold_all(&engine, &claims).await;
    assert_eq!(scripts(&server), 3, "more than 64 KiB are two groups");
    assert!(renew_all(&engine, &held).await.iter().all(|it| matches!(it, Renewed::Held(_))));
}

#[tokio::test]
async fn a_name_that_is_held_falls_out_of_its_group_and_keeps_its_place() {
    let server = server();
    let proxy = proxy(&server);
    let (ours, _taker) = engine_with_taker(&through(&proxy, "")).await;
    let (theirs, _also) = engine_with_taker(&server.url()).await;
    let watch = connect(&server.url()).await;
    warm_up(&ours).await;
    let holder = claim("x");
    grant(soon(theirs.claim(&holder)).await);
    // The group is answered late: meanwhile another claim comes, and joins at once.
    proxy.hold(Direction::Downstream);
    let first: Vec<_> = ["a", "b", "x", "c", "x"].into_iter().map(claim).collect();
    let steps: Vec<_> = first.iter().map(|claim| ours.claim(claim)).collect();
    until("the group has run", async || holders(&watch, "c").await.len() == 1).await;
    let late = claim("x");
    let stands = soon(theirs.claim(&late)).await.unwrap();
    assert!(matches!(&stands, Verdict::Waiting(place) if place.ahead == 0), "{stands:?}");
    proxy.pass().unwrap();
    let answers = all(steps).await;
    let ahead = |verdict: &Result<Verdict>| match verdict {
        Ok(Verdict::Waiting(place)) => Some(place.ahead),
        _ => None,
    };
    let places: Vec<_> = answers.iter().map(ahead).collect();
    assert_eq!(places, [None, None, Some(0), None, Some(1)], "{answers:?}");
    let tickets: Vec<_> = match view(&watch, "x").await {
        Some(view) => view.waiters.iter().map(|waiter| waiter.ticket).collect(),
        None => Vec::new(),
    };
    let Verdict::Waiting(place) = stands else { panic!("it waits") };
    assert_eq!(tickets.last(), Some(&place.ticket), "whoever came last is the last in line");
}

#[tokio::test]
async fn leaves_of_a_group_make_room_for_its_claims() {
    let server = server();
    let engine = engine(&server.url()).await;
    warm_up(&engine).await;
    let before = claims("x", 8);
    hold_all(&engine, &before).await;
    let after = claims("x", 8);
    let lone = claim("lone");
    // In this order, so that each name is claimed before it is left.
    let first = engine.claim(&lone);
    let claimed: Vec<_> = after.iter().map(|claim| engine.claim(claim)).collect();
    let left: Vec<_> = before.iter().map(|claim| engine.leave(&leave(claim))).collect();
    grant(soon(first).await);
    assert!(all(left).await.iter().all(|left| matches!(left, Ok(Left::Released))));
    for verdict in all(claimed).await {
        grant(verdict);
    }
}

#[tokio::test]
async fn a_leave_of_a_name_that_others_wait_for_hands_over_even_from_a_group() {
    let server = server();
    let (ours, _taker) = engine_with_taker(&server.url()).await;
    let theirs = connect(&server.url()).await;
    warm_up(&ours).await;
    let held = claims("x", 4);
    hold_all(&ours, &held).await;
    let waiter = wait_for(&theirs, "x2", secs(30));
    until_waiting(&theirs, "x2", 1).await;
    let left = leave_all(&ours, &held).await;
    assert!(left.iter().all(|left| matches!(left, Ok(Left::Released))), "{left:?}");
    let next = served(waiter).await;
    // Nobody else's hold is ended by a group, whether others wait for it or not.
    let alone = claims("y", 4);
    hold_all(&ours, &alone).await;
    let mut strangers = [held, alone].concat();
    strangers.iter_mut().for_each(|claim| claim.id = SystemWorld.mint().unwrap());
    let left = leave_all(&ours, &strangers).await;
    assert!(left.iter().all(|left| matches!(left, Ok(Left::Gone(_)))), "{left:?}");
    assert_eq!(holders(&theirs, "x2").await, vec![next.fence().get()]);
    for number in 0..4 {
        assert_eq!(holders(&theirs, &format!("y{number}")).await.len(), 1);
    }
}

#[tokio::test]
async fn s12_a_group_whose_reply_is_lost_is_in_doubt_and_found_again() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    let watch = connect(&server.url()).await;
    drop(soon(tenure.mutex("first").acquire()).await.unwrap());
    for round in 0..5 {
        let name = |number: usize| format!("x{round}.{number}");
        proxy.hold(Direction::Downstream);
        let waiting: Vec<_> =
            (0..20).map(|number| tokio::spawn(tenure.mutex(name(number)).join())).collect();
        let mut granted = Vec::new();
        for number in 0..20 {
            until_held(&watch, &name(number)).await;
            granted.push(holders(&watch, &name(number)).await);
        }
        // The reply dies with its connection.
        proxy.refuse().unwrap();
        proxy.reset();
        until("the connection is cut", async || proxy.connections() == 0).await;
        proxy.pass().unwrap();
        for (number, waits) in waiting.into_iter().enumerate() {
            let hold = served(waits).await;
            assert_eq!(vec![hold.fence().get()], granted[number]);
            assert_eq!(holders(&watch, &name(number)).await, granted[number]);
        }
    }
}

/// No line of the protocol ends where a piece does: neither side may take a part for the whole.
#[tokio::test]
async fn a_group_that_travels_in_pieces_is_the_same_group() {
    let server = server();
    let proxy = proxy(&server);
    // A reply in pieces of one byte takes its time on a busy machine.
    let engine = engine(&through(&proxy, "?command_timeout=30s")).await;
    let watch = connect(&server.url()).await;
    warm_up(&engine).await;
    let (up, down) = (Direction::Upstream, Direction::Downstream);
    for (direction, size) in [(down, 1), (down, 7), (up, 61), (up, 997)] {
        proxy.set(direction, Fault::Pieces(size));
        let prefix = format!("{direction:?}{size}.");
        let claims = claims(&prefix, 40);
        forget_calls(&server);
        let held = hold_all(&engine, &claims).await;
        assert_eq!(scripts(&server), 2, "the first, and a group of the others");
        for (claim, fence) in &held {
            assert_eq!(holders(&watch, claim.name.as_str()).await, [fence.get()]);
        }
        assert!(renew_all(&engine, &held).await.iter().all(|it| matches!(it, Renewed::Held(_))));
        let left = leave_all(&engine, &claims).await;
        assert!(left.iter().all(|left| matches!(left, Ok(Left::Released))), "{left:?}");
        proxy.pass().unwrap();
    }
    assert_eq!(keys_of_names(&server), Vec::<String>::new());
}

#[tokio::test]
async fn s12_a_group_whose_reply_breaks_off_in_the_middle_is_in_doubt_and_found_again() {
    let server = server();
    let proxy = proxy(&server);
    let engine = engine(&through(&proxy, "")).await;
    let watch = connect(&server.url()).await;
    warm_up(&engine).await;
    let claims = claims("x", 40);
    proxy.set(Direction::Downstream, Fault::Pieces(1));
    let steps: Vec<_> = claims.iter().map(|claim| engine.claim(claim)).collect();
    until("the group has run", async || holders(&watch, "x39").await.len() == 1).await;
    // The reply takes a second to arrive.
    let before = proxy.delivered(Direction::Downstream);
    until("part has arrived", async || proxy.delivered(Direction::Downstream) > before + 90).await;
    proxy.reset();
    let first = all(steps).await;
    proxy.pass().unwrap();
    for answer in &first {
        match answer {
            Ok(answer) => assert!(matches!(answer, Verdict::Granted(_)), "{answer:?}"),
            Err(error) => assert!(error.may_have_happened(), "{error}"),
        }
    }
    // Part of a list is not a list: no step of a group has its answer before all of them do.
    let answered = first[1..].iter().filter(|answer| answer.is_ok()).count();
    assert!([0, 39].contains(&answered), "{first:?}");
    for (claim, fence) in hold_all(&engine, &claims).await {
        assert_eq!(holders(&watch, claim.name.as_str()).await, [fence.get()]);
    }
}

#[tokio::test]
async fn a_server_that_is_killed_within_a_group_grants_nothing_twice() {
    let server = server();
    let proxy = proxy(&server);
    let tenure = connect(&through(&proxy, "")).await;
    let mut last = vec![0; 20];
    for _ in 0..3 {
        // Either the requests or the replies are on the way when it dies.
        for direction in [Direction::Upstream, Direction::Downstream] {
            proxy.hold(direction);
            let waiting: Vec<_> = (0..20)
                .map(|number| {
                    tokio::spawn(tenure.mutex(format!("x{number}")).wait(secs(30)).join())
                })
                .collect();
            pause(ms(20)).await;
            server.kill().unwrap();
            proxy.reset();
            server.restart().unwrap();
            proxy.pass().unwrap();
            for (waits, last) in waiting.into_iter().zip(&mut last) {
                let fence = served(waits).await.fence().get();
                assert!(fence > *last);
                *last = fence;
            }
        }
    }
}

#[tokio::test]
async fn a_key_that_the_user_may_not_use_fails_only_its_own_step() {
    let users = [
        "user default on nopass ~* &* +@all",
        "user locks on >secret ~tenure:{*}:l:x* ~tenure:{*}:z:l:x* ~tenure:{*}:p &* +@all",
    ];
    let server = Redis::build().acl(&users).start().unwrap();
    let engine = engine(&server.url().replace("redis://", "redis://locks:secret@")).await;
    let mut claims = claims("x", 8);
    claims.insert(4, claim("forbidden"));
    let answers = claim_all(&engine, &claims).await;
    let mut held = Vec::new();
    for (claim, answer) in claims.iter().zip(answers) {
        match claim.name.as_str() {
            "forbidden" => assert_eq!(answer.unwrap_err().kind(), ErrorKind::Denied),
            _ => held.push((claim.clone(), grant(answer).fence)),
        }
    }
    held.insert(4, (claims[4].clone(), Fence::new(7)));
    for (at, renewed) in renew_all(&engine, &held).await.into_iter().enumerate() {
        match (at, renewed) {
            (4, Renewed::Unknown(error)) => assert_eq!(error.kind(), ErrorKind::Denied),
            (4, other) => panic!("renewed though it is forbidden: {other:?}"),
            (_, renewed) => assert!(matches!(renewed, Renewed::Held(_)), "{at}: {renewed:?}"),
        }
    }
    for (at, left) in leave_all(&engine, &claims).await.into_iter().enumerate() {
        match at {
            4 => assert_eq!(left.unwrap_err().kind(), ErrorKind::Denied),
            _ => assert_eq!(left.unwrap(), Left::Released),
        }
    }
    assert_eq!(keys_of_names(&server), Vec::<String>::new());
}

/// The kinds of errors, with nothing for successes.
fn failed<T>(answers: Vec<Result<T>>) -> Vec<Option<ErrorKind>> {
    answers.into_iter().map(|answer| answer.err().as_ref().map(Error::kind)).collect()
}

#[tokio::test]
async fn foreign_keys_in_the_middle_of_a_group_fail_only_their_own_steps() {
    let server = server();
    let engine = engine(&server.url()).await;
    let claims = claims("x", 12);
    hold_all(&engine, &claims).await;
    let keys: Vec<_> = claims.iter().map(|claim| key_of(&server, claim.name.as_str())).collect();
    leave_all(&engine, &claims).await;
    let held = self::claims("held", 4);
    hold_all(&engine, &held).await;
    // A name that is a list, and a partition that is a string.
    server.command(&["RPUSH", &keys[5], "theirs"]).unwrap();
    let partition = |key: &str| format!("{}p", key.split_inclusive("}:").next().unwrap());
    let theirs = partition(&keys[7]);
    server.command(&["SET", &theirs, "theirs"]).unwrap();
    let expected: Vec<_> = keys
        .iter()
        .enumerate()
        .map(|(at, key)| (at == 5 || partition(key) == theirs).then_some(ErrorKind::Conflict))
        .collect();
    // Leaves in the same group are done by then.
    let left: Vec<_> = held.iter().map(|claim| engine.leave(&leave(claim))).collect();
    let claimed: Vec<_> = claims.iter().map(|claim| engine.claim(claim)).collect();
    let left = all(left).await;
    assert!(left.iter().all(|left| matches!(left, Ok(Left::Released))), "{left:?}");
    assert_eq!(failed(all(claimed).await), expected);
    // Failed steps leave nothing behind.
    let held = keys_of_names(&server).len();
    assert_eq!(held, expected.iter().filter(|failed| failed.is_none()).count() + 1);
}

#[tokio::test]
async fn oom_a_full_server_refuses_every_claim_of_a_group_and_still_renews_and_releases_all() {
    let server = server();
    let engine = engine(&server.url()).await;
    let (held, more) = (claims("x", 8), claims("y", 8));
    let held = hold_all(&engine, &held).await;
    server.command(&["CONFIG", "SET", "maxmemory", "1"]).unwrap();
    let refused = failed(claim_all(&engine, &more).await);
    assert_eq!(refused, vec![Some(ErrorKind::Unavailable); 8]);
    assert!(renew_all(&engine, &held).await.iter().all(|it| matches!(it, Renewed::Held(_))));
    let held: Vec<_> = held.into_iter().map(|(claim, _)| claim).collect();
    assert_eq!(failed(leave_all(&engine, &held).await), vec![None; 8]);
    assert_eq!(keys_of_names(&server), Vec::<String>::new());
}

#[tokio::test]
async fn a_missing_right_leaves_no_step_of_a_group_half_done() {
    for flavour in [Flavour::Debian, Flavour::Redis62] {
        let users = ["user default on nopass ~* &* +@all", "user locks on >secret ~* &* +@all"];
        let server = Redis::build().flavour(flavour).acl(&users).start().unwrap();
        let engine = engine(&server.url().replace("redis://", "redis://locks:secret@")).await;
        let watch = connect(&server.url()).await;
        for command in ["mget", "get", "set", "del", "hincrby", "pttl", "pexpire", "evalsha"] {
            let held = hold_all(&engine, &claims(&format!("{command}.held"), 4)).await;
            server.command(&["ACL", "SETUSER", "locks", &format!("-{command}")]).unwrap();
            let more = claims(&format!("{command}.more"), 4);
            for (claim, answer) in more.iter().zip(claim_all(&engine, &more).await) {
                let holders = holders(&watch, claim.name.as_str()).await.len();
                assert_eq!(holders, usize::from(answer.is_ok()), "{command}: {answer:?}");
            }
            for renewed in renew_all(&engine, &held).await {
                let whole = matches!(renewed, Renewed::Held(_) | Renewed::Unknown(_));
                assert!(whole, "{command}: {renewed:?}");
            }
            let held: Vec<_> = held.into_iter().map(|(claim, _)| claim).collect();
            for (claim, answer) in held.iter().zip(leave_all(&engine, &held).await) {
                let holders = holders(&watch, claim.name.as_str()).await.len();
                assert_eq!(holders, usize::from(answer.is_err()), "{command}: {answer:?}");
            }
            server.command(&["ACL", "SETUSER", "locks", &format!("+{command}")]).unwrap();
        }
    }
}

#[tokio::test]
async fn what_must_not_travel_in_a_group_does_not() {
    let server = server();
    let url = format!("{}?after_restart=wait&max_ttl=60s", server.url());
    let engine = engine(&url).await;
    server.command(&["FLUSHALL"]).unwrap();
    let claims = claims("x", 8);
    let _ = claim_all(&engine, &claims).await;
    let _ = leave_all(&engine, &claims).await;
    assert_eq!(calls(&server, "mget"), 0, "the leaves of a group are looked up by MGET");
}

#[tokio::test]
async fn a_renewal_in_a_group_is_for_its_own_hold_alone() {
    let server = server();
    let engine = engine(&server.url()).await;
    let mut held = hold_all(&engine, &claims("x", 6)).await;
    let long = secs(3600);
    held[1].0.id = ClaimId::from_bytes([7; 16]);
    held[2].1 = Fence::new(held[2].1.get() + 2);
    held[3].0.name = Name::new(Space::Lock, "nobody's").unwrap();
    held[4].0.ttl = long;
    let told = renew_all(&engine, &held).await;
    for (at, renewed) in told.iter().enumerate() {
        match at {
            1..=3 => assert!(matches!(renewed, Renewed::Gone(_)), "{at}: {renewed:?}"),
            _ => assert!(matches!(renewed, Renewed::Held(_)), "{at}: {renewed:?}"),
        }
    }
    // A shorter ttl does not shorten it.
    held[4].0.ttl = secs(1);
    renew_all(&engine, &held).await;
    let left = |at: usize| {
        let key = key_of(&server, held[at].0.name.as_str());
        server.command(&["PTTL", &key]).unwrap().int().unwrap()
    };
    assert!(left(4) > 3_500_000 && left(0) <= 30_000, "{} {}", left(4), left(0));
}

#[tokio::test]
async fn numbers_that_a_server_has_lost_are_not_given_again_by_a_group() {
    let server = server();
    let engine = engine(&server.url()).await;
    let before = hold_all(&engine, &claims("x", 20)).await;
    leave_all(&engine, &before.iter().map(|(claim, _)| claim.clone()).collect::<Vec<_>>()).await;
    // This puts every partition where it was long ago, behind this connection's back.
    for partition in keys(&server).iter().filter(|key| key.ends_with("}:p")) {
        server.command(&["HSET", partition, "n", "1000000000000100"]).unwrap();
    }
    let after = hold_all(&engine, &claims("x", 20)).await;
    for ((claim, before), (_, after)) in before.iter().zip(&after) {
        assert!(after > before, "{}: {before:?} {after:?}", claim.name);
    }
}
