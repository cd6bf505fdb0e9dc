//! The key that a guard adds, and how long it lasts.

use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use tenure::Fence;
use tenure::fencing::GuardError;
use tenure::fencing::redis::{fence_key, guard, write};
use tenure_testkit::servers::Redis;

use crate::file_site::until;

async fn open(server: &Redis) -> MultiplexedConnection {
    let client = redis::Client::open(server.url()).unwrap();
    client.get_multiplexed_async_connection().await.unwrap()
}

fn fence(number: u64) -> Fence {
    Fence::new(number)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_value_that_expires_or_is_deleted_leaves_its_fence() {
    let server = Redis::build().start().unwrap();
    let mut redis = open(&server).await;
    let mut set = redis::cmd("SET");
    set.arg("x").arg("seven").arg("PX").arg(20);
    write::<()>(&mut redis, "x", fence(7), &set).await.unwrap();
    until("it expires", async || !redis.clone().exists::<_, bool>("x").await.unwrap()).await;
    let late = write::<()>(&mut redis, "x", fence(5), &set).await.unwrap_err();
    assert!(matches!(late, GuardError::Stale(stale) if stale.seen == Some(fence(7))));
    assert_eq!(redis.ttl::<_, i64>(fence_key("x")).await.unwrap(), -1, "for ever");
    let mut del = redis::cmd("DEL");
    del.arg("x");
    assert_eq!(write::<u32>(&mut redis, "x", fence(8), &del).await.unwrap(), 0);
    assert!(write::<()>(&mut redis, "x", fence(7), &set).await.is_err());
    assert!(!redis.exists::<_, bool>("x").await.unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn any_command_can_be_guarded_and_its_answer_comes_back() {
    let server = Redis::build().start().unwrap();
    let mut redis = open(&server).await;
    let command = |words: &[&str]| {
        let mut command = redis::cmd(words[0]);
        command.arg(&words[1..]);
        command
    };
    let (add, get) = (command(&["INCRBY", "n", "5"]), command(&["GETSET", "s", "new"]));
    assert_eq!(write::<i64>(&mut redis, "n", fence(1), &add).await.unwrap(), 5);
    assert_eq!(write::<i64>(&mut redis, "n", fence(1), &add).await.unwrap(), 10);
    assert_eq!(write::<Option<String>>(&mut redis, "s", fence(1), &get).await.unwrap(), None);
    let old = write::<Option<String>>(&mut redis, "s", fence(2), &get).await.unwrap();
    assert_eq!(old.as_deref(), Some("new"));
    let bytes: Vec<u8> = (0..=255).collect();
    let mut set = redis::cmd("SET");
    set.arg("b").arg(&bytes);
    write::<()>(&mut redis, "b", fence(1), &set).await.unwrap();
    assert_eq!(redis.get::<_, Vec<u8>>("b").await.unwrap(), bytes);
    // Even the highest numbers are told apart.
    let top = (1 << 53) - 1;
    write::<()>(&mut redis, "b", fence(top), &set).await.unwrap();
    assert!(write::<()>(&mut redis, "b", fence(top - 1), &set).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_are_reported_and_not_taken_for_late_writes() {
    let server = Redis::build().start().unwrap();
    let mut redis = open(&server).await;
    let mut set = redis::cmd("SET");
    set.arg("x").arg("1");
    for number in [0, 1 << 53] {
        let error = write::<()>(&mut redis, "x", fence(number), &set).await.unwrap_err();
        assert!(matches!(error, GuardError::NoFence(_)), "{error}");
    }
    let mut push = redis::cmd("LPUSH");
    push.arg("x").arg("1");
    write::<()>(&mut redis, "x", fence(1), &set).await.unwrap();
    let error = write::<()>(&mut redis, "x", fence(1), &push).await.unwrap_err();
    assert!(error.to_string().contains("WRONGTYPE"), "{error}");
    let () = redis.set(fence_key("x"), "garbage").await.unwrap();
    let error = write::<()>(&mut redis, "x", fence(9), &set).await.unwrap_err();
    assert!(error.to_string().contains("no fence"), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_fence_alone_can_be_remembered() {
    let server = Redis::build().start().unwrap();
    let mut redis = open(&server).await;
    guard(&mut redis, "x", fence(7)).await.unwrap();
    guard(&mut redis, "x", fence(7)).await.unwrap();
    assert!(matches!(guard(&mut redis, "x", fence(6)).await, Err(GuardError::Stale(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_cluster_a_fence_is_where_its_key_is() {
    let server = Redis::build().cluster().start().unwrap();
    let slot = |key: &str| server.command(&["CLUSTER", "KEYSLOT", key]).unwrap().int().unwrap();
    for key in ["report", "report:{7}", "{7}:a:{8}", "a{b", "ü", "{}"] {
        if key != "{}" {
            assert_eq!(slot(key), slot(&fence_key(key)), "{key}");
        } else {
            assert_ne!(slot(key), slot(&fence_key(key)), "the docs say that there is none");
        }
    }
}
