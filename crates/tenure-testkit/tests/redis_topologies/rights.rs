//! Users: the smallest set of rights, and the errors if one is missing.

use tenure::{Broken, ErrorKind, Released, Tenure};
use tenure_testkit::servers::{Cluster, Flavour, Redis};

use crate::redis_site::*;

/// The fewest rights that a user needs on one server or behind sentinels. docs/engines/redis.md shows the same.
const RIGHTS: &str = "resetkeys ~tenure:* resetchannels &tenure:* -@all +hello +info +role +ping \
    +select +subscribe +publish +eval +evalsha +scan +wait +time +get +mget +set +del +pttl +pexpire \
    +hget +hmget +hset +hdel +hincrby +hgetall +pubsub|numsub \
    +zadd +zrem +zcard +zcount +zrangebyscore";

/// The additional rights in a cluster.
const RIGHTS_IN_A_CLUSTER: &str =
    "+ssubscribe +spublish +asking +cluster|slots +pubsub|shardnumsub";

/// For what these tests never or rarely do (quiet seconds, replicas), and what the oldest server counts under another
/// name.
const FOR_OTHERS: [&str; 3] = ["role", "wait", "pubsub|numsub"];

fn server_of(flavour: Flavour) -> Redis {
    let user = format!("user locks on >secret {RIGHTS}");
    let users = ["user default off", &user];
    Redis::build().flavour(flavour).acl(&users).start().unwrap()
}

fn url(server: &Redis, password: &str) -> String {
    server.url().replace("redis://", &format!("redis://locks:{password}@"))
}

/// Everything that the public API can ask for, with and without a line.
async fn everything(ours: &Tenure, theirs: &Tenure) -> tenure::Result<()> {
    soon(ours.health()).await?;
    let hold = soon(ours.mutex("x").ttl(secs(2)).meta("a", "b").acquire()).await?;
    hold.extend(secs(3)).await?;
    assert!(soon(theirs.mutex("x").try_acquire()).await?.is_none());
    let line = line_up(&[ours, theirs, ours], "x", secs(2)).await;
    let dropped = wait_for(theirs, "x", secs(2));
    until_waiting(ours, "x", 4).await;
    dropped.abort();
    until_waiting(ours, "x", 3).await;
    hold.extend(secs(3)).await?;
    assert_eq!(hold.release().await?, Released::InTime);
    for waiter in line {
        let hold = soon(waiter).await.expect("no panic")?;
        pause(ms(900)).await;
        assert_eq!(hold.release().await?, Released::InTime);
    }
    let hold = soon(ours.mutex("y").acquire()).await?;
    let next = line_up(&[ours, ours], "y", secs(2)).await;
    drop(hold);
    for waiter in next {
        drop(served(waiter).await);
    }
    let many = soon(ours.semaphore("s", 5).acquire_many(3)).await?;
    soon(ours.semaphore("s", 5).resize(8)).await?;
    drop(many);
    let (read, also) = (ours.rwlock("r").read().await?, theirs.rwlock("r").read().await?);
    let write = tokio::spawn(theirs.rwlock("r").join_write());
    until_waiting(ours, "r", 1).await;
    drop((read, also));
    let write = served(write).await;
    assert!(!soon(ours.list("")).await?.is_empty());
    assert_eq!(ours.break_hold("r", write.fence(), "test").await?, Broken::Done);
    soon(write.lost()).await;
    drop(soon(ours.all(["a", "b"]).acquire()).await?);
    // Many at once: steps that are ready while another is under way travel together.
    let mut holds = Vec::new();
    for number in 0..32 {
        holds.push(soon(ours.mutex(format!("many-{number}")).acquire()).await?);
    }
    drop(holds);
    soon(ours.health()).await.map(drop)
}

#[tokio::test(flavor = "multi_thread")]
async fn s80_the_documented_rights_are_enough() {
    let [debian, redis_62, valkey] = Flavour::ALL.map(server_of);
    tokio::join!(rights_are_enough(debian), rights_are_enough(redis_62), rights_are_enough(valkey));
}

