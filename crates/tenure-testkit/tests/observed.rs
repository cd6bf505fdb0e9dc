//! The reports about a lock, on every engine: they never contain a secret, and show which work blocks it.
#![allow(clippy::unwrap_used, reason = "whatever is missing fails the test")]

#[path = "../../tenure/tests/fixtures/log_recorder.rs"]
#[allow(dead_code, reason = "shared with the library's own tests")]
mod log_recorder;
#[path = "../../tenure/tests/fixtures/metrics_recorder.rs"]
#[allow(dead_code, reason = "shared with the library's own tests")]
mod meters;
#[path = "observed/secrets.rs"]
mod secrets;

use std::sync::Arc;
use std::time::Duration;

use secrets::{ENCODED, Minted, PASSWORD, spellings};
use tenure::engine::{Engine, World};
use tenure::engines::file::File;
use tenure::engines::memory::Memory;
use tenure::engines::postgres::{Postgres, PostgresConfig};
use tenure::engines::redis::{Redis, RedisConfig};
use tenure::{Detached, Protection, Tenure};
use tenure_testkit::servers::{
    Folder, Postgres as PostgresServer, PostgresDatabase, Redis as Server,
};

fn ms(milliseconds: u64) -> Duration {
    Duration::from_millis(milliseconds)
}

/// Polls until `fact` holds.
fn until(what: &str, mut fact: impl FnMut() -> bool) {
    for _ in 0..2_000 {
        if fact() {
            return;
        }
        std::thread::sleep(ms(5));
    }
    panic!("not within ten seconds: {what}");
}

async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(10), future)
        .await
        .expect("an answer within ten seconds")
}

/// The engine, and the server that must live as long.
struct FileSite {
    name: &'static str,
    engine: Arc<dyn Engine>,
    _folder: Option<Folder>,
    _server: Option<Server>,
    _database: Option<PostgresDatabase>,
}

/// A database that asks for the password.
fn with_password(password: &str) -> PostgresDatabase {
    let database = PostgresDatabase::alone(PostgresServer::build()).unwrap();
    let lines = "(VALUES ('local all all trust'), ('host all all all scram-sha-256'))";
    let hba = database.sql("SHOW hba_file").unwrap();
    for sql in [
        format!("ALTER ROLE postgres PASSWORD '{password}'"),
        format!("COPY {lines} TO '{hba}'"),
        "SELECT pg_reload_conf()".to_owned(),
    ] {
        database.sql(&sql).unwrap();
    }
    database
}

async fn sites() -> Vec<FileSite> {
    let folder = Folder::new("observed").unwrap();
    let file = Arc::new(File::open(folder.path().join("locks.db")).unwrap());
    let server = Server::build().password(PASSWORD).start().unwrap();
    let url = server.url().replace("redis://", &format!("redis://:{ENCODED}@"));
    let (config, _) = RedisConfig::from_url(&url).unwrap();
    let shown = format!("{config:?} {}", config.label());
    assert!(!shown.contains(PASSWORD), "{shown}");
    let redis = Arc::new(Redis::connect(config).await.unwrap());
    let of = |name, engine: Arc<dyn Engine>| FileSite {
        name,
        engine,
        _folder: None,
        _server: None,
        _database: None,
    };
    let database = with_password(PASSWORD);
    let url = database.url().replace("postgres@", &format!("postgres:{ENCODED}@"));
    let (config, _) = PostgresConfig::from_url(&url).unwrap();
    let shown = format!("{config:?} {}", config.label());
    assert!(!shown.contains(PASSWORD), "{shown}");
    let postgres = Arc::new(Postgres::connect(config).await.unwrap());
    vec![
        of("memory", Arc::new(Memory::new())),
        FileSite { _folder: Some(folder), ..of("file", file) },
        FileSite { _server: Some(server), ..of("redis", redis) },
        FileSite { _database: Some(database), ..of("postgres", postgres) },
    ]
}

