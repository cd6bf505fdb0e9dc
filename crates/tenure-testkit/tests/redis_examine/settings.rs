//! A single server: its version and role, its persistence, and other data on it.

use tenure::{ErrorKind, Mark, Tenure};
use tenure_testkit::proxy::{Direction, Proxy};
use tenure_testkit::servers::{Build, Certificates, Clock, Flavour, Fsync, Redis};

use super::{about, examined, one, only, says};
use crate::redis_site::*;

/// A server that keeps what it acknowledged.
fn fit() -> Build {
    Redis::build().aof(Fsync::Always)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fit_server_passes_every_check_and_the_checks_leave_nothing_behind() {
    for flavour in Flavour::ALL {
        let server = fit().flavour(flavour).start().unwrap();
        let found = examined(&server.url()).await;
        only(&found, &[]);
        let checks: Vec<_> = found.iter().map(|finding| finding.check).collect();
        assert_eq!(
            checks,
            [
                "reach",
                "version",
                "role",
                "replication",
                "eviction",
                "persistence",
                "headroom",
                "rights",
                "scripts",
                "clock",
                "prefix",
                "exposure",
                "latency"
            ]
        );
        let name = if flavour == Flavour::Valkey { "Valkey 9" } else { "Redis" };
        says(one(&found, "version"), Mark::Good, &[name, "standalone"]);
        says(one(&found, "latency"), one(&found, "latency").mark, &["ms p50", "ms p99"]);
        assert_eq!(keys(&server), [""; 0], "something was left behind");
        // A connected client is examined in the same way.
        let tenure = connect(&server.url()).await;
        let hold = tenure.mutex("x").acquire().await.unwrap();
        let found = tenure.examine().await.unwrap();
        only(&found, &[]);
        says(one(&found, "prefix"), Mark::Good, &["all under \"tenure\" is tenure's: 2 keys"]);
        assert!(hold.is_live());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_may_evict_locks_is_a_problem_until_the_fix_is_pasted() {
    let server = fit()
        .setting("maxmemory", "200mb")
        .setting("maxmemory-policy", "volatile-lru")
        .start()
        .unwrap();
    let found = examined(&server.url()).await;
    only(&found, &["eviction"]);
    let eviction = one(&found, "eviction");
    says(eviction, Mark::Problem, &["volatile-lru", "none was evicted yet", "removes them first"]);
    assert_eq!(eviction.code, Some("T041"));
    let fix = eviction.fix.as_deref().unwrap();
    let to_paste = format!("redis-cli -h 127.0.0.1 -p {} ", server.port());
    let words = fix.strip_prefix(&to_paste).unwrap().split(" (").next().unwrap();
    server.command(&words.split(' ').collect::<Vec<_>>()).unwrap().accepted().unwrap();
    only(&examined(&server.url()).await, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_forgets_is_a_weakness() {
    let server = server();
    let found = examined(&server.url()).await;
    only(&found, &["persistence"]);
    let persistence = one(&found, "persistence");
    says(
        persistence,
        Mark::Warning,
        &["no append-only file and no snapshot", "after_restart=wait"],
    );
    assert_eq!(persistence.code, Some("T042"));
    server.command(&["SAVE"]).unwrap().accepted().unwrap();
    server.command(&["BGSAVE"]).unwrap().accepted().unwrap();
    until("it has saved", async || server.info("rdb_bgsave_in_progress").as_deref() == Some("0"))
        .await;
    let found = examined(&server.url()).await;
    says(one(&found, "persistence"), Mark::Warning, &["snapshots only"]);
    let found = examined(&format!("{}?after_restart=wait", server.url())).await;
    says(one(&found, "persistence"), Mark::Good, &["nothing is granted for a while"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replica_is_a_problem_that_names_its_primary_and_connecting_to_it_is_refused() {
    let primary = fit().start().unwrap();
    let replica = fit().replica_of(primary.port()).start().unwrap();
    assert!(within(secs(10), reach(&replica.url())).await.is_err());
    let found = examined(&replica.url()).await;
    let named = format!("redis://127.0.0.1:{}", primary.port());
    says(one(&found, "role"), Mark::Problem, &["is a replica of 127.0.0.1", &named]);
    only(&found, &["role"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_count_only_if_grants_wait_for_them() {
    let primary = fit().start().unwrap();
    let link = Proxy::start(primary.port()).unwrap();
    let _replica = fit().replica_of(link.port()).start().unwrap();
    let online = || primary.info("slave0").is_some_and(|line| line.contains("state=online"));
    until("the replica is in sync", async || online()).await;
    let found = examined(&primary.url()).await;
    only(&found, &["replication"]);
    says(one(&found, "replication"), Mark::Warning, &["1 replica", "?wait_replicas=1"]);
    let waits = format!("{}?wait_replicas=1", primary.url());
    let found = examined(&waits).await;
    only(&found, &[]);
    says(one(&found, "replication"), Mark::Good, &["1 must have a grant"]);
    link.refuse().unwrap();
    link.reset();
    until("the replica is gone", async || primary.info("slave0").is_none()).await;
    let found = examined(&waits).await;
    says(one(&found, "replication"), Mark::Problem, &["no replica in sync", "no claim can"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_without_scripts_is_a_problem() {
    let server = fit().setting("rename-command", "EVALSHA \"\"").start().unwrap();
    let found = examined(&server.url()).await;
    only(&found, &["scripts"]);
    says(one(&found, "scripts"), Mark::Problem, &["does not know evalsha", "rename-command"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_clock_that_is_wrong_is_a_weakness() {
    let clock = Clock::new().unwrap();
    let server = fit().clock(&clock).start().unwrap();
    clock.offset(-90_000).unwrap();
    let found = examined(&server.url()).await;
    only(&found, &["clock"]);
    let clock_is = one(&found, "clock");
    says(clock_is, Mark::Warning, &["s from this machine's", "slewing"]);
    // A slow answer makes a clock that is behind look a little less so.
    let behind: i64 = clock_is.what.split(' ').next().unwrap().parse().unwrap();
    assert!((-90..=-60).contains(&behind), "{clock_is:?}");
    clock.offset(0).unwrap();
    only(&examined(&server.url()).await, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_are_not_ours_are_named() {
    let server = fit().start().unwrap();
    let tenure = connect(&server.url()).await;
    let hold = tenure.mutex("x").acquire().await.unwrap();
    let key = key_of(&server, "x");
    hold.release().await.unwrap();
    // Beside our keys.
    server.command(&["SET", "tenure:cache:\u{1b}[31m", "1"]).unwrap().accepted().unwrap();
    server.command(&["SET", "others:cache", "1"]).unwrap().accepted().unwrap();
    let found = examined(&server.url()).await;
    only(&found, &["prefix"]);
    says(one(&found, "prefix"), Mark::Warning, &["tenure:cache:", "namespace="]);
    assert!(!one(&found, "prefix").what.contains('\u{1b}'));
    // Where we would keep our keys.
    let line = key.replace(":l:", ":z:l:");
    for (words, named) in [
        (vec!["SET", &key, "theirs"], &key),
        (vec!["LPUSH", &key, "theirs"], &key),
        (vec!["HSET", &key, "their", "field"], &key),
        (vec!["SET", &line, "theirs"], &line),
    ] {
        server.command(&words).unwrap().accepted().unwrap();
        let found = examined(&server.url()).await;
        says(one(&found, "prefix"), Mark::Problem, &["at names that it uses", named]);
        // A claim that meets them says the same; the line matters only if there is one.
        let claimed = within(secs(10), tenure.mutex("x").acquire()).await.map(drop);
        let refused = claimed.err().map(|error| error.kind());
        assert_eq!(refused, (named == &key).then_some(ErrorKind::Conflict));
        server.command(&["DEL", named]).unwrap();
    }
    let found = examined(&format!("{}?namespace=locks", server.url())).await;
    only(&found, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn lines_of_every_form_are_known_as_ours() {
    let server = fit().start().unwrap();
    let tenure = connect(&server.url()).await;
    let _alone = tenure.mutex("alone").acquire().await.unwrap();
    let _shared = tenure.semaphore("shared", 3).acquire().await.unwrap();
    let _held = tenure.mutex("contended").acquire().await.unwrap();
    let waiting = wait_for(&tenure, "contended", secs(30));
    until_waiting(&tenure, "contended", 1).await;
    let found = examined(&server.url()).await;
    only(&found, &[]);
    says(one(&found, "prefix"), Mark::Good, &["is tenure's"]);
    waiting.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_little_room_is_a_weakness() {
    let server = fit().setting("maxclients", "20").start().unwrap();
    let crowd: Vec<_> = (0..16).map(|_| server.connect().unwrap()).collect();
    let found = examined(&server.url()).await;
    only(&found, &["headroom"]);
    says(one(&found, "headroom"), Mark::Warning, &["of 20 clients", "CONFIG SET maxclients 40"]);
    drop(crowd);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_far_is_a_weakness() {
    let server = fit().start().unwrap();
    let proxy = Proxy::start(server.port()).unwrap();
    proxy.delay(Direction::Downstream, ms(60));
    let found = examined(&through(&proxy, "")).await;
    says(one(&found, "latency"), Mark::Warning, &["p50", "closer"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_of_another_kind_says_which_url_to_use() {
    let server = fit().start().unwrap();
    let found = examined(&server.url().replace("redis://", "redis-cluster://")).await;
    says(one(&found, "version"), Mark::Problem, &["standalone", "use redis://"]);
    let node = fit().cluster().start().unwrap();
    let found = examined(&node.url()).await;
    says(one(&found, "version"), Mark::Problem, &["part of a cluster", "use redis-cluster://"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn tls_and_sockets_are_examined_too() {
    let certificates = Certificates::new().unwrap();
    let server = fit().tls(&certificates).start().unwrap();
    let ca = certificates.ca_path();
    only(&examined(&format!("{}?ca={}", server.url(), ca.display())).await, &[]);
    // One that the system's roots do not know is a problem, rather than a missing server.
    let found = examined(&server.url()).await;
    only(&found, &["reach"]);
    says(one(&found, "reach"), Mark::Problem, &["certificate"]);
    let server = fit().unix_socket().start().unwrap();
    only(&examined(&server.url()).await, &[]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_is_not_there_or_does_not_answer_is_an_error() {
    let server = fit().start().unwrap();
    let url = format!("{}?connect_timeout=1s&command_timeout=1s", server.url());
    server.pause().unwrap();
    // It does not take as long as all its answers together may.
    let error = within(secs(15), Tenure::examine_at(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    server.resume().unwrap();
    server.kill().unwrap();
    let error = within(secs(50), Tenure::examine_at(&url)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable, "{error}");
    assert!(error.to_string().starts_with("examine on redis://127.0.0.1"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn other_engines_say_what_they_are_for() {
    let found = examined("memory:").await;
    assert_eq!(about(&found, "reach").len(), 1);
    says(one(&found, "reach"), Mark::Warning, &["no other process", "redis://"]);
    assert!(Tenure::examine_at("reddis://x").await.is_err());
}
