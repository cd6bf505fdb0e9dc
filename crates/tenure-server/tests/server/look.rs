//! Who holds what, what happened, and whether the engine is there and fit.

use std::sync::Arc;
use std::time::Duration;

use tenure::engines::memory::Memory;
use tenure::engines::redis::{Redis, RedisConfig};
use tenure_server::{Access, Config, Credentials, Key};
use tenure_testkit::servers;
use tokio::io::{AsyncBufReadExt, BufReader};

use super::probe::{Answer, Site, claim};

const READ: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";

fn found(answer: &Answer) -> Vec<String> {
    let names = answer.body["names"].as_array().unwrap_or_else(|| panic!("{answer:?}"));
    names.iter().map(|name| name["name"].as_str().unwrap().to_owned()).collect()
}

/// Five names, of which the first is held longest, and the last has the longest line.
async fn used() -> Site {
    let site = Site::memory().await;
    for (number, name, owner) in [
        (1, "a/1", "web-1:7"),
        (2, "a/2", "web-10:8"),
        (3, "a/3", "db"),
        (4, "b/1", "web-1"),
        (5, "b/2", "cron:web-1"),
    ] {
        let id = claim(number);
        let body = format!(r#"{{"name":"{name}","owner":"{owner}","claim":"{id}"}}"#);
        site.post("/v1/holds", &body).await.is(201, "");
        tokio::time::sleep(Duration::from_millis(30)).await;
    }
    for (number, name) in [(6, "b/2"), (7, "b/2"), (8, "a/2")] {
        let id = claim(number);
        let body =
            format!(r#"{{"name":"{name}","owner":"w{number}","wait":"20s","claim":"{id}"}}"#);
        let waiting = site.begin("POST", "/v1/holds", "", &body).await;
        site.line_of(name, if number == 7 { 2 } else { 1 }).await;
        // It waits until the test is over.
        std::mem::forget(waiting);
    }
    site
}

#[tokio::test]
async fn names_are_found_by_what_is_known_of_them() {
    let site = used().await;
    for (query, names) in [
        ("", &["a/1", "a/2", "a/3", "b/1", "b/2"][..]),
        ("prefix=a/", &["a/1", "a/2", "a/3"]),
        ("owner=web-1", &["a/1", "a/2", "b/1", "b/2"]),
        ("owner=w8", &["a/2"]),
        ("host=web-1", &["a/1", "b/1"]),
        ("host=cron", &["b/2"]),
        ("host=web", &[]),
        ("state=held", &["a/1", "a/2", "a/3", "b/1", "b/2"]),
        ("state=waiting", &["a/2", "b/2"]),
        ("state=waiting&prefix=b", &["b/2"]),
        ("held_longer=1h", &[]),
        ("held_longer=1ms&host=db", &["a/3"]),
        ("kind=election", &[]),
        ("sort=held", &["a/1", "a/2", "a/3", "b/1", "b/2"]),
        ("sort=waiting&state=waiting", &["b/2", "a/2"]),
    ] {
        let answer = site.get(&format!("/v1/names?{query}")).await.is(200, "");
        assert_eq!(found(&answer), names, "{query}");
        assert!(answer.body.get("next").is_none(), "{query}: all of it");
    }
    // How long each is held depends on how busy the machine is; their order does not.
    let all = site.get("/v1/names").await;
    let held = |at: usize| all.body["names"][at]["holders"][0]["held_ms"].as_u64().unwrap();
    let middle = (held(1) + held(2)) / 2;
    let answer = site.get(&format!("/v1/names?held_longer={middle}&sort=held&limit=2")).await;
    assert_eq!(found(&answer)[..2], ["a/1", "a/2"]);
    for query in ["state=free", "held_longer=x", "sort=name&limit=1001", "sort=held&after=x"] {
        site.get(&format!("/v1/names?{query}")).await.is(400, "invalid");
    }
}

#[tokio::test]
async fn pages_of_names_follow_each_other_without_gaps() {
    let site = used().await;
    for sort in ["name", "held", "waiting"] {
        for limit in 1..=5 {
            let (mut all, mut after, mut pages) = (Vec::new(), String::new(), 0);
            loop {
                let query = format!("sort={sort}&limit={limit}&after={after}");
                let page = site.get(&format!("/v1/names?{query}")).await.is(200, "");
                all.extend(found(&page));
                pages += 1;
                match page.body["next"].as_str() {
                    Some(next) => after = next.replace('/', "%2F"),
                    None => break,
                }
            }
            let whole = found(&site.get(&format!("/v1/names?sort={sort}")).await);
            assert_eq!((all, pages), (whole, 5_usize.div_ceil(limit)), "{sort}, {limit} a page");
        }
    }
    // Names that do not match the filter leave no empty pages.
    let page = site.get("/v1/names?state=waiting&limit=1").await;
    assert_eq!((found(&page), page.body["next"].as_str()), (vec!["a/2".to_owned()], Some("a/2")));
    let last = site.get("/v1/names?state=waiting&limit=1&after=a%2F2").await;
    assert_eq!((found(&last), last.body["next"].as_str()), (vec!["b/2".to_owned()], None));
}

/// The lines of a stream until one contains `last`.
async fn lines_until(site: &Site, headers: &str, last: &str) -> Vec<String> {
    let stream = site.begin("GET", "/v1/events", headers, "").await;
    let (mut lines, mut reader) = (Vec::new(), BufReader::new(stream).lines());
    loop {
        let line = reader.next_line().await.unwrap().unwrap_or_else(|| panic!("{lines:?}"));
        let is_last = line.contains(last);
        lines.push(line);
        if is_last {
            return lines;
        }
    }
}

#[tokio::test]
async fn a_stream_of_events_says_where_it_begins_and_what_is_missing() {
    let site = Site::memory().await;
    let hello = lines_until(&site, "", "\"last\":").await.pop().unwrap();
    let last: u64 = hello.split("\"last\":").nth(1).unwrap().trim_end_matches('}').parse().unwrap();
    site.post("/v1/holds", r#"{"name":"x"}"#).await.is(201, "");
    // From that event on, nothing is missing.
    let lines = lines_until(&site, &format!("last-event-id: {last}\r\n"), "\"name\":\"x\"").await;
    assert!(!lines.iter().any(|line| line.contains("gap")), "{lines:?}");
    // Numbers from another run, however large they are.
    for number in [1, last + 1000, u64::MAX] {
        let lines = lines_until(&site, &format!("last-event-id: {number}\r\n"), "\"x\"").await;
        assert!(lines.iter().any(|line| line.contains("event: gap")), "{number}: {lines:?}");
    }
    site.send("GET", "/v1/events", "last-event-id: x\r\n", "").await.is(400, "invalid");
}

#[tokio::test]
async fn the_engine_is_checked_for_those_who_may_look() {
    let lines = [
        Access::line("eye", READ, "read", ""),
        Access::line("shop", &READ.to_uppercase(), "lock", ""),
    ];
    let credentials = Credentials::new(Access::from_lines(&lines.join("\n")).unwrap(), None);
    let (engine, key) = (Arc::new(Memory::new()), Key::random().unwrap());
    let site = Site::start(engine, key, Config::default(), credentials).await;
    let eye = format!("authorization: Bearer {READ}\r\n");
    let found = site.send("GET", "/v1/doctor", &eye, "").await.is(200, "");
    let findings = found.body["findings"].as_array().unwrap();
    assert!(findings.iter().all(|one| one["check"].is_string() && one["what"].is_string()));
    let warnings = findings.iter().filter(|one| one["mark"] == "warning").count() as u64;
    assert_eq!((found.number("warnings"), &found.body["fit"]), (warnings, &true.into()));
    assert!(warnings > 0 && found.text("engine") == "memory" && found.number("age_ms") < 10_000);
    // A second look soon after gets the same findings, and the engine is left in peace.
    tokio::time::sleep(Duration::from_millis(20)).await;
    let again = site.send("GET", "/v1/doctor", &eye, "").await.is(200, "");
    assert!(again.number("age_ms") >= 20, "{again:?}");
    let shop = eye.replace(READ, &READ.to_uppercase());
    site.send("GET", "/v1/doctor", &shop, "").await.is(403, "forbidden");
    site.get("/v1/doctor").await.is(401, "unauthorized");
    // Only those who may look are told where the engine is.
    let ready = site.get("/readyz").await.is(200, "");
    assert_eq!(ready.body, serde_json::json!({ "ready": true }));
    assert_eq!(site.send("GET", "/readyz", &eye, "").await.body["engine"], "memory");
    assert_eq!(site.send("GET", "/readyz", &shop, "").await.body.get("engine"), None);
}

/// If all servers were unready at once, their load balancer would remove them all, and cut every stream.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_is_ready_once_its_engine_has_answered_and_until_that_is_gone_for_a_while() {
    let redis = servers::Redis::build().start().unwrap();
    let (mut config, key) = (Config::default(), Key::random().unwrap());
    config.unready_after = Duration::from_millis(1_500);
    let (engine, _) = RedisConfig::from_url(&redis.url()).unwrap();
    let engine = Arc::new(Redis::connect(engine).await.unwrap());
    let site = Site::start(engine, key, config, Credentials::default()).await;
    site.get("/readyz").await.is(200, "");
    redis.kill().unwrap();
    assert_eq!(site.get("/readyz").await.status, 200, "at first");
    let mut asked = 0;
    while site.get("/readyz").await.status == 200 {
        asked += 1;
        assert!(asked < 600, "still ready");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(site.get("/healthz").await.status, 200);
    redis.restart().unwrap();
    for _ in 0..600 {
        if site.get("/readyz").await.status == 200 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the engine is back, and the server is not ready");
}

/// One Redis with two addresses is one engine if its servers give it the same name.
#[tokio::test(flavor = "multi_thread")]
async fn servers_of_one_engine_can_give_it_the_same_name() {
    let redis = servers::Redis::build().start().unwrap();
    let key = Key::random().unwrap();
    let mut ids = Vec::new();
    for (host, name) in [
        ("127.0.0.1", None),
        ("localhost", None),
        ("127.0.0.1", Some("r")),
        ("localhost", Some("r")),
    ] {
        let url = redis.url().replace("127.0.0.1", host);
        let engine = Redis::connect(RedisConfig::from_url(&url).unwrap().0).await.unwrap();
        let site = Site::start_named(Arc::new(engine), key.clone(), name).await;
        let head = site.get("/healthz").await.head;
        ids.push(head.split("tenure-engine: ").nth(1).unwrap()[..16].to_owned());
    }
    assert!(ids[0] != ids[1] && ids[2] == ids[3] && ids[0] != ids[2], "{ids:?}");
}
