//! Servers as they describe themselves, and the findings about them.

use super::*;
use crate::engine::Mark;

const FIT: &str = "redis_version:7.0.15\r\nredis_mode:standalone\r\narch_bits:64\r\n\
    connected_clients:12\r\nmaxclients:10000\r\nused_memory:1000000\r\nmaxmemory:0\r\n\
    maxmemory_policy:noeviction\r\nloading:0\r\nrdb_saves:0\r\nrdb_last_bgsave_time_sec:-1\r\n\
    rdb_last_bgsave_status:ok\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
    rejected_connections:0\r\nevicted_keys:0\r\nrole:master\r\nconnected_slaves:0\r\n\
    cluster_enabled:0\r\n";
const ONLINE: &str = "slave0:ip=10.0.0.2,port=6380,state=online,offset=14,lag=1\r\n";

/// The findings about a server that is fit except for these fields.
fn findings(url: &str, part: Part, fields: &[(&str, &str)], more: &str) -> Vec<Finding> {
    let mut info: String = FIT.to_owned() + more;
    for (name, value) in fields {
        let line = info.lines().find(|line| line.starts_with(&format!("{name}:")));
        let line = line.map(str::to_owned);
        info = match line {
            Some(line) => info.replace(&line, &format!("{name}:{value}")),
            None => info + &format!("{name}:{value}\r\n"),
        };
    }
    let (config, _) = RedisConfig::from_url(url).unwrap();
    let address = Address::Tcp { host: "redis-1".into(), port: 6379 };
    Server { address: &address, part, config: &config, info: &info }.findings()
}

const URL: &str = "redis://redis-1";

/// The finding with that name about a primary that is fit except for these fields.
#[track_caller]
fn finding(url: &str, check: &str, fields: &[(&str, &str)], more: &str) -> Finding {
    let all = findings(url, Part::Primary, fields, more);
    let others = all.iter().filter(|finding| finding.check != check && url == URL);
    assert!(others.clone().all(|finding| finding.mark == Mark::Good), "{all:#?}");
    all.into_iter().find(|finding| finding.check == check).unwrap()
}

#[track_caller]
fn says(finding: &Finding, mark: Mark, words: &[&str]) {
    assert_eq!(finding.mark, mark, "{finding:?}");
    let text = format!("{finding:?}");
    words.iter().for_each(|word| assert!(text.contains(word), "{word} in {text}"));
    assert!(mark == Mark::Good || finding.fix.is_some(), "{text}");
}

#[test]
fn a_fit_server_passes_every_check() {
    let all = findings(URL, Part::Primary, &[], "");
    let checks: Vec<_> = all.iter().map(|finding| finding.check).collect();
    assert_eq!(checks, ["version", "role", "replication", "eviction", "persistence", "headroom"]);
    assert!(all.iter().all(|finding| finding.mark == Mark::Good), "{all:#?}");
}

#[test]
fn a_server_that_evicts_is_a_problem() {
    let lru = [("maxmemory", "1000000000"), ("maxmemory_policy", "volatile-lru")];
    let found = finding(URL, "eviction", &[lru[0], lru[1], ("evicted_keys", "312")], "");
    says(&found, Mark::Problem, &["volatile-lru, and 312 keys were evicted", "removes them first"]);
    assert_eq!(found.code, Some("T041"));
    let fix = "redis-cli -h redis-1 -p 6379 CONFIG SET maxmemory-policy noeviction";
    assert!(found.fix.unwrap().starts_with(fix));
    let all = [("maxmemory", "1000000000"), ("maxmemory_policy", "allkeys-random")];
    says(&finding(URL, "eviction", &all, ""), Mark::Problem, &["removes any key", "none was"]);
    let limit = [("maxmemory", "1000000000")];
    says(&finding(URL, "eviction", &limit, ""), Mark::Good, &["noeviction"]);
    let unlimited = [("maxmemory_policy", "allkeys-lru")];
    says(&finding(URL, "eviction", &unlimited, ""), Mark::Good, &["not limited"]);
}

#[test]
fn a_server_that_forgets_is_a_weakness_unless_it_waits() {
    let none = [("aof_enabled", "0")];
    let found = finding(URL, "persistence", &none, "");
    says(&found, Mark::Warning, &["no append-only file and no snapshot", "forgets all holds"]);
    assert_eq!(found.code, Some("T042"));
    for saved in [("rdb_saves", "3"), ("rdb_last_bgsave_time_sec", "0")] {
        let found = finding(URL, "persistence", &[none[0], saved], "");
        says(&found, Mark::Warning, &["snapshots only", "since the last one"]);
    }
    let waits = "redis://redis-1?after_restart=wait";
    says(&finding(waits, "persistence", &none, ""), Mark::Good, &["nothing is granted"]);
    let full = [("aof_last_write_status", "err")];
    says(&finding(URL, "persistence", &full, ""), Mark::Problem, &["cannot be written"]);
    let failed = [("rdb_last_bgsave_status", "err")];
    says(&finding(URL, "persistence", &failed, ""), Mark::Warning, &["snapshot failed"]);
}

