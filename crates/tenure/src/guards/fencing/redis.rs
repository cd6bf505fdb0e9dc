//! Guards a command of Redis, with the `redis` crate.
//!
//! Beside each guarded key there is another one, [`fence_key`], with the highest fence seen so far. [`SCRIPT`]
//! compares and writes both in one step.
//!
//! The fence has its own key so that it stays when the value expires or is deleted, and so that
//! readers of the value need not know of it. It never expires, and takes about 100 bytes.
//! Delete it, or set an expiry, when no earlier holder can be left: from then on
//! a late write passes. The same happens if the server loses it: with an eviction policy
//! of `allkeys-*`, after `FLUSHALL`, or after a failover to a replica that did not have it yet.

use std::sync::LazyLock;

use ::redis::aio::ConnectionLike;
use ::redis::{Arg, Cmd, FromRedisValue, RedisError, Script, Value, from_redis_value};

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// The script that the server runs, for clients other than the `redis` crate.
///
/// `KEYS[1]` is the key to write, `KEYS[2]` its [`fence_key`]. `ARGV[1]` is the fence. The command and its
/// arguments follow, at most some thousands; without a command the fence is only remembered. It returns
/// `[1, the result of the command]` or `[0, the highest fence seen]`.
pub const SCRIPT: &str = include_str!("redis/write.lua");

/// The key for the highest fence of a key. In a cluster, it is in the same slot.
///
/// For a key with a `}` but without a hash tag there is none; a cluster refuses to write it.
#[must_use]
pub fn fence_key(key: &str) -> String {
    match has_hash_tag(key) {
        true => format!("{key}:fence"),
        false => format!("{{{key}}}:fence"),
    }
}

fn has_hash_tag(key: &str) -> bool {
    let tag = key.split_once('{').and_then(|(_, rest)| rest.split_once('}'));
    tag.is_some_and(|(tag, _)| !tag.is_empty())
}

/// Runs a command that writes `key`, unless a higher fence than `fence` has been seen for it.
///
/// The command must write this key and no other. Its result is returned.
///
/// ```
/// # async fn example(mut connection: redis::aio::MultiplexedConnection, hold: &tenure::Hold) -> Result<(), Box<dyn std::error::Error>> {
/// use tenure::fencing;
///
/// let mut set = redis::cmd("SET");
/// set.arg("report").arg("done").arg("EX").arg(3600);
/// let () = fencing::redis::write(&mut connection, "report", hold.fence(), &set).await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// `Stale` if a higher fence has been seen. `Failed` with the error of the server or of the connection; without
/// an answer, it may have been written.
///
/// # Cancel safety
/// A command that was sent may run although the future was dropped.
pub async fn write<T: FromRedisValue>(
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: Fence,
    command: &Cmd,
) -> Result<T, GuardError<RedisError>> {
    let words = command.args_iter().map(|word| match word {
        Arg::Simple(word) => word,
        // Commands with a cursor only read; this is where they begin.
        _ => b"0",
    });
    let answer = run(connection, key, fence, words).await?;
    Ok(from_redis_value(answer).map_err(RedisError::from)?)
}

/// Succeeds unless a higher fence than `fence` has been seen for `name`.
///
/// What the caller does afterwards is not part of the same step: use this for admission, as the HTTP layer does,
/// and not for writes.
///
/// # Errors
/// As for [`write()`].
///
/// # Cancel safety
/// The fence may be remembered although the future was dropped.
pub async fn guard(
    connection: &mut impl ConnectionLike,
    name: &str,
    fence: Fence,
) -> Result<(), GuardError<RedisError>> {
    run(connection, name, fence, std::iter::empty()).await.map(drop)
}

async fn run(
    connection: &mut impl ConnectionLike,
    key: &str,
    fence: Fence,
    words: impl Iterator<Item = &[u8]>,
) -> Result<Value, GuardError<RedisError>> {
    static WRITE: LazyLock<Script> = LazyLock::new(|| Script::new(SCRIPT));
    if !is_fence(fence) {
        return Err(GuardError::NoFence(fence));
    }
    let mut write = WRITE.prepare_invoke();
    write.key(key).key(fence_key(key)).arg(fence.get());
    words.for_each(|word| {
        write.arg(word);
    });
    let (passed, answer): (bool, Value) = write.invoke_async(connection).await?;
    if passed {
        return Ok(answer);
    }
    let seen = from_redis_value(answer).map_err(RedisError::from)?;
    match check(key, fence, Fence::new(seen)) {
        Err(stale) => Err(GuardError::Stale(stale)),
        Ok(()) => Err(RedisError::from((
            ::redis::ErrorKind::UnexpectedReturnType,
            "the server refused a fence that is not too low",
        ))
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fence_is_kept_where_its_key_is() {
        for (key, fence) in [
            ("report", "{report}:fence"),
            ("report:{7}", "report:{7}:fence"),
            ("report:{}", "{report:{}}:fence"),
            ("a{b", "{a{b}:fence"),
        ] {
            assert_eq!(fence_key(key), fence);
        }
    }
}
