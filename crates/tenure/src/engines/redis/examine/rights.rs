//! Checks the user's permissions. Every command that the engine needs is tried in a form that changes nothing.
//!
//! Trying works on every version and with any user. `ACL DRYRUN` needs 7.0 and a permission that our user should
//! not have.

use super::server::redis_cli;
use crate::engine::Finding;
use crate::engines::redis::config::Address;
use crate::engines::redis::connection::handshake::SerialConnection;
use crate::engines::redis::protocol::resp::Value;
use crate::model::error::Result;

/// What to try, and on which keys and channels.
pub(super) struct Rights<'a> {
    /// The user, as the server calls it.
    pub(super) user: &'a str,
    pub(super) namespace: &'a str,
    /// A key under the namespace that nobody uses.
    pub(super) key: &'a str,
    pub(super) channel: &'a str,
    pub(super) is_cluster: bool,
    pub(super) waits_for_replicas: bool,
}

/// What the tries have shown.
#[derive(Default)]
struct Tried {
    denied: Vec<&'static str>,
    unknown: Vec<&'static str>,
    keys: bool,
    channels: bool,
}

type Command<'a> = (&'static str, Vec<&'a str>);

impl Rights<'_> {
    /// Tries everything. Reports what is missing and how to grant it.
    pub(super) async fn findings(
        &self,
        address: &Address,
        talk: &mut SerialConnection<'_>,
    ) -> Result<Vec<Finding>> {
        let mut tried = Tried::default();
        for (right, words) in self.commands() {
            tried.take(right, &reply(talk, &words).await?);
        }
        self.try_writes(talk, &mut tried).await?;
        // Last, because from here on the connection receives what is published on the channel.
        let subscribe = if self.is_cluster { "ssubscribe" } else { "subscribe" };
        tried.take(subscribe, &reply(talk, &[subscribe, self.channel]).await?);
        Ok(vec![self.rights(address, &tried), scripts(&tried)])
    }

    /// Each permission, with a use of it that changes nothing: on keys that do not exist, or with arguments
    /// that the command refuses, which it does only after the user's permissions were checked.
    fn commands(&self) -> Vec<Command<'_>> {
        let key = self.key;
        let mut commands: Vec<Command<'_>> = vec![
            ("info", vec!["INFO", "server"]),
            ("role", vec!["ROLE"]),
            ("ping", vec!["PING"]),
            ("time", vec!["TIME"]),
            ("scan", vec!["SCAN", "0", "MATCH", key, "COUNT", "1"]),
            ("eval", vec!["EVAL", "return 1", "0"]),
            ("evalsha", vec!["EVALSHA", "0000000000000000000000000000000000000000", "0"]),
            ("get", vec!["GET", key]),
            ("mget", vec!["MGET", key]),
            ("del", vec!["DEL", key]),
            ("pttl", vec!["PTTL", key]),
            ("pexpire", vec!["PEXPIRE", key, "1"]),
            ("hget", vec!["HGET", key, "f"]),
            ("hmget", vec!["HMGET", key, "f"]),
            ("hset", vec!["HSET", key, "f", "v", "odd"]),
            ("hdel", vec!["HDEL", key, "f"]),
            ("hincrby", vec!["HINCRBY", key, "f", "none"]),
            ("hgetall", vec!["HGETALL", key]),
            ("zadd", vec!["ZADD", key, "XX", "1", "m"]),
            ("zrem", vec!["ZREM", key, "m"]),
            ("zcard", vec!["ZCARD", key]),
            ("zcount", vec!["ZCOUNT", key, "0", "1"]),
            ("zrangebyscore", vec!["ZRANGEBYSCORE", key, "0", "1"]),
        ];
        if self.is_cluster {
            commands.push(("spublish", vec!["SPUBLISH", self.channel, ""]));
            commands.push(("cluster|slots", vec!["CLUSTER", "SLOTS"]));
            commands.push(("asking", vec!["ASKING"]));
            commands.push(("pubsub|shardnumsub", vec!["PUBSUB", "SHARDNUMSUB", self.channel]));
        } else {
            commands.push(("publish", vec!["PUBLISH", self.channel, ""]));
            commands.push(("pubsub|numsub", vec!["PUBSUB", "NUMSUB", self.channel]));
        }
        if self.waits_for_replicas {
            commands.push(("wait", vec!["WAIT", "0", "1"]));
        }
        commands
    }

    /// One command has no form that changes nothing. The key that it writes expires.
    async fn try_writes(&self, talk: &mut SerialConnection<'_>, tried: &mut Tried) -> Result<()> {
        let written = reply(talk, &["SET", self.key, "doctor", "PX", "1000"]).await?;
        tried.take("set", &written);
        if written.as_str() == Some("OK") {
            reply(talk, &["DEL", self.key]).await?;
        }
        Ok(())
    }

    fn rights(&self, address: &Address, tried: &Tried) -> Finding {
        let user = self.user;
        if tried.denied.is_empty() && !tried.keys && !tried.channels {
            return Finding::good("rights", format!("user {user} has all permissions it needs"));
        }
        let (namespace, mut missing, mut line) = (self.namespace, Vec::new(), String::new());
        if tried.keys {
            missing.push(format!("the keys {namespace}:*"));
            line += &format!(" ~{namespace}:*");
        }
        if tried.channels {
            missing.push(format!("the channels {namespace}:*"));
            line += &format!(" &{namespace}:*");
        }
        missing.extend(tried.denied.iter().map(|right| (*right).to_owned()));
        tried.denied.iter().for_each(|right| line += &format!(" +{right}"));
        // If keys are forbidden, the commands cannot be told apart, so the fix grants all of them at once.
        let what = format!("user {user} may not use {}", missing.join(", "));
        let weakness = |right: &str| match right {
            "evalsha" => Some("every step is sent twice, the second time with the whole script"),
            "mget" => Some("releases and renewals that travel together are looked up one by one"),
            "pubsub|numsub" | "pubsub|shardnumsub" => {
                Some("a process that was killed while it waited is shown for up to a minute")
            }
            _ => None,
        };
        let weaknesses: Option<Vec<_>> = tried.denied.iter().map(|right| weakness(right)).collect();
        let finding = match weaknesses {
            Some(whys) if !tried.keys && !tried.channels => {
                Finding::warning("rights", what).why(whys.join("; "))
            }
            _ if tried.is_silent() => Finding::problem("rights", what)
                .why("waiting claims are not told about their turn, and are served late"),
            _ => Finding::problem("rights", what).why("claims fail as soon as they need it"),
        };
        finding.fix(format!("{} ACL SETUSER {user}{line}", redis_cli(address)))
    }
}

