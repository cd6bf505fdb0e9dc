//! Redis, by the `redis` crate: a command that is guarded.
//!
//! Beside each key that is written like this there is another, [`fence_key`], with the highest fence
//! that was seen. The two are compared and written in one step, by [`SCRIPT`].
//!
//! The fence has a key of its own so that it stays when the value expires or is deleted, and so that
//! readers of the value need not know of it. It never expires by itself, and takes about 100 bytes.
//! Delete it, or give it an expiry, when no holder can be left that was granted before: from then on
//! a late write passes. The same happens if the server forgets it: with an eviction policy
//! of `allkeys-*`, after `FLUSHALL`, or after a failover to a replica that had not heard of it.

use std::sync::LazyLock;

use ::redis::aio::ConnectionLike;
use ::redis::{Arg, Cmd, FromRedisValue, RedisError, Script, Value, from_redis_value};

use super::{GuardError, check, is_fence};
use crate::model::claim::Fence;

/// What the server runs, for clients other than the `redis` crate.
///
/// `KEYS[1]` is the key that is written, `KEYS[2]` its [`fence_key`]. `ARGV[1]` is the fence, and what
/// follows is the command with its words, at most some thousands; without one the fence is only
/// remembered. It answers `[1, what the command answered]`, or `[0, the highest fence that was seen]`.
pub const SCRIPT: &str = include_str!("redis/write.lua");

/// Where the highest fence of a key is kept: in a cluster, where the key itself is.
///
/// A key with a `}` and without a hash tag has no such neighbour; a cluster refuses to write it.
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

/// Runs a command that writes `key`, if `fence` is not lower than any that was seen of it.
///
/// The command is one that writes this key and no other; its answer is given back.
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
/// `Stale` if a higher fence was seen. `Failed` with what the server or the connection says; where no
/// answer came, it may have been written.
///
/// # Cancel safety
/// A command that was sent may be run although the future was dropped.
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

/// Lets the caller go on if `fence` is not lower than any that was seen of `name`.
///
/// What the caller then does is not one step with it: this is for doors, such as that of the HTTP
/// layer, and not for writes.
///
/// # Errors
/// As of [`write()`].
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
