//! Several servers of the same locks: any of them takes any request, and one that goes away takes nothing with it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tenure::engine::SystemWorld;
use tenure::engines::memory::Memory;
use tenure::engines::redis::{Redis, RedisConfig};
use tenure_server::{Credentials, Key};
use tenure_testkit::faulty::{Faults, Faulty};
use tenure_testkit::rng::Rng;
use tenure_testkit::runtime::RealRuntime;
use tenure_testkit::servers;

use super::probe::{Answer, Site, claim, short_polls};

async fn sites(redis: &servers::Redis, count: usize) -> Vec<Site> {
    let key = Key::random().unwrap();
    let mut all = Vec::new();
    for _ in 0..count {
        let (config_of, _) = RedisConfig::from_url(&redis.url()).unwrap();
        let engine = Arc::new(Redis::connect(config_of).await.unwrap());
        all.push(Site::start(engine, key.clone(), short_polls(), Credentials::default()).await);
    }
    all
}

/// Asks each time at another server, until it is granted.
async fn acquire(sites: &[Site], rng: &mut Rng, body: &str) -> Answer {
    let mut asks = body.to_owned();
    loop {
        let site = &sites[rng.between(0, sites.len() as u64 - 1) as usize];
        let answer = site.post("/v1/holds", &asks).await;
        match answer.status {
            202 => asks = body.replace('}', &format!(r#","ticket":"{}"}}"#, answer.text("ticket"))),
            _ => return answer.is(201, ""),
        }
    }
}

/// First come, first served, and never two at once, however the requests of one client are routed.
#[tokio::test(flavor = "multi_thread")]
async fn requests_may_go_to_any_server() {
    let redis = servers::Redis::build().start().unwrap();
    let sites = Arc::new(sites(&redis, 2).await);
    let (mut clients, inside) = (Vec::new(), Arc::new(std::sync::atomic::AtomicU32::new(0)));
    for number in 0..6_u32 {
        let (sites, inside) = (sites.clone(), inside.clone());
        clients.push(tokio::spawn(async move {
            use std::sync::atomic::Ordering::SeqCst;
            let mut rng = Rng::new(number.into());
            let mut fences = Vec::new();
            for round in 0..3 {
                let id = claim(1000 + number * 10 + round);
                let body = format!(r#"{{"name":"x","wait":"60s","ttl":"10s","claim":"{id}"}}"#);
                let granted = acquire(&sites, &mut rng, &body).await;
                let fence = granted.number("fence");
                let one = format!(r#"{{"name":"x","claim":"{id}","fence":{fence},"ttl":"10s"}}"#);
                let any = |rng: &mut Rng| rng.between(0, 1) as usize;
                sites[any(&mut rng)].post("/v1/holds/renew", &one).await.is(200, "");
                assert_eq!(inside.fetch_add(1, SeqCst), 0, "two at once");
                tokio::time::sleep(Duration::from_millis(20)).await;
                inside.fetch_sub(1, SeqCst);
                let release = format!(r#"{{"name":"x","claim":"{id}"}}"#);
                assert_eq!(
                    sites[any(&mut rng)].post("/v1/holds/release", &release).await.status,
                    204
                );
                fences.push(fence);
            }
            fences
        }));
    }
    let mut all = Vec::new();
    for client in clients {
        let fences = client.await.unwrap();
        assert!(fences.is_sorted());
        all.extend(fences);
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), 18, "every grant has a fence of its own");
}

/// A server that a client has left does not give up the place that the client now has at another server.
#[tokio::test(flavor = "multi_thread")]
async fn a_place_goes_with_its_client_to_another_server() {
    let redis = servers::Redis::build().start().unwrap();
    let sites = sites(&redis, 2).await;
    let body = |number, more: &str| {
        format!(
            r#"{{"name":"x","owner":"o{number}","wait":"30s","ttl":"30s","claim":"{}"{more}}}"#,
            claim(number)
        )
    };
    sites[0].post("/v1/holds", &body(1, "")).await.is(201, "");
    let place = sites[0].post("/v1/holds", &body(2, "")).await.is(202, "");
    let ticket = format!(r#","ticket":"{}""#, place.text("ticket"));
    // From now on it polls the other server, for longer than the first keeps the place of an absent client.
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(3_500) {
        sites[1].post("/v1/holds", &body(2, &ticket)).await.is(202, "");
        assert_eq!(sites[1].line("x").await.1, ["o2"]);
    }
    let mut rng = Rng::new(1);
    let (asks, only) = (body(2, ""), &sites[1..]);
    let ((), granted) = tokio::join!(
        async {
            let release = format!(r#"{{"name":"x","claim":"{}"}}"#, claim(1));
            assert_eq!(sites[0].post("/v1/holds/release", &release).await.status, 204);
        },
        acquire(only, &mut rng, &asks)
    );
    assert_eq!(granted.text("claim"), claim(2));
}

/// A client that lets its hold run out does not set aside the others that wait at the same server.
#[tokio::test(flavor = "multi_thread")]
async fn a_dead_client_does_not_hold_up_the_others_of_its_server() {
    let redis = servers::Redis::build().start().unwrap();
    let sites = sites(&redis, 1).await;
    let site = &sites[0];
    site.post("/v1/holds", &format!(r#"{{"name":"x","ttl":"1s","claim":"{}"}}"#, claim(1)))
        .await
        .is(201, "");
    let mut rng = Rng::new(7);
    let began = Instant::now();
    let body = format!(r#"{{"name":"x","wait":"30s","claim":"{}"}}"#, claim(2));
    acquire(&sites, &mut rng, &body).await;
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_stops_leaves_everything_as_it_is() {
    let redis = servers::Redis::build().start().unwrap();
    let mut sites = sites(&redis, 2).await;
    let body = |number| {
        format!(
            r#"{{"name":"x","owner":"o{number}","wait":"30s","ttl":"30s","claim":"{}"}}"#,
            claim(number)
        )
    };
    let granted = sites[0].post("/v1/holds", &body(1)).await.is(201, "");
    let (first, second) = (sites.remove(0), sites.remove(0));
    let mut waits = first.begin("POST", "/v1/holds", "", &body(2)).await;
    second.line_of("x", 1).await;
    first.stop().await;
    // A waiter is told to go to another server, and keeps its place.
    let mut bytes = Vec::new();
    tokio::io::AsyncReadExt::read_to_end(&mut waits, &mut bytes).await.unwrap();
    let told = super::probe::read(&bytes).is(202, "");
    let asks = body(2).replace('}', &format!(r#","ticket":"{}"}}"#, told.text("ticket")));
    let back = second.post("/v1/holds", &asks).await.is(202, "");
    assert_eq!(back.number("position"), 1);
    let renew =
        format!(r#"{{"name":"x","claim":"{}","fence":{}}}"#, claim(1), granted.number("fence"));
    second.post("/v1/holds/renew", &renew).await.is(200, "");
    assert_eq!(second.line("x").await.0, ["o1"]);
}

/// Pushes may come on a connection of their own, later than the answer that brought the turn. The server must not
/// give back what its client has by then, confirmed or not.
#[tokio::test(flavor = "multi_thread")]
async fn a_late_push_takes_nothing_from_its_client() {
    let faults = Faults { late_push: 1000, ..Faults::NONE };
    let (memory, network) = (Arc::new(Memory::new()), Arc::new(RealRuntime::here()));
    let world = Arc::new(SystemWorld);
    let engine = Arc::new(Faulty::new(memory, network, world, faults, Rng::new(5), || false));
    let key = Key::random().unwrap();
    let site = Arc::new(Site::start(engine, key, short_polls(), Credentials::default()).await);
    let mut clients = Vec::new();
    for number in 0..24_u32 {
        let site = site.clone();
        clients.push(tokio::spawn(async move {
            let (first, second) = (claim(2 * number + 1), claim(2 * number + 2));
            let name = format!("n{number}");
            let hold = format!(r#"{{"name":"{name}","claim":"{first}"}}"#);
            site.post("/v1/holds", &hold).await.is(201, "");
            let body = format!(r#"{{"name":"{name}","claim":"{second}","wait":"60s"}}"#);
            let place = site.post("/v1/holds", &body).await.is(202, "");
            assert_eq!(site.post("/v1/holds/release", &hold).await.status, 204);
            let again = body.replace('}', &format!(r#","ticket":"{}"}}"#, place.text("ticket")));
            let granted = site.post("/v1/holds", &again).await.is(201, "");
            let fence = granted.number("fence");
            let renew = format!(r#"{{"name":"{name}","claim":"{second}","fence":{fence}}}"#);
            let pause = if number % 2 == 0 { 0 } else { 700 };
            tokio::time::sleep(Duration::from_millis(pause)).await;
            site.post("/v1/holds/renew", &renew).await.is(200, "");
            // Every push has arrived by then.
            tokio::time::sleep(Duration::from_millis(5_500)).await;
            site.post("/v1/holds/renew", &renew).await.is(200, "");
        }));
    }
    for client in clients {
        client.await.unwrap();
    }
}
