//! Acquire, renew, read, release, wait, once.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::Outcome;
use tenure::engine::{
    Claim, Engine as _, Leave, Name, OnceTerms, Settle, Space, SystemWorld, Verdict, World as _,
};
use tenure::engines::memory::Memory;
use tenure_server::{Config, Credentials, Key};

use super::probe::{Site, claim};

#[tokio::test]
async fn a_hold_is_acquired_renewed_and_released() {
    let site = Site::memory().await;
    let body = format!(r#"{{"name":"a/b c","ttl":"10s","owner":"me","claim":"{}"}}"#, claim(1));
    let granted = site.post("/v1/holds", &body).await.is(201, "");
    let fence = granted.number("fence");
    assert!((9_000..=10_000).contains(&granted.number("left_ms")), "{granted:?}");
    assert_eq!((granted.number("renew_ms"), granted.number("ttl_ms")), (3_333, 10_000));
    assert!(
        granted.head.contains("tenure-engine: ")
            && granted.head.contains("cache-control: no-store")
    );
    // A repeated request gets the reply that was lost, and nothing is prolonged.
    tokio::time::sleep(Duration::from_millis(300)).await;
    let again = site.post("/v1/holds", &body).await.is(201, "");
    assert_eq!(again.number("fence"), fence);
    assert!(again.number("left_ms") < granted.number("left_ms") - 200, "{again:?}");
    let one = format!(r#"{{"name":"a/b c","claim":"{}","fence":{fence}}}"#, claim(1));
    let read = site.post("/v1/holds/read", &one).await.is(200, "");
    assert!(read.number("left_ms") < 9_800);
    let longer = one.replace('}', r#","ttl":"20s"}"#);
    let renewed = site.post("/v1/holds/renew", &longer).await.is(200, "");
    assert!(renewed.number("left_ms") > 19_000 && renewed.number("fence") == fence);
    // The name alone is not enough.
    let other = longer.replace(&claim(1), &claim(2));
    site.post("/v1/holds/renew", &other).await.is(410, "gone");
    site.post("/v1/holds/release", &format!(r#"{{"name":"a/b c","claim":"{}"}}"#, claim(2)))
        .await
        .is(410, "gone");
    let busy = site.post("/v1/holds", r#"{"name":"a/b c"}"#).await.is(409, "busy");
    assert_eq!(busy.body["holder"]["owner"], "me");
    let release = format!(r#"{{"name":"a/b c","claim":"{}"}}"#, claim(1));
    assert_eq!(site.post("/v1/holds/release", &release).await.status, 204);
    site.post("/v1/holds/release", &release).await.is(410, "gone");
    site.post("/v1/holds/renew", &longer).await.is(410, "gone");
    site.get("/v1/name?name=a%2Fb%20c").await.is(404, "not_found");
}

#[tokio::test]
async fn many_holds_are_renewed_at_once_each_with_its_own_answer() {
    let site = Site::memory().await;
    let mut holds = Vec::new();
    for number in 1..=3 {
        let body = format!(r#"{{"name":"n{number}","claim":"{}"}}"#, claim(number));
        let fence = site.post("/v1/holds", &body).await.is(201, "").number("fence");
        holds
            .push(format!(r#"{{"name":"n{number}","claim":"{}","fence":{fence}}}"#, claim(number)));
    }
    holds[1] = holds[1].replace("\"n2\"", "\"n9\"");
    let answer = site
        .post("/v1/holds/renew", &format!(r#"{{"holds":[{}]}}"#, holds.join(",")))
        .await
        .is(200, "");
    let statuses: Vec<_> =
        (0..3).map(|at| answer.body["holds"][at]["status"].as_u64().unwrap()).collect();
    assert_eq!(statuses, [200, 410, 200]);
}

#[tokio::test]
async fn the_next_in_line_hears_of_its_turn_and_confirms_it() {
    let site = Site::memory().await;
    let body = |number| {
        format!(
            r#"{{"name":"x","owner":"o{number}","wait":"20s","ttl":"30s","claim":"{}"}}"#,
            claim(number)
        )
    };
    site.post("/v1/holds", &body(1)).await.is(201, "");
    let asks = body(2);
    let (granted, ()) = tokio::join!(site.post("/v1/holds", &asks), async {
        site.line_of("x", 1).await;
        tokio::time::sleep(Duration::from_millis(200)).await;
        let release = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
        assert_eq!(site.post("/v1/holds/release", &release).await.status, 204);
    });
    let granted = granted.is(201, "");
    assert_eq!(granted.body["confirm"], true);
    // Counted from the arrival of the request: the wait, and a first life.
    let (left, waited) = (granted.number("left_ms"), granted.number("waited_ms"));
    assert!(waited >= 200 && left > waited && left <= waited + 2_000, "{granted:?}");
    let fence = granted.number("fence");
    let renew = format!(r#"{{"name":"x","claim":"{}","fence":{fence},"ttl":"30s"}}"#, claim(2));
    assert!(site.post("/v1/holds/renew", &renew).await.is(200, "").number("left_ms") > 29_000);
    // Unconfirmed, a turn ends after its first life.
    let release = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(2));
    let waits = async {
        let granted = site.post("/v1/holds", &body(3)).await.is(201, "");
        (granted.number("fence"), Instant::now())
    };
    let ((fence, _), ()) = tokio::join!(waits, async {
        site.line_of("x", 1).await;
        assert_eq!(site.post("/v1/holds/release", &release).await.status, 204);
    });
    tokio::time::sleep(Duration::from_millis(2_200)).await;
    let renew = format!(r#"{{"name":"x","claim":"{}","fence":{fence}}}"#, claim(3));
    site.post("/v1/holds/renew", &renew).await.is(410, "gone");
}

#[tokio::test]
async fn a_server_confirms_turns_for_clients_that_cannot() {
    let site = Site::memory().await;
    let body = |number| {
        format!(
            r#"{{"name":"x","wait":"20s","ttl":"30s","confirm":false,"claim":"{}"}}"#,
            claim(number)
        )
    };
    site.post("/v1/holds", &body(1)).await.is(201, "");
    let asks = body(2);
    let (granted, ()) = tokio::join!(site.post("/v1/holds", &asks), async {
        site.line_of("x", 1).await;
        site.post("/v1/holds/release", &format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1))).await;
    });
    let granted = granted.is(201, "");
    assert!(granted.body["confirm"] == false && granted.number("left_ms") > 29_000, "{granted:?}");
}

#[tokio::test]
async fn a_ticket_keeps_the_place_from_poll_to_poll() {
    let site = Site::with_short_polls().await;
    let body = |number, more: &str| {
        format!(
            r#"{{"name":"x","wait":"20s","owner":"o{number}","claim":"{}"{more}}}"#,
            claim(number)
        )
    };
    site.post("/v1/holds", &body(1, "")).await.is(201, "");
    let first = site.post("/v1/holds", &body(2, "")).await.is(202, "");
    assert_eq!((first.number("position"), first.body["holder"]["owner"].as_str()), (1, Some("o1")));
    let second = site.post("/v1/holds", &body(3, "")).await.is(202, "");
    assert_eq!(second.number("position"), 2);
    let with = |answer: &super::probe::Answer| format!(r#","ticket":"{}""#, answer.text("ticket"));
    // Absent for longer than a place is kept: it leaves the line, and its ticket brings it back ahead of the other.
    let keeps = async {
        for _ in 0..8 {
            site.post("/v1/holds", &body(3, &with(&second))).await.is(202, "");
        }
    };
    keeps.await;
    assert_eq!(site.line("x").await.1, ["o3"], "the other one has left");
    let back = site.post("/v1/holds", &body(2, &with(&first))).await.is(202, "");
    assert_eq!(back.number("position"), 1);
    // A ticket that the server did not sign is refused, and so is another claim's.
    let forged = format!(r#","ticket":"0{}""#, &first.text("ticket")[1..]);
    site.post("/v1/holds", &body(4, &forged)).await.is(400, "invalid");
    site.post("/v1/holds", &body(4, &with(&first))).await.is(400, "invalid");
}

/// The next poll has a ticket and less patience, and is otherwise the same.
#[tokio::test]
async fn a_poll_with_an_idempotency_key_may_continue_with_a_ticket() {
    let site = Site::with_short_polls().await;
    let hold = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
    site.post("/v1/holds", &hold).await.is(201, "");
    let asks = async |key: &str, more: &str| {
        let body = format!(r#"{{"name":"x","owner":"me"{more}}}"#);
        site.send("POST", "/v1/holds", &format!("idempotency-key: {key}\r\n"), &body).await
    };
    let place = asks("k1", r#","wait":"30s""#).await.is(202, "");
    assert_eq!(site.post("/v1/holds/release", &hold).await.status, 204);
    let more = format!(r#","wait":"29600ms","ticket":"{}""#, place.text("ticket"));
    let granted = asks("k1", &more).await.is(201, "");
    assert_eq!(granted.text("claim"), place.text("claim"));
    // A different body is still refused.
    asks("k1", r#","wait":"30s","ttl":"20s""#).await.is(422, "other_body");
}

/// A claim that no longer fits is told so while it waits.
#[tokio::test]
async fn a_waiter_is_told_that_the_size_was_changed() {
    let site = Site::memory().await;
    let asks = r#"{"name":"s","kind":"semaphore","permits":3,"weight":3,"wait":"20s"}"#;
    site.post("/v1/holds", asks).await.is(201, "");
    let (answer, ()) = tokio::join!(site.post("/v1/holds", asks), async {
        site.line_of("s", 1).await;
        assert_eq!(site.post("/v1/resize", r#"{"name":"s","permits":2}"#).await.status, 204);
    });
    answer.is(409, "conflict");
}

#[tokio::test]
async fn a_client_that_vanishes_leaves_the_line() {
    let site = Site::memory().await;
    site.post("/v1/holds", &format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1))).await.is(201, "");
    let waits = site
        .begin(
            "POST",
            "/v1/holds",
            "",
            &format!(r#"{{"name":"x","wait":"20s","claim":"{}"}}"#, claim(2)),
        )
        .await;
    site.line_of("x", 1).await;
    drop(waits);
    site.line_of("x", 0).await;
    // Its turn does not wait for it.
    let waits = site
        .begin(
            "POST",
            "/v1/holds",
            "",
            &format!(r#"{{"name":"x","wait":"20s","claim":"{}"}}"#, claim(3)),
        )
        .await;
    site.line_of("x", 1).await;
    drop(waits);
    site.post("/v1/holds/release", &format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1))).await;
    let began = Instant::now();
    let next = format!(r#"{{"name":"x","wait":"20s","claim":"{}"}}"#, claim(4));
    let mut answer = site.post("/v1/holds", &next).await;
    while answer.status == 202 {
        let ticket = answer.text("ticket");
        answer =
            site.post("/v1/holds", &next.replace('}', &format!(r#","ticket":"{ticket}"}}"#))).await;
    }
    answer.is(201, "");
    assert!(began.elapsed() < Duration::from_secs(15), "{:?}", began.elapsed());
}

#[tokio::test]
async fn null_is_an_outcome_and_a_missing_one_is_not() {
    let site = Site::memory().await;
    let body = |number| format!(r#"{{"name":"mail","claim":"{}"}}"#, claim(number));
    for (number, outcome) in [(1, ""), (2, r#","outcome":null"#)] {
        let fence = site.post("/v1/once", &body(number)).await.is(201, "").number("fence");
        let claim = claim(number);
        let settle = format!(r#"{{"name":"mail","claim":"{claim}","fence":{fence}{outcome}}}"#);
        assert_eq!(site.post("/v1/once/settle", &settle).await.status, 204);
    }
    let done = site.post("/v1/once", &body(3)).await.is(200, "");
    assert!(done.body["settled"] == true && done.body["outcome"].is_null());
}

#[tokio::test]
async fn only_the_claim_that_runs_a_once_can_settle_it() {
    let site = Site::memory().await;
    let begin = |number| format!(r#"{{"name":"mail","claim":"{}"}}"#, claim(number));
    let fence = site.post("/v1/once", &begin(1)).await.is(201, "").number("fence");
    let settle = |number, outcome: &str| {
        let claim = claim(number);
        format!(r#"{{"name":"mail","claim":"{claim}","fence":{fence}{outcome}}}"#)
    };
    // The fence is no secret: anyone who is told that the name is busy learns it.
    let stranger = settle(2, r#","outcome":"forged""#);
    site.post("/v1/once/settle", &stranger).await.is(410, "gone");
    site.post("/v1/once/settle", &settle(2, "")).await.is(410, "gone");
    let own = settle(1, r#","outcome":"sent""#);
    assert_eq!(site.post("/v1/once/settle", &own).await.status, 204);
    let done = site.post("/v1/once", &begin(3)).await.is(200, "");
    assert_eq!(done.body["outcome"], "sent");
    // A lock with the name of the once would not look at its record.
    let around = begin(4).replace("}", r#","kind":"once"}"#);
    site.post("/v1/holds", &around).await.is(400, "invalid");
    site.post("/v1/tethers", &around).await.is(400, "invalid");
}

#[tokio::test]
async fn a_once_is_done_once() {
    let site = Site::memory().await;
    let body = |number, more: &str| {
        format!(r#"{{"name":"mail","content":"c","claim":"{}"{more}}}"#, claim(number))
    };
    let granted = site.post("/v1/once", &body(1, "")).await.is(201, "");
    let fence = granted.number("fence");
    site.post("/v1/once", &body(2, "")).await.is(409, "busy");
    let settle = format!(
        r#"{{"name":"mail","claim":"{}","fence":{fence},"outcome":{{"sent":[1,2]}}}}"#,
        claim(1)
    );
    let asks = body(3, r#","wait":"20s""#);
    let (waiter, ()) = tokio::join!(site.post("/v1/once", &asks), async {
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert_eq!(site.post("/v1/once/settle", &settle).await.status, 204);
    });
    let done = waiter.is(200, "");
    assert_eq!(done.body["outcome"]["sent"][1], 2);
    let done = site.post("/v1/once", &body(4, "")).await.is(200, "");
    assert_eq!(
        (done.body["settled"].as_bool(), done.body["outcome"]["sent"][0].as_u64()),
        (Some(true), Some(1))
    );
    site.post("/v1/once", &body(5, "").replace("\"c\"", "\"d\"")).await.is(422, "other_content");
    let view = site.get("/v1/name?name=mail&kind=once").await.is(200, "");
    assert_eq!(view.body["record"]["settled"], true);
    // One that was undone is run by the next claim; one whose holder is gone is unsettled.
    let undone = site
        .post("/v1/once", r#"{"name":"two","claim":"00000000000000000000000000000009"}"#)
        .await
        .is(201, "");
    let settle =
        format!(r#"{{"name":"two","claim":"{}","fence":{}}}"#, claim(9), undone.number("fence"));
    assert_eq!(site.post("/v1/once/settle", &settle).await.status, 204);
    site.post("/v1/once", r#"{"name":"two","ttl":"1s"}"#).await.is(201, "");
    tokio::time::sleep(Duration::from_millis(1_200)).await;
    site.post("/v1/once", r#"{"name":"two"}"#).await.is(409, "unsettled");
    site.post("/v1/once", r#"{"name":"two","rerun":true}"#).await.is(201, "");
}

#[tokio::test]
async fn semaphores_read_write_locks_and_elections_have_their_own_rules() {
    let site = Site::memory().await;
    for _ in 0..2 {
        site.post("/v1/holds", r#"{"name":"s","kind":"semaphore","permits":2}"#).await.is(201, "");
    }
    site.post("/v1/holds", r#"{"name":"s","kind":"semaphore","permits":2}"#).await.is(409, "busy");
    site.post("/v1/holds", r#"{"name":"s","kind":"semaphore","permits":3}"#)
        .await
        .is(409, "conflict");
    assert_eq!(site.post("/v1/resize", r#"{"name":"s","permits":3}"#).await.status, 204);
    site.post("/v1/holds", r#"{"name":"s","kind":"semaphore","permits":2}"#).await.is(201, "");
    for _ in 0..2 {
        site.post("/v1/holds", r#"{"name":"rw","kind":"read"}"#).await.is(201, "");
    }
    site.post("/v1/holds", r#"{"name":"rw","kind":"write"}"#).await.is(409, "busy");
    site.get("/v1/leader?name=e").await.is(404, "not_found");
    let term = site
        .post("/v1/holds", r#"{"name":"e","kind":"election","value":"web-3"}"#)
        .await
        .is(201, "");
    let leader = site.get("/v1/leader?name=e").await.is(200, "");
    assert_eq!(
        (leader.text("value").as_str(), leader.number("term")),
        ("web-3", term.number("fence"))
    );
    site.post("/v1/holds", r#"{"name":"e"}"#).await.is(201, "");
}

#[tokio::test]
async fn an_idempotency_key_stands_for_a_claim() {
    let site = Site::memory().await;
    let key = "idempotency-key: order-7\r\n";
    let body = r#"{"name":"x","ttl":"30s"}"#;
    let first = site.send("POST", "/v1/holds", key, body).await.is(201, "");
    let again = site.send("POST", "/v1/holds", key, body).await.is(201, "");
    assert_eq!(first.number("fence"), again.number("fence"));
    site.send("POST", "/v1/holds", key, r#"{"name":"x","ttl":"31s"}"#).await.is(422, "other_body");
    site.send("POST", "/v1/holds", "idempotency-key: order-8\r\n", body).await.is(409, "busy");
    let renew = format!(r#"{{"name":"x","fence":{}}}"#, first.number("fence"));
    site.send("POST", "/v1/holds/renew", key, &renew).await.is(200, "");
    assert_eq!(site.send("POST", "/v1/holds/release", key, r#"{"name":"x"}"#).await.status, 204);
    site.send("POST", "/v1/holds", key, body).await.is(410, "left");
}

#[tokio::test]
async fn a_claim_does_not_join_a_line_that_is_longer_than_it_wants() {
    let site = Site::memory().await;
    site.post("/v1/holds", r#"{"name":"x"}"#).await.is(201, "");
    let waits = format!(r#"{{"name":"x","wait":"10s","claim":"{}"}}"#, claim(1));
    let _waiting = site.begin("POST", "/v1/holds", "", &waits).await;
    site.line_of("x", 1).await;
    site.post("/v1/holds", r#"{"name":"x","wait":"10s","max_waiters":1}"#).await.is(429, "full");
    assert_eq!(site.line("x").await.1.len(), 1);
}

/// Another program of the same engine may store any bytes.
#[tokio::test]
async fn an_outcome_that_is_not_json_is_returned_unchanged() {
    let memory = Arc::new(Memory::new());
    let name = Name::new(Space::Once, "x").unwrap();
    let mut claim = Claim::new(name.clone(), SystemWorld.mint().unwrap());
    let keep = Duration::from_secs(60);
    claim.once = Some(OnceTerms { keep, rerun: false, content: 0 });
    let Verdict::Granted(grant) = memory.claim(&claim).await.unwrap() else {
        panic!("not granted")
    };
    let mut leave = Leave::new(name, claim.id);
    let outcome = Some(Outcome::from(vec![0xff, 0]));
    leave.settle = Some(Settle { fence: grant.fence, outcome });
    memory.leave(&leave).await.unwrap();
    let key = Key::random().unwrap();
    let site = Site::start(memory, key, Config::default(), Credentials::default()).await;
    let done = site.post("/v1/once", r#"{"name":"x"}"#).await.is(200, "");
    assert_eq!((done.text("outcome_base64").as_str(), done.body.get("outcome")), ("/wA=", None));
}