async fn rights_are_enough(server: Redis) {
    let (ours, theirs) =
        (connect(&url(&server, "secret")).await, connect(&url(&server, "secret")).await);
    everything(&ours, &theirs).await.unwrap();
    let elsewhere = connect(&format!("{}/3", url(&server, "secret"))).await;
    drop(soon(elsewhere.mutex("x").acquire()).await.unwrap());
    // Nor has the server silently refused what was given back.
    let refused = server.command(&["ACL", "LOG"]).unwrap();
    assert!(refused.list().is_empty(), "{refused}");
    // Nor does any right stand in the line for no reason.
    let rights = RIGHTS.split_whitespace().filter_map(|word| word.strip_prefix('+'));
    let unused: Vec<_> = rights.filter(|right| calls(&server, right) == 0).collect();
    assert!(unused.iter().all(|right| FOR_OTHERS.contains(right)), "{unused:?}");
    // And foreign keys and channels are out of reach.
    let error = Tenure::connect(&format!("{}?namespace=theirs", url(&server, "secret"))).await;
    assert_eq!(error.unwrap_err().kind(), ErrorKind::Denied);
}

#[tokio::test(flavor = "multi_thread")]
async fn s80_the_documented_rights_are_enough_in_a_cluster() {
    let cluster = Cluster::start().unwrap();
    let rights: Vec<&str> =
        [RIGHTS, RIGHTS_IN_A_CLUSTER].iter().flat_map(|r| r.split_whitespace()).collect();
    for node in cluster.nodes() {
        let words = [&["ACL", "SETUSER", "locks", "on", ">secret"], rights.as_slice()].concat();
        node.command(&words).unwrap().accepted().unwrap();
    }
    let url = cluster.url().replace("redis-cluster://", "redis-cluster://locks:secret@");
    let (ours, theirs) = (connect(&url).await, connect(&url).await);
    everything(&ours, &theirs).await.unwrap();
    for node in cluster.nodes() {
        let refused = node.command(&["ACL", "LOG"]).unwrap();
        assert!(refused.list().is_empty(), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s80_each_right_is_needed_and_a_missing_one_is_named() {
    let server = server_of(Flavour::Debian);
    let in_scripts = ["set", "hincrby"];
    for right in ["info", "subscribe", "eval", "ping"].into_iter().chain(in_scripts) {
        let less = format!("-{right}");
        server.command(&["ACL", "SETUSER", "locks", &less]).unwrap().accepted().unwrap();
        server.command(&["SCRIPT", "FLUSH"]).unwrap();
        let asked = async {
            let tenure = Tenure::connect(&url(&server, "secret")).await?;
            tenure.mutex("x").wait(secs(1)).acquire().await.map(drop)
        };
        let error = within(secs(10), asked).await.expect_err(right);
        assert_eq!(error.kind(), ErrorKind::Denied, "{right}: {error}");
        // Only the server's own log names a right that a script lacks.
        let named = error.to_string().to_lowercase().contains(right);
        assert!(named || in_scripts.contains(&right), "{right}: {error}");
        assert!(!error.to_string().contains("secret"));
        let more = format!("+{right}");
        server.command(&["ACL", "SETUSER", "locks", &more]).unwrap().accepted().unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn s80_a_wrong_password_is_denied_and_one_that_was_changed_back_works() {
    let server = server_of(Flavour::Debian);
    let error = within(secs(10), reach(&url(&server, "wrong"))).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied);
    assert!(!error.to_string().contains("wrong@"), "{error}");
    let tenure = connect(&url(&server, "secret")).await;
    let hold = tenure.mutex("x").ttl(secs(30)).acquire().await.unwrap();
    server.command(&["ACL", "SETUSER", "locks", "resetpass", ">other"]).unwrap();
    cut_off(&server, "tenure");
    let error = within(secs(10), tenure.mutex("y").acquire()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Denied, "{error}");
    // A client with the new password works, and so does the old client once the old password is good again.
    drop(connect(&url(&server, "other")).await.mutex("z").acquire().await.unwrap());
    server.command(&["ACL", "SETUSER", "locks", ">secret"]).unwrap();
    until("it is let in", async || tenure.health().await.is_ok()).await;
    assert!(hold.is_live());
}
