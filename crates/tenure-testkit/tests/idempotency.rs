//! The `Idempotency-Key` layer: real servers, several instances of one service on one engine.

use crate::http_client;

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::Bytes;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use axum::{Extension, Router, routing};
use http_client::{Answer, ask, send};
use tenure::Tenure;
use tenure::idempotency::{IdempotencyLayer, NothingDone};
use tenure_testkit::servers::{self, Folder};
use tokio::net::TcpListener;

/// One instance of the service.
struct Instance {
    port: String,
    serving: tokio::task::JoinHandle<()>,
}

impl Drop for Instance {
    fn drop(&mut self) {
        self.serving.abort();
    }
}

/// What all instances share.
#[derive(Default)]
struct Shop {
    payments: AtomicU32,
    /// The answers of the next handlers; 201 when none are left.
    answers: Mutex<Vec<u16>>,
}

impl Shop {
    async fn open(self: &Arc<Shop>, layer: IdempotencyLayer) -> Instance {
        let shop = self.clone();
        let pay = async move |body: Bytes| {
            let number = shop.payments.fetch_add(1, SeqCst) + 1;
            // Long enough for other requests to come meanwhile.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let status = shop.answers.lock().unwrap().pop().unwrap_or(201);
            let text = match body.as_ref() {
                b"long" => "x".repeat(100_000),
                b"panic" => panic!("the handler breaks off"),
                _ => format!("payment {number}"),
            };
            let answer = (StatusCode::from_u16(status).unwrap(), [("x-receipt", "ü")], text);
            match body.as_ref() {
                b"nothing done" if status != 201 => {
                    (Extension(NothingDone), answer).into_response()
                }
                _ => answer.into_response(),
            }
        };
        let app = Router::new().route("/page", routing::post(pay).get(async || "seen"));
        let app = app.layer(layer);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port().to_string();
        let serving = tokio::spawn(async move { axum::serve(listener, app).await.unwrap() });
        Instance { port, serving }
    }

    fn payments(&self) -> u32 {
        self.payments.load(SeqCst)
    }
}

async fn pay(instance: &Instance, key: &str, body: &str) -> Answer {
    ask(&instance.port, "POST", &[("Idempotency-Key", key)], body).await
}

fn is_replayed(answer: &Answer) -> bool {
    answer.head.to_lowercase().contains("idempotency-replayed: true")
}

/// Two instances of one service, each with a connection of its own.
async fn two(
    url: &str,
    change: fn(IdempotencyLayer) -> IdempotencyLayer,
) -> (Arc<Shop>, [Instance; 2]) {
    let shop = Arc::new(Shop::default());
    let one = change(IdempotencyLayer::new(&Tenure::connect(url).await.unwrap(), "shop"));
    let other = change(IdempotencyLayer::new(&Tenure::connect(url).await.unwrap(), "shop"));
    let instances = [shop.open(one).await, shop.open(other).await];
    (shop, instances)
}

async fn a_request_that_comes_again_is_answered_the_same(url: &str) {
    let (shop, instances) = two(url, |layer| layer).await;
    let all = (0..10).map(|n| pay(&instances[n % 2], "key-1", "42 euros"));
    let answers: Vec<Answer> = join_all(all).await;
    assert_eq!(shop.payments(), 1, "it was paid once");
    let replayed = answers.iter().filter(|answer| is_replayed(answer)).count();
    assert_eq!(replayed, 9);
    for answer in &answers {
        assert_eq!((answer.status, answer.body.as_str()), (201, "payment 1"));
        assert!(answer.head.contains("x-receipt: ü"), "{}", answer.head);
    }
    let later = pay(&instances[1], "\"key-1\"", "42 euros").await;
    assert!(is_replayed(&later) && later.body == "payment 1");
    let other = pay(&instances[1], "key-1", "43 euros").await;
    assert_eq!(other.status, 422, "{}", other.body);
    assert!(other.body.contains("urn:tenure:other-request"), "{}", other.body);
    assert_eq!(pay(&instances[0], "key-2", "42 euros").await.body, "payment 2");
}

