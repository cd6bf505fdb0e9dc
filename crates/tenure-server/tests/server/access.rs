//! Who may do what.

use std::sync::Arc;
use std::time::Duration;

use tenure::engine::{
    Claim, Engine as _, ErrorKind, Name, Renewal, Renewed, Space, SystemWorld, Verdict, World as _,
};
use tenure::engines::http::{Http, HttpConfig};
use tenure::engines::memory::Memory;
use tenure_server::{Access, Config, Credentials, Key};

use super::probe::{Site, claim};

const LOCK: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const READ: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const ADMIN: &str = "cccccccccccccccccccccccccccccccc";

async fn guarded() -> (Site, Credentials) {
    let lines = [
        Access::line("shop", LOCK, "lock", "shop/"),
        Access::line("eye", READ, "read", ""),
        Access::line("ops", ADMIN, "admin", ""),
    ];
    let credentials = Credentials::new(Access::from_lines(&lines.join("\n")).unwrap(), None);
    let (engine, key) = (Arc::new(Memory::new()), Key::random().unwrap());
    (Site::start(engine, key, Config::default(), credentials.clone()).await, credentials)
}

/// The server as the engine of a program.
async fn http_engine(site: &Site) -> Http {
    let (config, _) = HttpConfig::from_url(&format!("http://127.0.0.1:{}", site.port)).unwrap();
    Http::connect(config).await.unwrap()
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

#[tokio::test]
async fn a_token_allows_what_its_role_says_and_no_more() {
    let (site, credentials) = guarded().await;
    let post = async |token: &str, path: &str, body: &str| {
        site.send("POST", path, &bearer(token), body).await
    };
    let get = async |token: &str, path: &str| site.send("GET", path, &bearer(token), "").await;
    site.post("/v1/holds", r#"{"name":"shop/x"}"#).await.is(401, "unauthorized");
    post("dddddddddddddddddddddddddddddddd", "/v1/holds", r#"{"name":"shop/x"}"#)
        .await
        .is(401, "unauthorized");
    let granted = post(LOCK, "/v1/holds", r#"{"name":"shop/x"}"#).await.is(201, "");
    post(LOCK, "/v1/holds", r#"{"name":"pay/x"}"#).await.is(403, "forbidden");
    post(LOCK, "/v1/holds/release", &format!(r#"{{"name":"pay/x","claim":"{}"}}"#, claim(1)))
        .await
        .is(403, "forbidden");
    get(LOCK, "/v1/names").await.is(403, "forbidden");
    post(LOCK, "/v1/break", r#"{"name":"shop/x","fence":1,"reason":"r"}"#)
        .await
        .is(403, "forbidden");
    post(LOCK, "/v1/steps", "{}").await.is(403, "forbidden");
    get(LOCK, "/v1/turns").await.is(403, "forbidden");
    let names = get(READ, "/v1/names").await.is(200, "");
    // The claim is for its owner alone, and nobody is shown without a name.
    assert!(!names.body.to_string().contains(&granted.text("claim")));
    assert_eq!(names.body["names"][0]["holders"][0]["owner"], "shop@127.0.0.1");
    post(READ, "/v1/holds", r#"{"name":"shop/y"}"#).await.is(403, "forbidden");
    let fence = granted.number("fence");
    post(ADMIN, "/v1/holds", r#"{"name":"shop/y"}"#).await.is(403, "forbidden");
    post(ADMIN, "/v1/break", &format!(r#"{{"name":"shop/x","fence":{fence},"reason":"r"}}"#))
        .await
        .is(200, "");
    assert_eq!(site.get("/healthz").await.status, 200);
    site.get("/metrics").await.is(401, "unauthorized");
    // A revoked token is worthless.
    credentials.replace(Access::from_lines(&Access::line("eye", READ, "read", "")).unwrap(), None);
    post(LOCK, "/v1/holds", r#"{"name":"shop/x"}"#).await.is(401, "unauthorized");
}

#[tokio::test]
async fn a_bulk_break_ends_exactly_what_was_named() {
    let site = Site::memory().await;
    let mut fences = Vec::new();
    for name in ["j/1", "j/2", "j/3"] {
        fences.push(
            site.post("/v1/holds", &format!(r#"{{"name":"{name}"}}"#))
                .await
                .is(201, "")
                .number("fence"),
        );
    }
    let body = format!(
        r#"{{"holds":[{{"name":"j/1","fence":{}}},{{"name":"j/2","fence":{}}}],"reason":"node is gone"}}"#,
        fences[0],
        fences[1] + 1
    );
    let answer = site.post("/v1/break", &body).await.is(200, "");
    assert_eq!(
        (answer.body["holds"][0]["status"].as_u64(), answer.body["holds"][1]["status"].as_u64()),
        (Some(200), Some(409))
    );
    let left = site.get("/v1/names?prefix=j/&state=held").await.is(200, "");
    let left: Vec<_> = left.body["names"]
        .as_array()
        .unwrap()
        .iter()
        .map(|name| name["name"].as_str().unwrap())
        .collect();
    assert_eq!(left, ["j/2", "j/3"]);
    site.post("/v1/break", r#"{"name":"j/2","fence":5,"reason":"r"}"#).await.is(409, "moved_on");
    site.post("/v1/break", r#"{"name":"j/2","fence":5,"reason":""}"#).await.is(400, "invalid");
}

#[tokio::test]
async fn pages_of_other_servers_are_kept_out() {
    let site = Site::memory().await;
    let body = r#"{"name":"x"}"#;
    site.send("POST", "/v1/holds", "origin: https://evil.example\r\n", body)
        .await
        .is(403, "forbidden");
    site.send("POST", "/v1/holds", "origin: null\r\n", body).await.is(403, "forbidden");
    site.send("GET", "/v1/names", "origin: http://localhost\r\n", "").await.is(200, "");
    let page = site.get("/docs").await;
    assert!(
        page.head.contains("content-security-policy: default-src 'self'")
            && page.head.contains("nosniff")
    );
}

/// A hold longer than the quiet start could be granted to someone else meanwhile.
#[tokio::test]
async fn no_hold_outlasts_the_quiet_start_of_a_server_that_forgets() {
    let mut config = Config::default();
    config.longest_ttl = Duration::from_secs(60);
    let (engine, key) = (Arc::new(Memory::new()), Key::random().unwrap());
    let site = Site::start(engine, key, config, Credentials::default()).await;
    for path in ["/v1/holds", "/v1/once"] {
        let refused = site.post(path, r#"{"name":"x","ttl":"61s"}"#).await.is(400, "invalid");
        assert!(refused.text("detail").contains("60s"), "{refused:?}");
    }
    let body = format!(r#"{{"name":"x","ttl":"60s","claim":"{}"}}"#, claim(1));
    let fence = site.post("/v1/holds", &body).await.is(201, "").number("fence");
    let renew =
        |ttl| format!(r#"{{"name":"x","claim":"{}","fence":{fence},"ttl":"{ttl}"}}"#, claim(1));
    site.post("/v1/holds/renew", &renew("61s")).await.is(400, "invalid");
    site.post("/v1/holds/renew", &renew("60s")).await.is(200, "");
    // Nor does a hold of a program that uses this server as its engine.
    let engine = http_engine(&site).await;
    assert_eq!(engine.profile().longest_ttl, Duration::from_secs(60));
    let name = Name::new(Space::Lock, "y").unwrap();
    let mut long = Claim::new(name.clone(), SystemWorld.mint().unwrap());
    long.ttl = Duration::from_secs(61);
    assert_eq!(engine.claim(&long).await.unwrap_err().kind(), ErrorKind::Invalid);
    let place = engine.renew(0, &[Renewal::Place(long.clone())]).await.unwrap();
    assert!(matches!(&place[..], [Renewed::Unknown(error)] if error.kind() == ErrorKind::Invalid));
    let ttl = long.ttl;
    long.ttl = Duration::from_secs(60);
    let Verdict::Granted(grant) = engine.claim(&long).await.unwrap() else { panic!("not granted") };
    let hold = Renewal::Hold { name, id: long.id, fence: grant.fence, ttl };
    let renewed = engine.renew(0, &[hold]).await.unwrap();
    assert!(matches!(&renewed[..], [Renewed::Unknown(_)]), "{renewed:?}");
}

#[tokio::test]
async fn a_server_whose_engine_forgot_everything_grants_nothing_at_first() {
    let mut config = Config::default();
    config.quiet_start = Duration::from_secs(2);
    let (engine, key) = (Arc::new(Memory::new()), Key::random().unwrap());
    let site = Site::start(engine, key, config, Credentials::default()).await;
    let refused = site.post("/v1/holds", r#"{"name":"x"}"#).await.is(503, "unavailable");
    assert!(refused.head.contains("retry-after: "));
    tokio::time::sleep(Duration::from_millis(2_100)).await;
    site.post("/v1/holds", r#"{"name":"x"}"#).await.is(201, "");
}
