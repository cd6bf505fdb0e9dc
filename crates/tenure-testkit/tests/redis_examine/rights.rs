//! Users that lack permissions, and the line that grants them.

use std::time::Duration;

use tenure::Mark;
use tenure_testkit::servers::{Cluster, Flavour, Fsync, Redis};

use super::{examined, one, only, says};
use crate::redis_site::*;

/// The least that a user needs, as docs/engines/redis.md shows it.
const RIGHTS: &str = "resetkeys ~tenure:* resetchannels &tenure:* -@all +hello +info +role +ping \
    +select +subscribe +publish +eval +evalsha +scan +wait +time +get +mget +set +del +pttl +pexpire \
    +hget +hmget +hset +hdel +hincrby +hgetall +pubsub|numsub \
    +zadd +zrem +zcard +zcount +zrangebyscore";
const RIGHTS_IN_A_CLUSTER: &str =
    "+ssubscribe +spublish +asking +cluster|slots +pubsub|shardnumsub";
/// Without these nobody can log in; without the last two, not with these credentials or not to this database.
const TO_COME_IN: [&str; 2] = ["hello", "select"];

fn server_of(flavour: Flavour) -> Redis {
    let user = format!("user locks on >secret {RIGHTS}");
    let users = ["user default off", &user];
    Redis::build().flavour(flavour).aof(Fsync::Always).acl(&users).start().unwrap()
}

fn url(server: &Redis, password: &str) -> String {
    server.url().replace("redis://", &format!("redis://locks:{password}@"))
}

fn set_user(server: &Redis, words: &[&str]) {
    let words = [&["ACL", "SETUSER", "locks"], words].concat();
    server.command(&words).unwrap().accepted().unwrap();
}

/// Applies the suggested fix.
fn paste(server: &Redis, fix: &str) {
    let to_paste = format!("redis-cli -h 127.0.0.1 -p {} ", server.port());
    let words: Vec<_> = fix.strip_prefix(&to_paste).expect(fix).split(' ').collect();
    server.command(&words).unwrap().accepted().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_documented_rights_are_enough_and_nothing_more_is_tried() {
    for flavour in Flavour::ALL {
        let server = server_of(flavour);
        let found = examined(&url(&server, "secret")).await;
        only(&found, &[]);
        says(one(&found, "rights"), Mark::Good, &["user locks has all"]);
        let refused = server.command(&["ACL", "LOG"]).unwrap();
        assert!(refused.list().is_empty(), "{refused}");
        assert_eq!(keys(&server), [""; 0]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_right_that_is_missing_is_named_and_the_line_to_paste_grants_it() {
    for flavour in Flavour::ALL {
        let server = server_of(flavour);
        let rights = RIGHTS.split(' ').filter_map(|word| word.strip_prefix('+'));
        for right in rights.filter(|right| !TO_COME_IN.contains(right) && *right != "wait") {
            // Before 7.0, a subcommand can be allowed but not taken away.
            let command = right.split('|').next().unwrap();
            set_user(&server, &[&format!("-{command}")]);
            let found = examined(&url(&server, "secret")).await;
            let said = one(&found, "rights");
            // All except these, without which everything works, but at a higher price, and with dead claims shown.
            let weak = ["evalsha", "mget", "pubsub|numsub"].contains(&right);
            let mark = if weak { Mark::Warning } else { Mark::Problem };
            says(said, mark, &[&format!("user locks may not use {right}")]);
            paste(&server, said.fix.as_deref().unwrap());
            only(&examined(&url(&server, "secret")).await, &[]);
            assert!(!format!("{found:?}").contains("secret"), "{found:?}");
        }
    }
}

/// A weakness that the doctor reports must not lead to a loss.
#[tokio::test(flavor = "multi_thread")]
async fn a_user_that_may_not_use_script_hashes_holds_and_renews() {
    for flavour in Flavour::ALL {
        let server = server_of(flavour);
        set_user(&server, &["-evalsha"]);
        let tenure = tenure::Tenure::connect(&url(&server, "secret")).await.unwrap();
        let lock = || tenure.mutex("backup").ttl(Duration::from_secs(2));
        let hold = lock().acquire().await.unwrap();
        let next = tokio::spawn(lock().acquire());
        // Longer than it would last without renewals that are answered.
        let lost = tokio::time::timeout(Duration::from_secs(3), hold.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        hold.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_missing_rights_are_granted_by_one_line() {
    for flavour in Flavour::ALL {
        let server = server_of(flavour);
        set_user(&server, &["resetkeys", "resetchannels", "-hset", "-zadd", "-evalsha"]);
        let found = examined(&url(&server, "secret")).await;
        let said = one(&found, "rights");
        says(said, Mark::Problem, &["the keys tenure:*", "the channels tenure:*", "hset", "zadd"]);
        paste(&server, said.fix.as_deref().unwrap());
        only(&examined(&url(&server, "secret")).await, &[]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wait_is_needed_only_to_wait_for_replicas() {
    let server = server_of(Flavour::Debian);
    set_user(&server, &["-wait"]);
    only(&examined(&url(&server, "secret")).await, &[]);
    let found = examined(&format!("{}?wait_replicas=1", url(&server, "secret"))).await;
    says(one(&found, "rights"), Mark::Problem, &["may not use wait", "+wait"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_login_is_reported_and_nothing_else() {
    let server = server_of(Flavour::Debian);
    let found = examined(&url(&server, "wrong")).await;
    only(&found, &["reach"]);
    says(one(&found, "reach"), Mark::Problem, &["refuses this user", "the password"]);
    assert!(!format!("{found:?}").contains("wrong"), "{found:?}");
    let found = examined(&format!("{}/99", url(&server, "secret"))).await;
    says(one(&found, "reach"), Mark::Problem, &["the number of the database"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_each_server_that_lacks_a_right_is_named() {
    let cluster = Cluster::start().unwrap();
    let rights: Vec<&str> =
        [RIGHTS, RIGHTS_IN_A_CLUSTER].iter().flat_map(|rights| rights.split(' ')).collect();
    for node in cluster.nodes() {
        set_user(node, &[&["on", ">secret"], rights.as_slice()].concat());
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://locks:secret@");
    let found = examined(&url).await;
    assert_eq!(super::about(&found, "rights").len(), 1);
    says(one(&found, "rights"), Mark::Good, &["has all permissions"]);
    for right in ["ssubscribe", "spublish", "asking", "hset"] {
        let node = &cluster.nodes()[1];
        set_user(node, &[&format!("-{right}")]);
        let found = examined(&url).await;
        let said = super::about(&found, "rights")[0];
        let named = format!("may not use {right} (127.0.0.1:{})", node.port());
        says(said, Mark::Problem, &[&named]);
        paste(node, said.fix.as_deref().unwrap());
        assert_eq!(one(&examined(&url).await, "rights").mark, Mark::Good);
    }
    for node in cluster.nodes() {
        assert_eq!(keys(node), [""; 0]);
    }
}