async fn join_all(all: impl Iterator<Item = impl Future<Output = Answer>>) -> Vec<Answer> {
    let mut all: Vec<_> = all.map(Box::pin).collect();
    let mut answers: Vec<Option<Answer>> = all.iter().map(|_| None).collect();
    std::future::poll_fn(|cx| {
        for (future, answer) in all.iter_mut().zip(&mut answers) {
            if answer.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(cx)
            {
                *answer = Some(ready);
            }
        }
        if answers.iter().all(Option::is_some) {
            return std::task::Poll::Ready(());
        }
        std::task::Poll::Pending
    })
    .await;
    answers.into_iter().flatten().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_on_a_file() {
    let folder = Folder::new("keys").unwrap();
    let url = format!("file:{}", folder.path().join("locks.db").display());
    a_request_that_comes_again_is_answered_the_same(&url).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_instances_on_redis() {
    let server = servers::Redis::build().start().unwrap();
    a_request_that_comes_again_is_answered_the_same(&server.url()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_instance_in_memory() {
    let shop = Arc::new(Shop::default());
    let tenure = Tenure::connect("memory:").await.unwrap();
    let instance = shop.open(IdempotencyLayer::new(&tenure, "shop")).await;
    assert_eq!(pay(&instance, "a", "").await.body, "payment 1");
    assert_eq!(pay(&instance, "a", "").await.body, "payment 1");
    // A request that only reads needs no key, and one without a key is handled normally.
    assert_eq!(ask(&instance.port, "GET", &[("Idempotency-Key", "a")], "").await.body, "seen");
    assert_eq!(ask(&instance.port, "POST", &[], "").await.body, "payment 2");
}

/// For example a 502 or a 504 of a payment gateway: the money may have moved.
#[tokio::test(flavor = "multi_thread")]
async fn after_a_server_error_the_retry_is_told_that_the_outcome_is_unknown() {
    for status in [500, 502, 503, 504, 599] {
        let (shop, instances) = two("memory:", |layer| layer).await;
        shop.answers.lock().unwrap().push(status);
        assert_eq!(pay(&instances[0], "a", "").await.status, status);
        let retry = pay(&instances[0], "a", "").await;
        assert_eq!((retry.status, shop.payments()), (409, 1), "{status}: {}", retry.body);
        assert!(retry.body.contains("urn:tenure:unsettled"), "{}", retry.body);
    }
    // A refusal is an answer like any other.
    let (shop, instances) = two("memory:", |layer| layer).await;
    shop.answers.lock().unwrap().push(402);
    assert_eq!(pay(&instances[0], "b", "").await.status, 402);
    let again = pay(&instances[0], "b", "").await;
    assert_eq!((again.status, is_replayed(&again)), (402, true));
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_that_waited_for_a_server_error_are_told_that_the_outcome_is_unknown() {
    let (shop, instances) = two("memory:", |layer| layer).await;
    shop.answers.lock().unwrap().push(504);
    let all = (0..5).map(|_| pay(&instances[0], "a", ""));
    let mut statuses: Vec<_> = join_all(all).await.iter().map(|answer| answer.status).collect();
    statuses.sort_unstable();
    assert_eq!((statuses, shop.payments()), (vec![409, 409, 409, 409, 504], 1));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_reported_as_not_done_is_done_by_the_retry() {
    for status in [500, 503, 429] {
        let (shop, instances) = two("memory:", |layer| layer).await;
        shop.answers.lock().unwrap().push(status);
        assert_eq!(pay(&instances[0], "a", "nothing done").await.status, status);
        let retry = pay(&instances[0], "a", "nothing done").await;
        assert_eq!((retry.status, is_replayed(&retry)), (201, false), "{status}");
        let again = pay(&instances[0], "a", "nothing done").await;
        assert_eq!((again.status, is_replayed(&again)), (201, true), "{status}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn server_errors_are_replayed_or_run_again_where_that_was_asked_for() {
    let (shop, instances) = two("memory:", IdempotencyLayer::keep_failures).await;
    shop.answers.lock().unwrap().push(500);
    assert_eq!(pay(&instances[0], "a", "").await.status, 500);
    let again = pay(&instances[0], "a", "").await;
    assert_eq!((again.status, is_replayed(&again), shop.payments()), (500, true, 1));
    let (shop, instances) = two("memory:", IdempotencyLayer::rerun).await;
    shop.answers.lock().unwrap().push(502);
    assert_eq!(pay(&instances[0], "a", "").await.status, 502);
    let again = pay(&instances[0], "a", "").await;
    assert_eq!((again.status, is_replayed(&again), shop.payments()), (201, false, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_finds_the_answer_when_it_returns() {
    let (shop, instances) = two("memory:", |layer| layer).await;
    drop(send(&instances[0].port, "POST", &[("Idempotency-Key", "a")], "").await);
    while shop.payments() == 0 {
        // The connection may be gone before the request was read.
        drop(send(&instances[0].port, "POST", &[("Idempotency-Key", "a")], "").await);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let answer = pay(&instances[0], "a", "").await;
    assert_eq!((answer.status, answer.body.as_str()), (201, "payment 1"));
    assert_eq!(shop.payments(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_that_does_not_wait_hears_that_another_is_in_progress() {
    let (_shop, instances) = two("memory:", |layer| layer.wait(Duration::ZERO)).await;
    let both = [pay(&instances[0], "a", ""), pay(&instances[0], "a", "")];
    let mut statuses: Vec<_> =
        join_all(both.into_iter()).await.iter().map(|it| it.status).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [201, 409]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_that_breaks_off_is_not_run_again_unless_asked() {
    let (shop, instances) = two("memory:", |layer| layer).await;
    assert_eq!(pay(&instances[0], "a", "panic").await.status, 500);
    let again = pay(&instances[0], "a", "panic").await;
    assert_eq!(again.status, 409);
    assert!(again.body.contains("urn:tenure:unsettled"), "{}", again.body);
    assert_eq!(shop.payments(), 1);
    let (shop, instances) = two("memory:", IdempotencyLayer::rerun).await;
    assert_eq!(pay(&instances[0], "a", "panic").await.status, 500);
    assert_eq!(pay(&instances[0], "a", "panic").await.status, 500);
    assert_eq!(shop.payments(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_that_is_too_long_is_given_once() {
    let (shop, instances) = two("memory:", |layer| layer.longest_body(10)).await;
    assert_eq!(pay(&instances[0], "a", "long").await.body.len(), 100_000);
    let again = pay(&instances[0], "a", "long").await;
    assert_eq!((again.status, is_replayed(&again), shop.payments()), (409, true, 1));
    assert_eq!(pay(&instances[0], "b", "more than ten bytes").await.status, 413);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_are_read_with_care_and_belong_to_their_users() {
    let (shop, instances) = two("memory:", |layer| {
        let layer = layer.required();
        layer.scoped_by(|parts| Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned()))
    })
    .await;
    let port = &instances[0].port;
    let long = "x".repeat(256);
    for with in [
        &[][..],
        &[("X-User", "eve"), ("Idempotency-Key", "")],
        &[("X-User", "eve"), ("Idempotency-Key", "ü")],
        &[("X-User", "eve"), ("Idempotency-Key", &long)],
        &[("X-User", "eve"), ("Idempotency-Key", "a"), ("Idempotency-Key", "b")],
    ] {
        let refused = ask(port, "POST", with, "").await;
        assert_eq!(refused.status, 400, "{with:?}: {}", refused.body);
    }
    assert_eq!(shop.payments(), 0);
    // A key that nobody owns protects nobody: the write must not happen without a guard.
    let refused = ask(port, "POST", &[("Idempotency-Key", "a")], "").await;
    assert_eq!((refused.status, shop.payments()), (400, 0), "{}", refused.body);
    assert!(refused.body.contains("urn:tenure:no-owner"), "{}", refused.body);
    for (number, user) in ["eve", "bob", "eve:1"].into_iter().enumerate() {
        let with = [("X-User", user), ("Idempotency-Key", "a")];
        let own = format!("payment {}", number + 1);
        assert_eq!(ask(port, "POST", &with, "").await.body, own, "{user}");
        assert_eq!(ask(port, "POST", &with, "").await.body, own, "{user}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn without_an_owner_a_key_counts_for_nothing_where_none_is_required() {
    let (shop, instances) = two("memory:", |layer| layer.scoped_by(|_| None)).await;
    assert_eq!(pay(&instances[0], "a", "").await.body, "payment 1");
    assert_eq!(pay(&instances[0], "a", "").await.body, "payment 2");
    assert_eq!(shop.payments(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_done_while_the_engine_is_away() {
    let server = servers::Redis::build().start().unwrap();
    let (shop, instances) = two(&server.url(), |layer| layer).await;
    server.kill().unwrap();
    let refused = pay(&instances[0], "a", "").await;
    assert_eq!((refused.status, shop.payments()), (503, 0), "{}", refused.body);
    assert!(!refused.body.contains("127.0.0.1"), "the engine is no stranger's business");
}