#[test]
fn a_replica_and_a_server_that_loads_grant_nothing() {
    let replica = [("role", "slave"), ("master_host", "redis-2"), ("master_port", "6380")];
    let found = finding(URL, "role", &replica, "");
    says(&found, Mark::Problem, &["a replica of redis-2:6380", "redis://redis-2:6380"]);
    says(&finding(URL, "role", &[("loading", "1")], ""), Mark::Problem, &["loading"]);
    let as_replica = |fields: &[(&str, &str)]| {
        let all = findings("redis-cluster://a", Part::Replica, fields, "");
        all.into_iter().find(|finding| finding.check == "role").unwrap()
    };
    says(&as_replica(&[replica[0], ("master_link_status", "up")]), Mark::Good, &["replica"]);
    says(
        &as_replica(&[replica[0], ("master_link_status", "down")]),
        Mark::Warning,
        &["lost contact"],
    );
    says(&as_replica(&[]), Mark::Warning, &["look again"]);
}

#[test]
fn replicas_are_a_weakness_unless_grants_wait_for_them() {
    says(&finding(URL, "replication", &[], ""), Mark::Good, &["none"]);
    let found = finding(URL, "replication", &[], ONLINE);
    says(&found, Mark::Warning, &["1 replica, and grants do not wait", "?wait_replicas=1"]);
    let waits = "redis://redis-1?wait_replicas=1";
    says(&finding(waits, "replication", &[], ONLINE), Mark::Good, &["1 must have a grant"]);
    let found = finding(waits, "replication", &[], "");
    says(&found, Mark::Problem, &["no replica in sync, and wait_replicas is 1", "no claim can"]);
    let syncing = ONLINE.replace("state=online", "state=wait_bgsave");
    says(&finding(waits, "replication", &[], &syncing), Mark::Problem, &["no replica in sync"]);
    let later = "redis://redis-1?after_restart=wait";
    let found = finding(later, "replication", &[], ONLINE);
    says(&found, Mark::Warning, &["is cut off", "min-replicas-to-write 1"]);
    let strict = [("min_slaves_good_slaves", "1")];
    says(&finding(later, "replication", &strict, ONLINE), Mark::Good, &["waits before"]);
    let sentinel = "redis-sentinel://h1/mymaster";
    says(&finding(sentinel, "replication", &[], ""), Mark::Warning, &["nobody can take over"]);
}

#[test]
fn a_server_that_is_too_old_or_of_another_kind_is_a_problem() {
    for old in ["6.0.16", "5.0.7", "4.0", "nonsense"] {
        let found = finding(URL, "version", &[("redis_version", old)], "");
        says(&found, Mark::Problem, &[old, "6.2 or later"]);
    }
    let found = finding(URL, "version", &[("redis_version", "6.2.14")], "");
    says(&found, Mark::Good, &["Redis 6.2.14, standalone"]);
    let valkey = [("valkey_version", "9.1.2"), ("redis_version", "7.2.4")];
    says(&finding(URL, "version", &valkey, ""), Mark::Good, &["Valkey 9.1.2"]);
    says(&finding(URL, "version", &[("arch_bits", "32")], ""), Mark::Problem, &["32-bit"]);
    let cluster = [("cluster_enabled", "1")];
    says(&finding(URL, "version", &cluster, ""), Mark::Problem, &["use redis-cluster://"]);
    let url = "redis-cluster://redis-1";
    says(&finding(url, "version", &[], ""), Mark::Problem, &["use redis://"]);
    let old = [("cluster_enabled", "1"), ("redis_version", "6.2.14")];
    says(&finding(url, "version", &old, ""), Mark::Problem, &["7.0 or later"]);
}

#[test]
fn a_server_without_room_is_a_weakness() {
    says(&finding(URL, "headroom", &[], ""), Mark::Good, &["12 of 10000 clients"]);
    let full = [("connected_clients", "81"), ("maxclients", "100")];
    says(&finding(URL, "headroom", &full, ""), Mark::Warning, &["81 of 100", "maxclients 200"]);
    let refused = [("rejected_connections", "3")];
    says(&finding(URL, "headroom", &refused, ""), Mark::Warning, &["3 connections were refused"]);
    let heavy = [("maxmemory", "1050000")];
    says(&finding(URL, "headroom", &heavy, ""), Mark::Warning, &["95 % of maxmemory"]);
}

#[test]
fn the_replicas_of_a_primary_are_known_by_address() {
    let more = "connected_slaves:2\r\nslave_read_repl_offset:7\r\n".to_owned() + ONLINE;
    assert_eq!(replicas(&more), [Address::Tcp { host: "10.0.0.2".into(), port: 6380 }]);
}
