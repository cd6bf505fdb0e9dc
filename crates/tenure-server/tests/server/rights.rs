//! What a token allows to a program that uses the server as its engine, and what pages may do.

use std::sync::Arc;

use tenure::engine::{
    Claim, ClaimId, Engine, ErrorKind, Fence, Leave, Left, Name, Note, Renewal, Renewed, Scope,
    Space, SystemWorld, Turn, Turns, Verdict, World,
};
use tenure::engines::http::{Http, HttpConfig};
use tenure::engines::memory::Memory;
use tenure_server::{Access, Config, Credentials, Key};

use super::probe::Site;

const ENGINE: &str = "eeeeeeeeeeeeeeeeeeeeeeeeeeeeeeee";
const ADMIN: &str = "cccccccccccccccccccccccccccccccc";

async fn guarded() -> Site {
    let lines = [
        Access::line("shop", ENGINE, "engine", "shop/"),
        Access::line("ops", ADMIN, "engine,admin", ""),
    ];
    let credentials = Credentials::new(Access::from_lines(&lines.join("\n")).unwrap(), None);
    let key = Key::random().unwrap();
    Site::start(Arc::new(Memory::new()), key, Config::default(), credentials).await
}

async fn engine(site: &Site, token: &str) -> Http {
    let url = format!("http://:{token}@127.0.0.1:{}", site.port);
    Http::connect(HttpConfig::from_url(&url).unwrap().0).await.unwrap()
}

/// Someone who takes every turn.
#[derive(Debug)]
struct TakesAll;

impl Turns for TakesAll {
    fn deliver(&self, _: &Name, _: &ClaimId, _: Turn) -> bool {
        true
    }

    fn look_again(&self, _: u32) {}
}

fn name(text: &str) -> Name {
    Name::new(Space::Lock, text).unwrap()
}

fn ask(text: &str) -> Claim {
    Claim::new(name(text), SystemWorld.mint().unwrap())
}

async fn hold(engine: &Http, claim: &Claim) -> Fence {
    match engine.claim(claim).await.unwrap() {
        Verdict::Granted(grant) => grant.fence,
        other => panic!("{other:?}"),
    }
}

fn bearer(token: &str) -> String {
    format!("authorization: Bearer {token}\r\n")
}

#[tokio::test]
async fn a_program_may_do_no_more_over_the_engine_than_elsewhere() {
    let site = guarded().await;
    let (shop, ops) = (engine(&site, ENGINE).await, engine(&site, ADMIN).await);
    let denied = |error: tenure::Error| {
        assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    };
    let (own, other) = (ask("shop/x"), ask("pay/x"));
    let fence = hold(&shop, &own).await;
    let foreign = hold(&ops, &other).await;
    denied(shop.claim(&ask("pay/y")).await.unwrap_err());
    denied(shop.leave(&Leave::new(other.name.clone(), other.id)).await.unwrap_err());
    denied(shop.detach(&other.name, &other.id).await.unwrap_err());
    let renewal = |claim: &Claim, fence| Renewal::Hold {
        name: claim.name.clone(),
        id: claim.id,
        fence,
        ttl: claim.ttl,
    };
    denied(shop.renew(0, &[renewal(&other, foreign)]).await.unwrap_err());
    let renewed = shop.renew(0, &[renewal(&own, fence)]).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Held(_)]), "{renewed:?}");
    // Force is for admins, and reading for readers.
    let note = Note { by: "shop".to_owned(), reason: "r".to_owned() };
    denied(shop.break_hold(&own.name, fence, &note).await.unwrap_err());
    denied(shop.resize(&name("shop/s"), 3).await.unwrap_err());
    denied(shop.inspect(&Scope::Name(own.name.clone())).await.unwrap_err());
    denied(shop.examine().await.unwrap_err());
    shop.health().await.unwrap();
    assert_eq!(ops.inspect(&Scope::Name(own.name.clone())).await.unwrap().views.len(), 1);
    ops.examine().await.unwrap();
    assert_eq!(shop.leave(&Leave::new(own.name, own.id)).await.unwrap(), Left::Released);
}