fn scripts(tried: &Tried) -> Finding {
    match tried.unknown[..] {
        [] => Finding::good("scripts", "scripts run"),
        _ => {
            let names = tried.unknown.join(", ");
            Finding::problem("scripts", format!("the server does not know {names}"))
                .why("every step is a script, and uses these")
                .fix("take their rename-command out of its configuration, or use another server")
        }
    }
}

impl Tried {
    /// Whether everything works except telling waiting claims about their turn.
    fn is_silent(&self) -> bool {
        let to_others = ["publish", "spublish", "subscribe", "ssubscribe"];
        !self.keys && self.denied.iter().all(|right| to_others.contains(right))
    }

    fn take(&mut self, right: &'static str, answer: &Value) {
        let Value::Error(text) = answer else { return };
        if text.starts_with("NOPERM") {
            // The server checks the command first, then the key and the channel.
            match text {
                text if text.contains("channel") => self.channels = true,
                text if text.contains(" key") => self.keys = true,
                _ => self.denied.push(right),
            }
        } else if text.starts_with("ERR unknown command") {
            self.unknown.push(right);
        }
    }
}

async fn reply(talk: &mut SerialConnection<'_>, words: &[&str]) -> Result<Value> {
    let parts: Vec<&[u8]> = words.iter().map(|word| word.as_bytes()).collect();
    talk.reply(&parts).await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Mark;

    fn tried(answers: &[(&'static str, &str)]) -> Tried {
        let mut tried = Tried::default();
        for (right, text) in answers {
            tried.take(right, &Value::Error((*text).into()));
        }
        tried
    }

    fn rights(tried: &Tried) -> Finding {
        let (key, channel) = ("tenure:{1}:d", "tenure:c:1");
        let rights = Rights {
            user: "locks",
            namespace: "tenure",
            key,
            channel,
            is_cluster: false,
            waits_for_replicas: false,
        };
        rights.rights(&Address::Unix("/run/redis.sock".into()), tried)
    }

    #[test]
    fn refusals_of_all_versions_are_told_apart() {
        let tried = tried(&[
            (
                "get",
                "NOPERM this user has no permissions to run the 'get' command or its subcommand",
            ),
            ("del", "NOPERM User locks has no permissions to run the 'del' command"),
            (
                "hget",
                "NOPERM this user has no permissions to access one of the keys used as arguments",
            ),
            ("hset", "NOPERM No permissions to access a key"),
            (
                "publish",
                "NOPERM this user has no permissions to access one of the channels used as arguments",
            ),
            ("hincrby", "ERR value is not an integer or out of range"),
            ("evalsha", "NOSCRIPT No matching script. Please use EVAL."),
            ("eval", "ERR unknown command 'EVAL', with args beginning with: 'return 1' '0' "),
            ("set", "OOM command not allowed when used memory > 'maxmemory'."),
        ]);
        assert_eq!(tried.denied, ["get", "del"]);
        assert_eq!(tried.unknown, ["eval"]);
        assert!(tried.keys && tried.channels);
        assert_eq!(
            rights(&tried).fix.unwrap(),
            "redis-cli -s /run/redis.sock ACL SETUSER locks ~tenure:* &tenure:* +get +del"
        );
        assert_eq!(scripts(&tried).mark, Mark::Problem);
    }

    #[test]
    fn a_user_with_all_rights_is_good() {
        assert_eq!(rights(&Tried::default()).mark, Mark::Good);
        assert_eq!(scripts(&Tried::default()).mark, Mark::Good);
    }
}