/// Everything that can happen to a claim, and the `Debug` and `Display` of whatever a program can get hold of
/// meanwhile.
async fn everything(tenure: &Tenure, name: &str) -> String {
    let mut shown = format!("{tenure:?} {:?} {:?}", tenure.defaults(), tenure.profile());
    let mut show = |what: &dyn std::fmt::Debug| shown.push_str(&format!("{what:?}\n"));
    let ask = || tenure.mutex(name).meta("order", "42").reason("a test");
    show(&ask());
    let hold = ask().acquire().await.unwrap();
    show(&hold);
    show(&(hold.lost(), hold.at_risk()));
    hold.extend(Duration::from_secs(60)).await.unwrap();
    let over = soon(ask().wait(ms(20)).acquire()).await.unwrap_err();
    show(&(&over, over.to_string()));
    assert!(ask().try_acquire().await.unwrap().is_none());
    drop(ask().join());
    let next = tokio::spawn(ask().join());
    let waits = async || tenure.inspect(name).await.unwrap().is_some_and(|v| !v.waiters.is_empty());
    while !soon(waits()).await {
        tokio::time::sleep(ms(5)).await;
    }
    show(&tenure.inspect(name).await.unwrap());
    show(&tenure.list("").await.unwrap());
    show(&tenure.break_hold(name, hold.fence(), "a test").await.unwrap());
    show(&soon(hold.lost()).await);
    let next = soon(next).await.unwrap().unwrap();
    let gone = hold.extend(Duration::from_secs(60)).await.unwrap_err();
    show(&(&gone, gone.to_string(), hold.release().await));
    let detached = next.detach().await.unwrap();
    show(&(&detached, detached.to_string()));
    let attached = tenure.attach(&detached).await.unwrap();
    let twice = tenure.attach(&detached).await.unwrap_err();
    show(&(&attached, &twice, twice.to_string(), tenure.check(&detached).await));
    show(&attached.release().await);
    let lost = tenure.attach(&detached).await.unwrap_err();
    let broken_secret = detached.secret().replace("t1-", "t9-");
    show(&(&lost, lost.to_string(), Detached::from_secret(name, &broken_secret)));
    let brief = ask().ttl(ms(200)).renew(false).acquire().await.unwrap();
    show(&soon(brief.lost()).await);
    show(&soon(brief.release()).await);
    let renewed = ask().ttl(ms(300)).acquire().await.unwrap();
    tokio::time::sleep(ms(250)).await;
    drop(renewed);
    show(&tenure.semaphore(format!("{name}:s"), 2).acquire().await);
    show(&tenure.semaphore(format!("{name}:s"), 3).acquire().await);
    show(&tenure.rwlock(format!("{name}:r")).read().await);
    show(&tenure.all([format!("{name}:a"), format!("{name}:b")]).acquire().await);
    let term = tenure.election(name).value("here").campaign().await.unwrap();
    show(&(&term, tenure.election(name).leader().await));
    show(&term.resign().await);
    let once = || tenure.once(name).content("body");
    show(&once().begin().await);
    show(&once().rerun(true).run(async |_| Ok::<_, ()>("done")).await);
    show(&(once().begin().await, tenure.advice(), tenure.health().await.is_ok()));
    tenure.measure_ages();
    shown
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_that_is_reported_contains_a_secret() {
    log_recorder::keep();
    meters::keep();
    for FileSite { name, engine, _folder, _server, _database } in sites().await {
        let world = Arc::new(Minted::default());
        let tenure = Tenure::in_world(engine, world.clone() as Arc<dyn World>);
        let mut said = everything(&tenure, &format!("secret:{name}")).await;
        soon(tenure.close()).await;
        said.push_str(&format!("{:?} {:?}", *log_recorder::lines(), meters::told()));
        let ids = world.ids();
        assert!(ids.len() > 10 && said.contains("lock.expired_before_release"), "{name}: {said}");
        assert!(said.contains("tenure_acquisitions_total") && said.contains("tenure.hold"));
        // The search works: it finds secrets that are written on purpose.
        let planted = Detached::from_secret("x", &world.planted()).unwrap().secret();
        assert!(ids.iter().flat_map(spellings).any(|spelling| planted.contains(&spelling)));
        let folded = said.to_lowercase();
        for spelling in ids.iter().flat_map(spellings).chain(secrets::of_password()) {
            assert!(!folded.contains(&spelling.to_lowercase()), "{name}: {spelling} in {said}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_password_that_is_refused_is_not_repeated() {
    log_recorder::keep();
    let server = Server::build().password("another").start().unwrap();
    let url = server.url().replace("redis://", &format!("redis://:{ENCODED}@"));
    let refused = Tenure::connect(&url).await.unwrap_err();
    let unknown = Tenure::connect(&url.replace("redis://", "reddis://")).await.unwrap_err();
    let nobody = Tenure::connect(&format!("redis://:{ENCODED}@127.0.0.1:1")).await.unwrap();
    let nobody = nobody.health().await.unwrap_err();
    let unread = Tenure::connect(&format!("redis://:{PASSWORD}@127.0.0.1")).await.unwrap_err();
    let database = with_password("another");
    let own = database.url().replace("postgres@", &format!("postgres:{ENCODED}@"));
    let not_ours = Tenure::connect(&own).await.unwrap_err();
    let bad_port = Tenure::connect(&own.replace("127.0.0.1:", "127.0.0.1:x")).await.unwrap_err();
    let said = format!("{not_ours:?} {not_ours} {bad_port:?} {bad_port}");
    let said = format!("{said} {refused:?} {refused} {unknown:?} {unknown} {nobody:?} {nobody}");
    let said = format!("{said} {unread:?} {unread}");
    let said = format!("{said} {:?}", *log_recorder::lines());
    for spelling in secrets::of_password() {
        assert!(!said.contains(&spelling), "{spelling} in {said}");
    }
}

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_is_led_to_the_holders_trace_on_every_engine() {
    log_recorder::keep();
    for FileSite { name, engine, _folder, _server, _database } in sites().await {
        let holder = Tenure::with_engine(engine.clone()).with_trace_source(|| Some(TRACE.into()));
        let tenure = Tenure::with_engine(engine);
        let name = format!("traced:{name}");
        let hold = holder.mutex(&name).owner("web-1").acquire().await.unwrap();
        let waiter = tokio::spawn(tenure.mutex(&name).owner("web-2").join());
        let fence = hold.fence().to_string();
        let blocked = [
            ("blocked_by.trace", TRACE),
            ("blocked_by.owner", "web-1"),
            ("blocked_by.fence", &fence),
        ];
        let queued = tokio::task::spawn_blocking({
            let name = name.clone();
            move || log_recorder::written(&name, "lock.queued")
        });
        log_recorder::expect(&queued.await.unwrap(), tracing::Level::DEBUG, &blocked);
        drop(hold);
        drop(soon(waiter).await.unwrap().unwrap());
        let lines = log_recorder::lines().clone();
        let span = lines.iter().find(|line| {
            let mine = line.is("tenure.name", &name) && line.is("tenure.owner", "web-2");
            line.span == "tenure.acquire" && mine
        });
        let (span, fields) = (span.unwrap(), [("tenure.blocked_by.trace", TRACE)]);
        log_recorder::expect(span, tracing::Level::DEBUG, &fields);
        log_recorder::expect(span, tracing::Level::DEBUG, &[("tenure.outcome", "granted")]);
    }
}

/// A waiter whose process is gone is passed over when its turn comes, and counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiter_that_cannot_be_reached_is_counted() {
    log_recorder::keep();
    meters::keep();
    let folder = Folder::new("passed-over").unwrap();
    let path = folder.path().join("locks.db");
    let [holds, waits] = [(), ()].map(|()| Arc::new(File::open(&path).unwrap()));
    let holder = Tenure::with_engine(holds);
    let waiter = Tenure::with_engine(waits.clone());
    let hold = holder.mutex("ghost:1").acquire().await.unwrap();
    let mut place = Box::pin(waiter.mutex("ghost:1").join());
    let waits_now = async || !holder.inspect("ghost:1").await.unwrap().unwrap().waiters.is_empty();
    while !waits_now().await {
        let _ = tokio::time::timeout(ms(5), &mut place).await;
    }
    // As by a process that is gone: nobody listens, and nobody left.
    waits.close().await.unwrap();
    let _ = soon(hold.release()).await.unwrap();
    let ghosts = || meters::sum("tenure_zombie_waiters_reaped_total", &[("group", "ghost")]);
    until("a waiter that was passed over", || ghosts() >= 1.0);
    let next = soon(holder.mutex("ghost:1").acquire()).await.unwrap();
    assert_eq!((ghosts(), next.is_live()), (1.0, true));
}

/// A claim that continues without the engine is counted, and so is the engine's return.
#[tokio::test(flavor = "multi_thread")]
async fn an_outage_is_counted_and_the_gauges_come_back() {
    meters::keep();
    for policy in ["local", "open"] {
        let server = Server::build().start().unwrap();
        let tenure =
            Tenure::connect(&format!("{}?on_outage={policy}", server.url())).await.unwrap();
        let (label, group) = (tenure.profile().label.clone(), format!("outage-{policy}"));
        let up = || meters::sum("tenure_engine_up", &[("engine", &label)]);
        let held = || meters::sum("tenure_held", &[("group", &group)]);
        let unprotected = || meters::sum("tenure_fail_open_total", &[("group", &group)]);
        drop(tenure.mutex(format!("{group}:1")).acquire().await.unwrap());
        until("a release that is answered", || held() == 0.0);
        assert_eq!((up(), unprotected()), (1.0, 0.0));
        server.kill().unwrap();
        let hold = soon(tenure.mutex(format!("{group}:1")).acquire()).await.unwrap();
        // Reported by another thread, perhaps a little later.
        until("an outage", || (up(), unprotected(), held()) == (0.0, 1.0, 1.0));
        drop(hold);
        until("no hold", || held() == 0.0);
        server.restart().unwrap();
        let back =
            async || tenure.mutex(format!("{group}:2")).acquire().await.unwrap().protection();
        while soon(back()).await != Protection::Engine {
            tokio::time::sleep(ms(20)).await;
        }
        until("an engine that is up and no hold", || (up(), held()) == (1.0, 0.0));
        assert_eq!(meters::sum("tenure_waiters", &[("group", &group)]), 0.0);
    }
}