#[tokio::test]
async fn what_programs_do_over_the_engine_is_recorded() {
    let site = guarded().await;
    let (shop, ops) = (engine(&site, ENGINE).await, engine(&site, ADMIN).await);
    let turns: Arc<dyn Turns> = Arc::new(TakesAll);
    shop.attach(Arc::downgrade(&turns));
    let (mut first, mut second) = (ask("shop/x"), ask("shop/x"));
    Arc::make_mut(&mut first.details).owner = "web-3:1".to_owned();
    Arc::make_mut(&mut second.details).owner = "web-5:1".to_owned();
    let fence = hold(&shop, &first).await;
    assert!(matches!(shop.claim(&second).await.unwrap(), Verdict::Waiting(_)));
    // Asked again, it is the same wait.
    assert!(matches!(shop.claim(&second).await.unwrap(), Verdict::Waiting(_)));
    let note = Note { by: "ann".to_owned(), reason: "stuck".to_owned() };
    ops.break_hold(&first.name, fence, &note).await.unwrap();
    // The grant may be reported by the push or by the answer to a look; it counts once.
    let look = [Renewal::Place(second.clone())];
    let renewed = shop.renew(0, &look).await.unwrap();
    assert!(matches!(renewed[..], [Renewed::Held(_)]), "{renewed:?}");
    shop.leave(&Leave::new(second.name.clone(), second.id)).await.unwrap();
    let seen = site.send("GET", "/v1/name?name=shop/x", &bearer(ADMIN), "").await;
    let history: Vec<_> = seen.body["history"]
        .as_array()
        .unwrap()
        .iter()
        .map(|event| (event["event"].as_str().unwrap(), event["owner"].as_str().unwrap()))
        .collect();
    let all = [
        ("granted", "web-3:1"),
        ("waiting", "web-5:1"),
        ("granted", "web-5:1"),
        ("broken", "ann"),
        ("released", "web-5:1"),
    ];
    assert_eq!(history, all);
}

#[tokio::test]
async fn everyone_can_ask_what_it_may_do() {
    let site = guarded().await;
    let me = site.send("GET", "/v1/me", &bearer(ENGINE), "").await.is(200, "");
    let said = (&me.body["name"], &me.body["roles"], &me.body["prefix"], &me.body["open"]);
    assert_eq!(said, (&"shop".into(), &vec!["engine"].into(), &"shop/".into(), &false.into()));
    let ops = site.send("GET", "/v1/me", &bearer(ADMIN), "").await.is(200, "");
    assert_eq!(ops.body["roles"], serde_json::json!(["read", "admin", "engine"]));
    site.get("/v1/me").await.is(401, "unauthorized");
    // A page with an admin's token may break.
    let page = format!("origin: http://localhost\r\n{}", bearer(ADMIN));
    let body = r#"{"name":"shop/x","fence":1,"reason":"r"}"#;
    site.send("POST", "/v1/break", &page, body).await.is(409, "moved_on");
    assert_eq!(site.send("GET", "/v1/me", &page, "").await.body["roles"], ops.body["roles"]);
}

#[tokio::test]
async fn without_tokens_pages_may_only_read_unless_they_are_allowed_more() {
    let open = Site::memory().await;
    let mut config = Config::default();
    config.pages_may_change = true;
    let (engine, key) = (Arc::new(Memory::new()), Key::random().unwrap());
    let allowed = Site::start(engine, key, config, Credentials::default()).await;
    let body = r#"{"name":"x","fence":1,"reason":"r"}"#;
    for page in ["origin: http://localhost\r\n", "sec-fetch-site: same-origin\r\n"] {
        open.send("POST", "/v1/break", page, body).await.is(403, "forbidden");
        let me = open.send("GET", "/v1/me", page, "").await.is(200, "");
        assert_eq!((&me.body["roles"], &me.body["open"]), (&vec!["read"].into(), &true.into()));
        allowed.send("POST", "/v1/break", page, body).await.is(409, "moved_on");
        let me = allowed.send("GET", "/v1/me", page, "").await.is(200, "");
        assert_eq!(me.body["roles"], serde_json::json!(["read", "lock", "admin", "engine"]));
    }
    // Programs are not pages.
    open.post("/v1/break", body).await.is(409, "moved_on");
    assert_eq!(open.get("/v1/me").await.body["name"], "127.0.0.1");
}
